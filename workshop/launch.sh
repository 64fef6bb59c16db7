# Functions for the launchers; a .slurm sources this file in its exercise's folder, under sbatch or plain bash.
#
#   start_run [CONFIG]       environment, settings, rendezvous; a mistake is an error here, without a run folder
#   log_gpus, log_cpus, log_pss COMMAND...   loggers beside the training on every node, each into its log in the run folder
#   check_first COMMAND...   a step before the training, which starts only if it succeeds
#   launch COMMAND...        the training, once per node, or as `srun` says; '$SLURM_NODEID' in single quotes: per node
#
# `launch` becomes workshop/job/supervisor.py: run folder, loggers, training, signals, restarts, outcome. Without SLURM
# GPUS_PER_NODE (default 1) is the number of processes, and EMULATED_NODES=2 lets this host play two nodes: each has its own
# GPUS_PER_NODE GPUs and launcher, and NCCL takes the network from one to the other.

export REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)  # a snapshot of the code has no git
export EXERCISE_DIR=$PWD LAUNCHER_PID=$$ LAUNCHER_ARGUMENTS="${*@Q}"
trap 'export NOTICED=USR1' USR1  # SLURM's notice of the time limit (#SBATCH --signal), handed over to the supervisor

die() { echo "error: $*" >&2; exit 1; }

# sbatch starts a copy of the script: SLURM knows where the original lies. Running another clone's code is an error.
find_launcher() {
    export LAUNCHER=$(basename "$0")
    [ ! -f "$LAUNCHER" ] && [ -n "${SLURM_JOB_ID:-}" ] || return 0
    # For an array's last task scontrol lists all tasks: read the first. Arguments follow the path.
    local folder script=$(scontrol show job "$SLURM_JOB_ID" | sed -n '/^ *Command=/{s///p;q}')
    until [ -f "$script" ] || [ "$script" = "${script% *}" ]; do script=${script% *}; done
    LAUNCHER=$(basename "$script")
    folder=$(cd "$(dirname "$script")" && pwd -P) || return 0
    [ "$folder" = "$(pwd -P)" ] ||
        die "$script was submitted, but $PWD would run; submit it in its own repository:" \
            "cd $folder && sbatch $LAUNCHER"
}

activate_python() {
    if [ -n "${CONDA_SH_PATH:-}" ]; then
        [ -f "$CONDA_SH_PATH" ] || die "CONDA_SH_PATH='$CONDA_SH_PATH': no such file; expected conda's etc/profile.d/conda.sh"
        source "$CONDA_SH_PATH"
        conda activate "${CONDA_ENV:?is empty although CONDA_SH_PATH is set}" || die "CONDA_ENV='$CONDA_ENV': cannot activate it"
    elif [ -x "${WORKSHOP_VENV:-$REPO/.venv}/bin/python" ]; then  # a container has its own
        PATH=${WORKSHOP_VENV:-$REPO/.venv}/bin:$PATH
    fi
    command -v python >/dev/null || die "no python on PATH; run \`make install\` once, or set CONDA_SH_PATH and CONDA_ENV"
}

