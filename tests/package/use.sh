#!/usr/bin/env bash
# Uses the packages as installed under PREFIX: use.sh PREFIX, in a folder that may be written to.
set -euo pipefail
prefix=$1
export PATH=$prefix/bin:$PATH OMP_NUM_THREADS=1
export PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name skein-core.pc)")

step() { echo "$*" >&2; }
expect() {  # expect TEXT: in what comes in
  local text; text=$(cat)
  grep -q -- "$1" <<<"$text" || { echo "expected $1 in:"; echo "$text"; exit 1; }
}

version=$(pkg-config --modversion skein-torch)
step "the program is of version $version and trains"
skein --version | expect "^skein $version$"
skein train --workers 2 --data glyphs --model mlp --samples 640 --out run >train.log 2>&1 || { cat train.log; exit 1; }
[ -s run/model.safetensors ]

step "its manual and its completion are there"
zcat "$prefix/share/man/man1/skein.1.gz" | expect "$version"
bash -c "source '$prefix/share/bash-completion/completions/skein'
  COMP_WORDS=(skein sim); COMP_CWORD=1; _skein; echo \"\${COMPREPLY[@]}\"
  COMP_WORDS=(skein train --strat); COMP_CWORD=2; _skein; echo \"\${COMPREPLY[@]}\"" | tr '\n' ' ' | expect "^simulate --strategy $"

step "a program is built by g++ and pkg-config, without torch"
cat >core.cpp <<'CODE'
#include <skein/version.h>
#include <skein/world.h>

#include <cstdio>

int main() {
  auto world = skein::World::join();
  const double workers = world.sum({1})[0];
  if (world.rank() == 0) std::printf("%g of %d, version %s\n", workers, world.size(), skein::version());
}
CODE
g++ core.cpp -o core $(pkg-config --cflags --libs skein-core)
skein run -n 2 -- ./core | expect "^2 of 2, version $version$"
if ldd core | grep -q torch; then echo "a program without torch needs torch"; exit 1; fi

step "and with torch"
g++ shortest.cpp -o shortest $(pkg-config --cflags --libs skein-torch)
skein run -n 2 -- ./shortest | expect "^2 workers, loss 0.0"

step "CMake finds the package"
mkdir -p project
cat >project/CMakeLists.txt <<'CMAKE'
cmake_minimum_required(VERSION 3.18)
project(uses_skein LANGUAGES CXX)
find_package(skein REQUIRED CONFIG COMPONENTS torch)
if(NOT TARGET skein::torch OR NOT skein_VERSION VERSION_EQUAL "${EXPECTED}")
  message(FATAL_ERROR "found ${skein_VERSION}")
endif()
CMAKE
cmake -S project -B project/build -DCMAKE_PREFIX_PATH="$prefix" -DEXPECTED="$version" >cmake.log 2>&1 || { cat cmake.log; exit 1; }
