#!/usr/bin/env bash
# Runs a command on hosts of its own: network namespaces, joined by a bridge.
#
#   on_hosts.sh HOSTS WORKERS RATE -- COMMAND...
#
# starts COMMAND as WORKERS workers on each of HOSTS hosts (RANK, WORLD_SIZE, LOCAL_RANK,
# LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set), whose connections send at most RATE
# ("1gbit", or "none"). Needs root and iproute2; removes what it made. Exits as the worst of the
# workers did. With BYTES=FILE it writes there what each host has sent, a line each. With
# DURING=COMMAND that runs beside, with NAMESPACES set, for what is to go wrong meanwhile.
set -eu
hosts=$1 workers=$2 rate=$3
shift 4
tag=skein$$
bridge=skb$$

remove() {
  for ((i = 0; i < hosts; ++i)); do ip netns del "$tag-$i" 2>/dev/null || true; done
  ip link del "$bridge" 2>/dev/null || true
}
trap remove EXIT

ip link add "$bridge" type bridge
ip link set "$bridge" up
NAMESPACES=
for ((i = 0; i < hosts; ++i)); do
  ip netns add "$tag-$i"
  NAMESPACES+="$tag-$i "
  ip link add "sk$i-$$" type veth peer name eth0 netns "$tag-$i"
  ip link set "sk$i-$$" master "$bridge" up
  ip -n "$tag-$i" addr add "10.78.0.$((i + 1))/24" dev eth0
  ip -n "$tag-$i" link set eth0 up
  ip -n "$tag-$i" addr add "fe80::$((i + 1))/64" dev eth0 nodad 2>/dev/null || true  # without IPv6
  ip -n "$tag-$i" link set lo up
  if [ "$rate" != none ]; then
    ip netns exec "$tag-$i" tc qdisc add dev eth0 root tbf rate "$rate" burst 512kb latency 100ms
  fi
done
export NAMESPACES

pids=()
for ((i = 0; i < hosts; ++i)); do
  for ((j = 0; j < workers; ++j)); do
    ip netns exec "$tag-$i" env RANK=$((i * workers + j)) WORLD_SIZE=$((hosts * workers)) \
      LOCAL_RANK=$j LOCAL_WORLD_SIZE="$workers" MASTER_ADDR=10.78.0.1 MASTER_PORT=29778 \
      GLOO_SOCKET_IFNAME=eth0 OMP_NUM_THREADS=1 "$@" &
    pids+=($!)
  done
done
if [ -n "${DURING:-}" ]; then bash -c "$DURING" & fi
status=0
for pid in "${pids[@]}"; do wait "$pid" || status=$?; done
if [ -n "${BYTES:-}" ]; then
  for ((i = 0; i < hosts; ++i)); do
    ip netns exec "$tag-$i" cat /sys/class/net/eth0/statistics/tx_bytes
  done >"$BYTES"
fi
exit "$status"
