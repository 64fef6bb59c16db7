#!/bin/bash
# nccl_tests.sh START...: the three tests of nccl-tests, started as one MPI world by START (srun or mpirun), into nccl.log.

for test in all_reduce all_gather reduce_scatter; do
    echo "# Collective test starting: ${test}_perf" >> "$RUN_DIR/nccl.log"
    "$@" ${test}_perf -b 1M -e "${FABRIC_MAX_MIB}M" -f 4 -g 1 -n "$FABRIC_ITERATIONS" -w "$FABRIC_WARMUP" >> "$RUN_DIR/nccl.log" ||
        exit
done
