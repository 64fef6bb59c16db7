#!/bin/bash
# emulated_nodes.sh COMMAND...: run COMMAND once per emulated node, side by side on this host, each with its share of the GPUs.
# NCCL takes each for another host and uses the network between them, not NVLink or shared memory. The first that fails ends
# the others; its exit code is returned.

IFS=, read -ra gpus <<< "${CUDA_VISIBLE_DEVICES:-}"
nodes=()
trap 'kill "${nodes[@]}" 2>/dev/null; wait' EXIT
trap 'exit 143' TERM INT
for ((node = 0; node < NNODES; node++)); do
    mine=("${gpus[@]:node * NPROC_PER_NODE:NPROC_PER_NODE}")
    CUDA_VISIBLE_DEVICES=$(IFS=,; echo "${mine[*]}") NCCL_HOSTID=emulated-node-$node setpriv --pdeathsig TERM "$@" <&0 &
    nodes+=($!)
done
for _ in "${nodes[@]}"; do
    wait -n || exit
done
