#!/usr/bin/env bash
# Runs a command on a Slurm cluster of its own: munged, slurmctld and a slurmd for each of some nodes,
# all on this machine.
#
#   cluster.sh NODES FOLDER -- COMMAND...
#
# The nodes are node1, node2, …, with two processors each. Each is a host of its own as far as
# programs can tell: network namespaces, joined by a bridge, with names of their own. COMMAND runs on
# the head node, which runs no jobs. FOLDER keeps the configuration and the daemons' logs; nothing
# else is written. All is in namespaces without a way out, and when COMMAND has ended, or this script
# is killed, everything that was started is gone. Needs root, and Debian's packages slurm-wlm, munge
# and iproute2. Exits as COMMAND did; with 77, and the reason, where it cannot be. KILL_WAIT is
# Slurm's KillWait in seconds.
set -eu
if [ "${1:-}" != --inside ]; then
  why=
  [ "$(id -u)" = 0 ] || why="it needs root"
  for program in munged slurmctld slurmd srun ip; do
    command -v "$program" >/dev/null || why="there is no $program (apt install slurm-wlm munge iproute2)"
  done
  [ -n "$why" ] || unshare --mount --pid --net --uts --fork true 2>/dev/null ||
    why="namespaces are not permitted here"
  if [ -n "$why" ]; then echo "no Slurm cluster: $why"; exit 77; fi
  exec unshare --mount --pid --net --uts --fork --kill-child --mount-proc "$0" --inside "$@"
fi
nodes=$2 folder=$(mkdir -p "$3" && cd "$3" && pwd)
shift 4

hostname head
mount -t tmpfs none /run
ip link set lo up
ip link add skein type bridge
ip address add 10.79.0.254/24 dev skein
ip link set skein up
{
  echo "127.0.0.1 localhost"
  echo "10.79.0.254 head"
  for ((i = 1; i <= nodes; ++i)); do echo "10.79.0.$i node$i"; done
} >"$folder/hosts"
mount --bind "$folder/hosts" /etc/hosts
for ((i = 1; i <= nodes; ++i)); do
  ip netns add "node$i"
  ip link add "port$i" type veth peer name eth0 netns "node$i"
  ip link set "port$i" master skein up
  ip -n "node$i" address add "10.79.0.$i/24" dev eth0
  ip -n "node$i" link set eth0 up
  ip -n "node$i" link set lo up
done

head -c 128 /dev/urandom >"$folder/munge.key"
chmod 400 "$folder/munge.key"
cat >"$folder/slurm.conf" <<CONF
ClusterName=skein
SlurmctldHost=head
SlurmUser=root
SlurmdUser=root
# A requeued job waits until its first credential has expired.
AuthInfo=socket=$folder/munge.socket,cred_expire=5
AuthType=auth/munge
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=2,sched_min_interval=100000,bf_interval=1
PropagateResourceLimits=NONE
KillWait=${KILL_WAIT:-30}
JobRequeue=1
ReturnToService=2
StateSaveLocation=$folder/state
TmpFS=$folder/tmp-%n
SlurmdSpoolDir=$folder/spool-%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd-%n.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd-%n.log
$(for ((i = 1; i <= nodes; ++i)); do echo "NodeName=node$i CPUs=2 State=UNKNOWN"; done)
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverTimeLimit=0
CONF
export SLURM_CONF=$folder/slurm.conf

wait_until() {  # SECONDS COMMAND...
  local until=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    [ "$SECONDS" -lt "$until" ] || { echo "cluster.sh: '$*' did not become true in time" >&2; tail -n 5 "$folder"/*.log >&2; exit 1; }
    sleep 0.1
  done
}
all_idle() { [ "$(sinfo --noheader --states idle --format %D)" = "$nodes" ]; }

munged --force --foreground --socket="$folder/munge.socket" --key-file="$folder/munge.key" \
  --pid-file="$folder/munged.pid" --seed-file="$folder/munged.seed" \
  --origin=127.0.0.1 2>"$folder/munged.log" &
wait_until 300 test -S "$folder/munge.socket"
mkdir -p "$folder/state"
slurmctld -D -f "$SLURM_CONF" >/dev/null 2>&1 &
for ((i = 1; i <= nodes; ++i)); do
  mkdir -p "$folder/spool-node$i" "$folder/tmp-node$i"
  nsenter --net="/run/netns/node$i" unshare --uts \
    sh -c "hostname node$i; exec slurmd -D -f '$SLURM_CONF' -N node$i" >/dev/null 2>&1 &
done
wait_until 300 all_idle
"$@"
