#!/usr/bin/env bash
# How long a new user waits from `git clone` to a model of their own that trains on two workers, step by step. Debian's
# packages are there already (make setup-torch); nothing of an earlier build is used, and nothing is left behind.
#
#   bench/first_steps.sh [REPOSITORY [CMAKE_OPTION…]]       this one unless given
set -euo pipefail
repository=${1:-$(cd "$(dirname "$0")/.." && pwd)}
shift || true
folder=$(mktemp -d)
export CCACHE_DIR=$folder/ccache  # an empty one
trap 'rm -rf "$folder"' EXIT
cd "$folder"

TIMEFORMAT='%1R s, of processors %1U s'
step() {
  printf '%s\n  ' "$*"
  time "$@" >log 2>&1 || { tail -n 20 log; exit 1; }
}

echo "$(nproc) cores, load $(cut -d ' ' -f 1 /proc/loadavg)"
step git clone -q "$repository" skein
step make -C skein install PREFIX="$folder/prefix" CONFIGURE="cmake --preset release $*"
step cp -r skein/examples/train_your_model mine
step cmake -S mine -B mine/build -DCMAKE_PREFIX_PATH="$folder/prefix" -DCMAKE_BUILD_TYPE=Release
step cmake --build mine/build
step prefix/bin/skein run -n 2 -- mine/build/train_your_model
tail -n 1 log
