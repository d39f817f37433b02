#!/usr/bin/env bash
# What workers find in the environment that srun, mpirun and both set: for tests/launchers/slurm_test.cpp.
#
#   cluster.sh 2 FOLDER -- placements.sh PROGRAM FOLDER
#
# PROGRAM is tests/launchers/placed.cpp. Prints what it says under a line "== NAME" for each way.
set -u
placed=$1 folder=$2

for mpi in none pmi2 pmix; do
  echo "== srun --mpi=$mpi"
  srun --mpi="$mpi" --nodes=2 --ntasks=4 "$placed" tcp
done
echo "== one node"
srun --nodes=1 --ntasks=2 "$placed" local
echo "== one task"
srun --ntasks=1 "$placed" tcp

cat >"$folder/job.sh" <<JOB
#!/bin/bash
echo "== batch"
"$placed" local
echo "== two steps at once"
srun --exact --nodes=2 --ntasks=2 "$placed" tcp &
srun --exact --nodes=2 --ntasks=2 "$placed" tcp &
wait
# mpirun names no place to meet, and hands out no secret.
export MASTER_ADDR=node1 MASTER_PORT=29500 SKEIN_SECRET_FILE=$folder/secret
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
(umask 077; head -c 32 /dev/urandom >"\$SKEIN_SECRET_FILE")
for mpirun in mpirun.openmpi mpirun.mpich; do
  echo "== \$mpirun"
  command -v "\$mpirun" >/dev/null || { echo missing; continue; }
  timeout 400 "\$mpirun" -n 4 "$placed" tcp
  echo "== srun \$mpirun"
  # In a step of one task; without a word neither would start two processes there.
  here=--oversubscribe
  [ "\$mpirun" = mpirun.openmpi ] || here="-launcher fork -hosts localhost"
  srun --nodes=1 --ntasks=1 timeout 400 "\$mpirun" \$here -n 2 "$placed" local
done
JOB
sbatch --wait --quiet --nodes=2 --ntasks-per-node=2 --output="$folder/job.log" "$folder/job.sh"
status=$?
cat "$folder/job.log"
exit "$status"
