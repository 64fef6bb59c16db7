#!/bin/bash
# One training process started by srun: tells PyTorch which rank it is, then becomes the command given. The first task of each
# node starts the loggers for all tasks of the node; slurmstepd is the parent of them all.

export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS
here=$(dirname "$0")
# Not with the task's own output: slurmstepd, which they wait for, would wait a minute for them to close it.
if [ "$SLURM_LOCALID" -eq 0 ]; then
    "$here/kill_with_parent.sh" TERM "$here/loggers.sh" $PPID >> "$RUN_DIR/train.out" 2>&1 &
fi
exec "$@"
