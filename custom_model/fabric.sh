# The fabric check as a step of its own before the training; sourced by multi_node.slurm after workshop/launch.sh.
#
# NVIDIA's nccl-tests are used where they can be started as one world: built with MPI, and srun or mpirun speaks it. Else torch
# measures the same. A network that does not answer must not hold the nodes for the job's whole time (FABRIC_TIMEOUT_S).

check_fabric() {
    local code world=$((NNODES * NPROC_PER_NODE))
    if [ "$world" = 1 ]; then
        echo "fabric check: one GPU has no fabric to check"
        return
    fi
    begin_run check_fabric
    local torch_measures=("${ON_NODES[@]}" "${EMULATION[@]}" torchrun $(torchrun_options) -m custom_model.fabric_check measure)
    if nccl_tests_start; then
        run_step timeout "${FABRIC_TIMEOUT_S:-600}" ./nccl_tests.sh "${NCCL_TESTS_START[@]}"
    else
        run_step timeout "${FABRIC_TIMEOUT_S:-600}" "${torch_measures[@]}"
    fi
    code=$?
    [ -n "$RECEIVED" ] && end_run "$code"
    run_step python -m custom_model.fabric_check judge || end_run $?
}

# Whether nccl-tests can run as one world here, and how: sets NCCL_TESTS_START.
nccl_tests_start() {
    local test
    for test in all_reduce all_gather reduce_scatter; do
        ldd "$(command -v ${test}_perf)" 2>/dev/null | grep -q libmpi || return
    done
    if [ ${#ON_NODES[@]} -gt 0 ] && srun --mpi=list 2>&1 | grep -q pmix; then
        NCCL_TESTS_START=(srun --mpi=pmix --nodes="$NNODES" --ntasks-per-node="$NPROC_PER_NODE" --kill-on-bad-exit=1)
    elif [ "$NNODES" = 1 ] && command -v mpirun >/dev/null; then
        NCCL_TESTS_START=(mpirun -np "$NPROC_PER_NODE")
    else
        return 1
    fi
}
