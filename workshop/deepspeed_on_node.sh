#!/bin/bash
# Starts the deepspeed launcher on this node: one worker per GPU, or GPUS_PER_NODE workers where there is none.
#   deepspeed_on_node.sh train.py
# On several nodes srun runs this once per node; the launcher then needs to know the nodes and which of them it is on, and must
# not try ssh.

options=(--master_addr "$MASTER_ADDR" --master_port "$MASTER_PORT")
if [ "$NNODES" -gt 1 ]; then
    options+=(--hostfile "$RUN_DIR/hostfile" --no_ssh --node_rank "$SLURM_NODEID")
elif ! nvidia-smi -L >/dev/null 2>&1; then
    options+=(--num_gpus "$NPROC_PER_NODE")
fi
exec deepspeed "${options[@]}" "$@"
