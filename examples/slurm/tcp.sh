#!/bin/bash
# Trains on several nodes, which talk over TCP. Change the numbers, then
#
#   sbatch tcp.sh --strategy dear --data cifar10:/data/cifar10 --model resnet18 --epochs 30 --checkpoint-every 50000
#
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=2       # workers on each of them
#SBATCH --cpus-per-task=4
##SBATCH --gpus-per-node=2        # take away one # for a GPU for each worker
#SBATCH --time=24:00:00
#SBATCH --signal=USR1@120         # two minutes before the time is over: save and leave
#SBATCH --requeue                 # to start again where a node failed or another job came first
#SBATCH --open-mode=append        # one log for all starts
#SBATCH --output=skein-%j.log

# A folder that all nodes see. To go on with a job that is gone: OUT=its folder sbatch tcp.sh …
out=${OUT:-$HOME/skein/$SLURM_JOB_ID}

# Each task is a worker. Slurm says where the first one is; the workers know each other by
# ~/.skein/secret, which they make. They end together, so that Slurm need not kill anybody.
export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK  # srun does not take it from sbatch by itself
srun --kill-on-bad-exit=0 skein train --fabric tcp --out "$out" --resume auto "$@"
code=$?

# 75: a signal came before the end, and there is a checkpoint. scancel ends this script, too.
if [ "$code" = 75 ]; then scontrol requeue "$SLURM_JOB_ID"; fi
exit "$code"
