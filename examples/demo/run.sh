#!/usr/bin/env bash
# Every strategy on three emulated clusters: run.sh SKEIN OUT. Each cluster is a file beside this one.
set -uo pipefail
skein=$1 out=$2 here=$(dirname "$0") failed=0 folders=()
for cluster in slow-network unequal-machines both; do
  title=$(sed -n 's/^title = "\(.*\)"/\1/p' "$here/$cluster.toml")
  printf '\n%s\n' "$title"
  # What is said about the table comes at the end. The page shows the run that goes on.
  "$skein" compare --config "$here/$cluster.toml" --out "$out/$cluster" --overwrite --page 0 | sed -u '/^$/,$d'
  code=${PIPESTATUS[0]}
  [ "$code" -lt 2 ] || exit "$code" # refused, or stopped
  [ "$code" -eq 0 ] || failed=1
  folders+=("$out/$cluster")
done
echo
"$skein" compare show "${folders[@]}" --title 'Which strategy for which cluster' --report "$out/report.html" || exit
exit "$failed"
