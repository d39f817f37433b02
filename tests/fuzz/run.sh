#!/usr/bin/env bash
# run.sh SECONDS: builds the fuzz targets and runs each for so long, from the corpus beside this file. What is found on the way stays in
# build-fuzz/corpus; an input that breaks something is named there, too. Where there is no clang with libFuzzer it says so and ends well.
set -eu
cd "$(dirname "$0")/../.."
compiler=$(command -v clang++ || command -v clang++-14 || true)
if [ -z "$compiler" ] || ! echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' |
  "$compiler" -x c++ -fsanitize=fuzzer,address,undefined -o /dev/null - 2>/dev/null; then
  echo "fuzzing skipped: no clang with libFuzzer (apt install clang-14 libclang-rt-14-dev)"
  exit 0
fi
cmake --preset fuzz -DCMAKE_CXX_COMPILER="$compiler" >/dev/null
cmake --build build-fuzz --target fuzz_frames fuzz_connection fuzz_meeting fuzz_agent >build-fuzz/build.log || { tail -n 30 build-fuzz/build.log; exit 1; }
for target in frames connection meeting agent; do
  mkdir -p "build-fuzz/corpus/$target"
  log=build-fuzz/$target.log
  if build-fuzz/tests/fuzz/fuzz_$target -max_total_time="$1" -timeout=20 -rss_limit_mb=2048 -max_len=4096 -print_final_stats=1 \
    -artifact_prefix="build-fuzz/broken-$target-" "build-fuzz/corpus/$target" "tests/fuzz/corpus/$target" >"$log" 2>&1; then
    echo "fuzz_$target: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs in $1 s, nothing broke"
  else
    tail -n 40 "$log"
    echo "fuzz_$target: broken by $(ls build-fuzz/broken-$target-* 2>/dev/null | tail -n 1)"
    exit 1
  fi
done