# The job's first node, this one, hosts the rendezvous. The port follows from the job id; a port in use is skipped, so two
# jobs on one node cannot meet.
rendezvous() {
    local name limit visible=(${CUDA_VISIBLE_DEVICES//,/ })
    [ -z "${SLURM_JOB_ID:-}" ] || [ -n "${SLURMD_NODENAME:-}" ] ||  # salloc's shell is often on the login node
        die "this shell is on no node of job $SLURM_JOB_ID; expected sbatch, or \`srun --pty bash\` before it"
    [ "${SLURM_STEP_NUM_TASKS:-1}" = 1 ] || die "srun starts $SLURM_STEP_NUM_TASKS launchers; expected --ntasks=1"
    for name in GPUS_PER_NODE EMULATED_NODES; do
        [[ ${!name:-1} =~ ^[1-9][0-9]*$ ]] || die "$name='${!name}': expected a whole number of at least 1"
    done
    NNODES=${SLURM_NNODES:-${EMULATED_NODES:-1}}
    NPROC_PER_NODE=${SLURM_GPUS_ON_NODE:-${GPUS_PER_NODE:-1}}
    RDZV_ID=${SLURM_JOB_ID:-$$}  # keeps two jobs' worlds apart
    MASTER_ADDR=localhost DEEPSPEED_HOSTS=localhost GPUS_HERE=$((NNODES * NPROC_PER_NODE))
    if [ -n "${SLURM_JOB_ID:-}" ] && [ "$NNODES" -gt 1 ]; then
        DEEPSPEED_HOSTS=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
        MASTER_ADDR=${DEEPSPEED_HOSTS%%$'\n'*} GPUS_HERE=$NPROC_PER_NODE
        ON_NODES=(srun --ntasks="$NNODES" --ntasks-per-node=1 --cpu-bind=none)
    fi
    limit=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
    [[ ! ${CUDA_VISIBLE_DEVICES:-} =~ ^[0-9GM] ]] || ((limit > 0 && limit < ${#visible[@]})) || limit=${#visible[@]}
    [[ ${CUDA_VISIBLE_DEVICES:-} != *MIG-* ]] || limit=1  # CUDA shows a process only one slice
    [ "$limit" -eq 0 ] || [ "$GPUS_HERE" -le "$limit" ] || die "GPUS_PER_NODE=$NPROC_PER_NODE: $GPUS_HERE processes on this host," \
        "more than its GPUs${visible:+ in CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES}; expected at most $limit in all"
    MASTER_PORT=$((20000 + RDZV_ID % 12000))  # below the ephemeral ports
    while (exec 3<> "/dev/tcp/localhost/$MASTER_PORT") 2>/dev/null; do MASTER_PORT=$((MASTER_PORT + 1)); done
    export NNODES NPROC_PER_NODE MASTER_ADDR MASTER_PORT RDZV_ID DEEPSPEED_HOSTS SLURM_NODEID=${SLURM_NODEID:-0}
}

# Relative paths, also globs and slices after a colon, are relative to the folder of the submission. LOG_DIR may be new.
relative_to_submission() {
    local name path from=${SLURM_SUBMIT_DIR:-$OLDPWD}
    for name in "$@"; do
        [ "$name" = CONFIG ] && [ -f "$REPO/snapshot.json" ] && from=$REPO  # the snapshot has a copy
        path=${!name:-}
        [ -e "$from/$path" ] || path=${path%%:*}
        [ "$path" ] && { [[ $name$path == LOG_DIR[!/]* || -e $from/$path ]] || compgen -G "$from/$path" > /dev/null; } &&
            export "$name=$(realpath -m "$from/$path")${!name#"$path"}"
    done
}

start_run() {
    find_launcher
    export CONFIG=${1:-}
    relative_to_submission DATASET EVAL_DATASET MODEL_NAME TOKENIZER_NAME RESUME_FROM RESUME_RUN LOG_DIR CONFIG
    [ -z "$CONFIG" ] || [ -f "$CONFIG" ] ||
        die "configuration '$CONFIG': no such file; expected one of:" $(ls ./*.json ./*_configs/*.json)
    CONFIG=${CONFIG:+$(realpath "$CONFIG")}
    # Site settings first, then the exercise's; a variable that is already set wins over both.
    [ -f "$REPO/cluster.env" ] && source "$REPO/cluster.env"
    rendezvous && source ./env_vars.sh && activate_python || exit 1
    export PYTHONPATH=$REPO${PYTHONPATH:+:$PYTHONPATH}
    python -m workshop.job.preflight || exit 1
    # Without network the hub's library would retry for minutes; offline it reads its cache.
    [ -n "${HF_HUB_OFFLINE:-}" ] || export HF_HUB_OFFLINE=$(python -m workshop.data.hub)
    # Without SLURM, limit the training to as many GPUs as processes.
    [ -n "${SLURM_JOB_ID:-}" ] || export CUDA_VISIBLE_DEVICES=$(cut -d, -f"1-$GPUS_HERE" <<< "${CUDA_VISIBLE_DEVICES-$(seq -s, 0 99)}")
    # Each process gets its share of the processors for an optimizer on the CPU: torchrun gives one thread, DeepSpeed all.
    local processors=${SLURM_CPUS_ON_NODE:-$(nproc)}
    export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((processors > GPUS_HERE ? processors / GPUS_HERE : 1))}
    # Transformers would print that W&B is offline, even if it is not used; offline is the default.
    [ "${WANDB_MODE:-}" = offline ] && unset WANDB_MODE
    export PYTHONWARNINGS=${PYTHONWARNINGS:-ignore::FutureWarning}  # DeepSpeed uses PyTorch's old names
    [ -t 1 ] || export TQDM_MININTERVAL=${TQDM_MININTERVAL:-10}  # seconds between two lines of a progress bar in a file
}

# For exercises without parallelism: several processes would be several trainings in one run folder.
one_gpu() {
    local gpus=$((NNODES * NPROC_PER_NODE))
    [ "$gpus" = 1 ] || die "${PWD##*/} trains on one GPU, but this job has $gpus; expected --nodes=1 --gpus-per-node=1"
}

# For launchers that start one node's processes only: on several, each node would train alone.
one_node() {
    [ "$NNODES" = 1 ] ||
        die "$LAUNCHER trains on one node, but this job has $NNODES; expected --nodes=1, or a launcher for several:" *node*.slurm
}

log_gpus() { export GPU_LOGGER="${*@Q}"; }
log_cpus() { export CPU_LOGGER="${*@Q}"; }
log_pss() { export PSS_LOGGER="${*@Q}"; }
check_first() { export CHECK_FIRST="${*@Q}"; }

# DeepSpeed's operators are compiled before the run's clock and its loggers start. Then this process becomes the supervisor,
# which receives SLURM's notice; a notice in between is ignored.
launch() {
    [ -z "$CONFIG" ] || "${ON_NODES[@]}" python -m workshop.kernels.operators "$CONFIG" || exit 1
    trap '' USR1 && exec python -m workshop.job.supervisor "$@"
}
