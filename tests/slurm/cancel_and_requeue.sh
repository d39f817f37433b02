#!/usr/bin/env bash
# A job's hard life: for tests/launchers/slurm_test.cpp, or to watch by hand.
#
#   cluster.sh 2 FOLDER -- cancel_and_requeue.sh OUT JOB.sh OPTIONS...
#
# submits JOB.sh with one worker on each of two nodes, and, each time it has come some steps further,
# warns it as a time limit does, cancels it, and puts it back into the queue. OUT is the run's folder.
# Prints what happens, and the job's own log at the end. Exits as the job did.
set -eu
out=$1
shift
export OUT=$out
mkdir -p "$out"
log=$out/job.log

say() { echo "$(date -u +%T) $*"; }
steps() { cat "$out/metrics.jsonl" 2>/dev/null | grep -c '"kind":"step"' || true; }
state() { scontrol show job "$job" | sed -n 's/.*JobState=\([A-Z]*\).*/\1/p'; }
wait_for() {  # SECONDS COMMAND...
  local until=$((SECONDS + $1))
  shift
  until "$@"; do
    [ "$SECONDS" -lt "$until" ] || { say "this did not happen: $*"; scontrol show job "$job"; cat "$log"; exit 1; }
    sleep 0.1
  done
}
further() { [ "$(steps)" -ge $((before + 10)) ]; }
is() { [ "$(state)" = "$1" ]; }
come_further() {
  before=$(steps)
  wait_for 600 further
  say "job $job: $(state), $(steps) steps"
}

before=0
job=$(sbatch --parsable --nodes=2 --ntasks-per-node=1 --cpus-per-task=1 --time=10 --output="$log" "$@")
come_further

say "scancel --signal=USR1 $job, as ahead of the time limit: it saves, and its script puts it back into the queue"
scancel --signal=USR1 "$job"
wait_for 600 is PENDING
come_further

say "scancel $job"
scancel "$job"
wait_for 600 is CANCELLED
say "job $job: $(state), $(steps) steps"
say "scontrol requeue $job"
scontrol requeue "$job"

wait_for 600 is COMPLETED
say "job $job: $(state), $(steps) steps, $(scontrol show job "$job" | grep -o 'Restarts=[0-9]*')"
echo "-- $log"
cat "$log"
