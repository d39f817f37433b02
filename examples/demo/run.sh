#!/usr/bin/env bash
# Every strategy on three emulated clusters: run.sh SKEIN OUT [OPTION…]. Each cluster is a file beside this one; options
# that are given besides go to each `skein compare`.
set -uo pipefail
skein=$1 out=$2 here=$(dirname "$0") failed=0 folders=()
shift 2
# One page for all clusters, at one address: it shows whichever run OUT/current leads to. Nobody needs it: where there
# can be none, watch says why and the demo goes on.
mkdir -p "$out/waiting" && echo '{}' >"$out/waiting/run.json" && ln -sfn waiting "$out/current" || exit
"$skein" watch "$out/current" --page 0 --quiet >"$out/waiting/address" &
watch=$!
trap 'kill "$watch" 2>/dev/null; wait "$watch" 2>/dev/null; rm -rf "$out/waiting" "$out/current"' EXIT
for ((i = 0; i < 100; ++i)); do
  kill -0 "$watch" 2>/dev/null && [ ! -s "$out/waiting/address" ] || break
  sleep 0.1
done
sed 's/^/page  /' "$out/waiting/address" >&2
for cluster in slow-network unequal-machines both; do
  title=$(sed -n 's/^title = "\(.*\)"/\1/p' "$here/$cluster.toml")
  printf '\n%s\n' "$title"
  rm -f "$out/$cluster/current" && ln -sfn "$cluster/current" "$out/current"
  # What is said about the table comes at the end. Timelines are for the page.
  "$skein" compare --config "$here/$cluster.toml" --out "$out/$cluster" --overwrite --timeline "$@" | sed -u '/^$/,$d'
  code=${PIPESTATUS[0]}
  [ "$code" -lt 2 ] || exit "$code" # refused, or stopped
  [ "$code" -eq 0 ] || failed=1
  folders+=("$out/$cluster")
done
echo
"$skein" compare show "${folders[@]}" --title 'Which strategy for which cluster' --report "$out/report.html" || exit
exit "$failed"
