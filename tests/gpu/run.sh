#!/usr/bin/env bash
# Builds what the tests on GPUs need and runs them, with whatever this machine has: no network, no
# root.
#
#   tests/gpu/run.sh [BUILD]           BUILD: the build folder, build-gpu unless given
#
# LibTorch is the one of python3's torch, or of TORCH=DIR. Where toml++ is not installed,
# TOMLPLUSPLUS=DIR names a folder that holds toml++/toml.h. CMAKE_ARGS: more for cmake. TARGETS and
# LABELS: what to build and to run (-L) in place of the tests on GPUs.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${1:-build-gpu}

say() { printf '%4d s  %s\n' "$SECONDS" "$*"; }

torch=${TORCH:-$(python3 -c 'import os, torch; print(os.path.dirname(os.path.dirname(torch.utils.cmake_prefix_path)))')}
[ -f "$torch/share/cmake/Torch/TorchConfig.cmake" ] || {
  echo "$torch: no share/cmake/Torch/TorchConfig.cmake there; expected a LibTorch: TORCH=DIR" >&2
  exit 2
}
command -v nvcc >/dev/null || export PATH="$PATH:/usr/local/cuda/bin"
command -v nvcc >/dev/null || {
  echo "no nvcc, in PATH or in /usr/local/cuda/bin: the build would have no CUDA" >&2
  exit 2
}
say "LibTorch in $torch, $(nvcc --version | tail -n 2 | head -n 1), $(nproc) cores"

arguments=(-G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$torch" -DCMAKE_CUDA_ARCHITECTURES="${CUDAARCHS:-native}"
  -DSKEIN_BENCH="${BENCH:-OFF}")
[ -z "${TOMLPLUSPLUS:-}" ] || arguments+=(-DSKEIN_TOMLPLUSPLUS_INCLUDE="$TOMLPLUSPLUS")
mkdir -p "$build"
# shellcheck disable=SC2086
cmake -S . -B "$build" "${arguments[@]}" ${CMAKE_ARGS:-} >"$build/configure.log" 2>&1 || {
  tail -n 40 "$build/configure.log"
  exit 1
}
say "configured"
# shellcheck disable=SC2086
cmake --build "$build" -j "$(nproc)" --target ${TARGETS:-cuda_label} >"$build/build.log" 2>&1 || {
  grep -E 'error|FAILED|undefined' "$build/build.log" | head -n 40
  exit 1
}
say "built"
"$build/skein" doctor
status=0
ctest --test-dir "$build" -L "${LABELS:-cuda}" -j "${JOBS:-3}" --output-on-failure || status=$?
grep -h -A 1 ': Skipped$' "$build"/Testing/Temporary/LastTest*.log || true
say "tested"
exit $status
