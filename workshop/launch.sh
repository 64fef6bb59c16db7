# What the launchers share; sourced by a .slurm from its exercise folder, under sbatch or plain bash.
#
#   start_run [CONFIG]     environment, run folder, rendezvous, run.json
#   single_gpu             refuse more than one GPU
#   one_node               refuse more than one node
#   torchrun_options       what torchrun must know to make one world of all nodes' processes
#   launch COMMAND...      one launcher per node with loggers beside it, wait, record the outcome, exit with its code
#   launch_per_gpu COMMAND...   the same with one process per GPU, started by srun
# and what `launch` consists of, for a job with a step before the training (custom_model/fabric.sh):
#   begin_run COMMAND...   run.json
#   run_step COMMAND...    run one step, its output shown and kept, signals passed on; its exit code
#   end_run CODE           record the outcome and exit
#
# A run goes on in its folder, from its newest whole checkpoint: RESUME_RUN=FOLDER, a job that SLURM queued again, and a
# training that died after it had saved one (at most RESTARTS times in a job, default 3). When SLURM, `kill` or Ctrl-C tells
# a training to end that saves checkpoints, it saves one more first; a second signal ends it at once.
#
# Without SLURM, GPUS_PER_NODE (default 1) is the number of training processes, and EMULATED_NODES=2 lets this host play
# two nodes: each has GPUS_PER_NODE GPUs and a launcher of its own, and NCCL takes the network from one to the other.

EXERCISE_DIR=$PWD
REPO=$(dirname "$PWD")
LAUNCHER_PID=$$
export EXERCISE_DIR REPO LAUNCHER_PID
ARGUMENTS=("$@")  # the launcher's
RECEIVED=""  # the signal that told this job to end
NOTICED=""   # the one that SLURM sends some time before the time limit (#SBATCH --signal)
NOT_BEGUN="" # it came before the training had begun
ENDED=""     # this launcher has ended the training, which did not die by itself
AGAIN=""     # a training that died may go on, in the job that SLURM queues again: this one has no time left
STEP=""      # the process that runs for the job
LAUNCHED=()  # the command of the training
trap 'NOTICED=USR1' USR1

die() { echo "error: $*" >&2; exit 1; }

activate_python() {
    if [ -n "${CONDA_SH_PATH:-}" ]; then
        [ -f "$CONDA_SH_PATH" ] || die "CONDA_SH_PATH='$CONDA_SH_PATH': no such file; expected conda's etc/profile.d/conda.sh"
        source "$CONDA_SH_PATH"
        conda activate "${CONDA_ENV:?is empty although CONDA_SH_PATH is set}" || die "CONDA_ENV='$CONDA_ENV': cannot activate it"
    elif [ -x "${WORKSHOP_VENV:-$REPO/.venv}/bin/python" ]; then  # a container brings its own: the host's does not work there
        PATH=${WORKSHOP_VENV:-$REPO/.venv}/bin:$PATH
    fi
    command -v python >/dev/null || die "no python on PATH; run \`make install\` once, or set CONDA_SH_PATH and CONDA_ENV"
}

# The first node of the job, this one, hosts the rendezvous. The port follows from the job id, and is the next one where
# somebody listens already, so two jobs on one node cannot meet.
rendezvous() {
    local name
    for name in GPUS_PER_NODE EMULATED_NODES; do
        [[ ${!name:-1} =~ ^[1-9][0-9]*$ ]] || die "$name='${!name}': expected a whole number of at least 1"
    done
    NNODES=${SLURM_NNODES:-${EMULATED_NODES:-1}}
    NPROC_PER_NODE=${SLURM_GPUS_ON_NODE:-${GPUS_PER_NODE:-1}}
    MASTER_ADDR=localhost
    ON_NODES=()   # what starts a command on every node
    EMULATION=()  # and then on every emulated one
    if [ -n "${SLURM_JOB_ID:-}" ] && [ "$NNODES" -gt 1 ]; then
        MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
        # srun does not know of the job's --cpus-per-task (since SLURM 22.05) and would bind to one processor where a site binds.
        ON_NODES=(srun --ntasks="$NNODES" --ntasks-per-node=1 --cpu-bind=none --kill-on-bad-exit=1)
    elif [ "$NNODES" -gt 1 ]; then
        EMULATION=("$REPO/workshop/emulated_nodes.sh")
    fi
    local gpus
    gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
    GPUS_HERE=$NPROC_PER_NODE
    [ ${#EMULATION[@]} -eq 0 ] || GPUS_HERE=$((NNODES * NPROC_PER_NODE))
    [ "$gpus" -eq 0 ] || [ "$GPUS_HERE" -le "$gpus" ] ||
        die "GPUS_PER_NODE=$NPROC_PER_NODE${EMULATION:+ on $NNODES emulated nodes}: more than the GPUs of this node;" \
            "expected at most $gpus in all"
    MASTER_PORT=$((20000 + ${SLURM_JOB_ID:-$$} % 12000))  # below the ephemeral ports
    while (exec 3<> "/dev/tcp/localhost/$MASTER_PORT") 2>/dev/null; do MASTER_PORT=$((MASTER_PORT + 1)); done
    export NNODES NPROC_PER_NODE MASTER_ADDR MASTER_PORT
}

# Each process's share of the processors that this node gives the job. An optimizer in CPU memory computes with as many threads;
# left alone, torchrun gives each process one, and DeepSpeed's launcher gives each as many as there are.
threads_per_process() {
    local processors=${SLURM_CPUS_ON_NODE:-$(nproc)}
    echo $((processors > GPUS_HERE ? processors / GPUS_HERE : 1))
}

# The launcher works in the exercise's folder; a relative path means where the participant stood.
relative_to_submission() {
    local name from=${SLURM_SUBMIT_DIR:-$OLDPWD}
    for name in "$@"; do
        [ "$name" = CONFIG ] && [ -f "$REPO/snapshot.json" ] && from=$REPO  # is code: the snapshot has its own
        [ -n "${!name:-}" ] && [ -e "$from/${!name}" ] && export "$name=$(realpath "$from/${!name}")"
    done
}

# The folder of the run that goes on: RESUME_RUN, or what this job had before SLURM queued it again; else nothing.
earlier_folder() {
    if [ -n "${RESUME_RUN:-}" ]; then
        [ -f "$RESUME_RUN/run.json" ] || die "RESUME_RUN='$RESUME_RUN': no run.json there; expected a run folder"
        echo "$RESUME_RUN"
    elif [ "${SLURM_RESTART_COUNT:-0}" -gt 0 ]; then
        find "$LOG_DIR/$EXPERIMENT_NAME" -maxdepth 1 -name "*-j$SLURM_JOB_ID" 2>/dev/null
    fi
}

# What became of the run, in run.json. To its end, also where Ctrl-C reaches every process of a terminal.
record() { (trap '' TERM INT; exec python -m workshop.run_record "$@"); }

# Prints the newest whole checkpoint of this run; of those that are not whole, a line in train.out says why.
newest_checkpoint() {
    python -m workshop.checkpoints newest "$(cd "$RUN_DIR" && realpath -m "$OUTPUT_DIR")" $((NNODES * NPROC_PER_NODE)) \
        2> >(tee -a "$RUN_DIR/train.out" >&2)
}

# The run folder's next attempt begins, from the checkpoint given; from RESUME_FROM or the first step if there is none.
go_on() {
    record reopen "$RUN_DIR" "$1" || exit 1
    [ -z "$1" ] || export RESUME_FROM=$1
    echo "the run goes on from ${1:-${RESUME_FROM:-the first step: no whole checkpoint}}" | tee -a "$RUN_DIR/train.out"
}

start_run() {
    CONFIG=${1:-} RUN_DIR="" RECEIVED=""
    relative_to_submission DATASET EVAL_DATASET MODEL_NAME TOKENIZER_NAME RESUME_FROM RESUME_RUN LOG_DIR CONFIG
    if [ -n "$CONFIG" ]; then
        [ -f "$CONFIG" ] || die "configuration '$CONFIG': no such file; expected one of:" $(ls ./*.json ./*_configs/*.json)
        CONFIG=$(realpath "$CONFIG")
    fi
    export CONFIG
    # Site settings first, then the exercise's; a variable that is already set wins over both.
    [ -f "$REPO/cluster.env" ] && source "$REPO/cluster.env"
    rendezvous
    source ./env_vars.sh
    activate_python
    export PYTHONPATH=$REPO${PYTHONPATH:+:$PYTHONPATH}
    python -m workshop.preflight || exit 1
    # Without network the hub's library would try for minutes; offline it answers from its cache at once.
    [ -n "${HF_HUB_OFFLINE:-}" ] || export HF_HUB_OFFLINE=$(python -m workshop.hub)
    # Without SLURM nobody else limits the training to as many GPUs as it starts processes.
    [ -z "${SLURM_JOB_ID:-}" ] && export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES-$(seq -s, 0 $((GPUS_HERE - 1)))}
    export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$(threads_per_process)}
    # On import the Trainer's library says that W&B is offline, whoever uses it; it is offline unless one says otherwise.
    [ "${WANDB_MODE:-}" = offline ] && unset WANDB_MODE
    # DeepSpeed calls functions that newer PyTorch renames; one warning per call would drown the losses.
    export PYTHONWARNINGS=${PYTHONWARNINGS:-ignore::FutureWarning}
    # PyTorch's Flight Recorder keeps NCCL's last calls, which a rank that hangs writes down (workshop/hangs.py).
    export TORCH_FR_BUFFER_SIZE=${TORCH_FR_BUFFER_SIZE:-2000}
    # A progress bar in a log file: one line every ten seconds is enough.
    [ -t 1 ] || export TQDM_MININTERVAL=${TQDM_MININTERVAL:-10}
}

# Once nothing stands in the way of the first step: a refused start leaves none.
make_run_folder() {
    [ -z "$RUN_DIR" ] || return 0  # a step before the training has made it
    local earlier checkpoint
    earlier=$(earlier_folder) || exit 1
    if [ -z "$earlier" ] && [ -n "${RESUME_FROM:-}" ]; then
        python -m workshop.checkpoints check "$RESUME_FROM" $((NNODES * NPROC_PER_NODE)) > /dev/null || exit 1
    fi
    RUN_DIR=${earlier:-$LOG_DIR/$EXPERIMENT_NAME/$(date -u +%Y%m%d-%H%M%S)-${SLURM_JOB_ID:+j}${SLURM_JOB_ID:-p$$}}
    mkdir -p "$RUN_DIR" && [ -w "$RUN_DIR" ] || die "LOG_DIR='$LOG_DIR': cannot write there; expected a folder you may write to"
    RUN_DIR=$(cd "$RUN_DIR" && pwd)
    export RUN_DIR
    if [ -n "$earlier" ]; then
        checkpoint=$(newest_checkpoint) || exit 1
        go_on "$checkpoint"
    fi
    touch "$RUN_DIR/train.out"
    [ -f "$RUN_DIR/.launcher" ] || printf '%s\0' "$EXERCISE_DIR/$(basename "$script")" "${ARGUMENTS[@]}" > "$RUN_DIR/.launcher"
    [ ${#ON_NODES[@]} -gt 0 ] && scontrol show hostnames "$SLURM_JOB_NODELIST" | sed "s/$/ slots=$NPROC_PER_NODE/" > "$RUN_DIR/hostfile"
    echo "run folder: $RUN_DIR"
}

# For exercises without parallelism: more than one process would be several trainings in one run folder.
single_gpu() {
    [ "$((NNODES * NPROC_PER_NODE))" = 1 ] ||
        die "$(basename "$EXERCISE_DIR") trains on one GPU, but this job has $((NNODES * NPROC_PER_NODE));" \
            "expected --nodes=1 --gpus-per-node=1"
}

# For launchers that start the processes of one node only: on more, each node would train alone.
one_node() {
    [ "$NNODES" = 1 ] || die "$(basename "$script") trains on one node, but this job has $NNODES; expected --nodes=1, or a launcher" \
        "for several: $(cd "$EXERCISE_DIR" && echo *node*.slurm)"
}

# One launcher per node, which find each other at the first node's; the id keeps two jobs' worlds apart.
torchrun_options() {
    echo "--nnodes=$NNODES --nproc-per-node=$NPROC_PER_NODE --rdzv-backend=c10d" \
        "--rdzv-endpoint=$MASTER_ADDR:$MASTER_PORT --rdzv-id=${SLURM_JOB_ID:-$$}"
}

# SLURM keeps the launcher as it was at submission, but it reads the Python files only now.
warn_if_changed() {
    [ -n "${SLURM_JOB_ID:-}" ] && [ ! -f "$REPO/snapshot.json" ] || return 0
    local submitted changed
    submitted=$(scontrol show job "$SLURM_JOB_ID" | sed -n '/^ *SubmitTime=\([^ ]*\).*/{s//\1/p;q}')
    submitted=$(date -d "${submitted:-unknown}" +%s 2>/dev/null) || return 0
    # One second later: SLURM cuts off the fraction.
    changed=$(find -L ./*.py env_vars.sh ${CONFIG:+"$CONFIG"} "$REPO/workshop" -type f ! -name '*.pyc' \
        -newermt "@$((submitted + 1))" -printf '%f ' 2>/dev/null)
    [ -z "$changed" ] || echo "warning: changed since submission: ${changed}(this run uses them as they are now;" \
        "\`python -m tools submit\` keeps the code of the submission)" >&2
}

# Set once, before the first step: bash ignores a signal while it sets a trap for it.
write_down_signals() {
    trap 'told_to_end TERM' TERM
    trap 'told_to_end INT' INT
    trap 'notice' USR1
}

begin_run() {
    [ ${#LAUNCHED[@]} -gt 0 ] || write_down_signals
    LAUNCHED=("$@")
    make_run_folder
    warn_if_changed
    LAUNCHER=$(basename "${script:-}") record begin "$RUN_DIR" "$(basename "$EXERCISE_DIR")" "$CONFIG" -- "$@" || exit 1
    [ -z "$NOTICED" ] || notice
}

# Whether the training is one that saves when it is told to end (workshop/saving.py), and now knows.
tell_to_end() {
    mv "$RUN_DIR/.listens" "$RUN_DIR/.stop" 2>/dev/null || return 1  # in a trap `return` alone is the code before the trap
    echo "SIG$1: the training saves a checkpoint and ends; a second signal ends it at once"
}

# SLURM's notice. workshop/run_record.py says what the files mean.
notice() {
    NOTICED=USR1
    tell_to_end USR1 && return 0
    # Else it saves nothing or has come to its end; or it has just begun.
    rm "$RUN_DIR/.starts" 2>/dev/null || { tell_to_end USR1; return 0; }
    NOT_BEGUN=1
    echo "SIGUSR1, which SLURM sends before the time limit: the training has not begun, and does not begin"
    [ -z "$STEP" ] || kill -TERM "$STEP" 2>/dev/null
}

# Between two steps: the next one then does not start.
told_to_end() {
    RECEIVED=$1
    [ -z "$STEP" ] || stop_step
}

# SLURM kills everything a few seconds (KillWait) after its TERM: write the end down first, and again when all is over.
stop_step() {
    tell_to_end "$RECEIVED" || { kill -TERM "$STEP" 2>/dev/null && ENDED=ended; }
    record ending "$RUN_DIR" 143 "$RECEIVED" >/dev/null
}

run_step() {
    [ -z "$RECEIVED$NOT_BEGUN" ] || return 143
    local code viewer shown
    shown=$(wc -c < "$RUN_DIR/train.out")
    "$REPO/workshop/kill_with_parent.sh" TERM "$@" >> "$RUN_DIR/train.out" 2>&1 &
    STEP=$!
    # One that came while the step was being started:
    [ -z "$RECEIVED" ] || stop_step
    [ -z "$NOT_BEGUN" ] || kill -TERM "$STEP" 2>/dev/null
    tail -c +$((shown + 1)) -f --pid="$STEP" "$RUN_DIR/train.out" | python -m workshop.terminal &
    viewer=$!
    # `wait` returns early when a signal arrives, with that signal's code; the step then still has to end, or has meanwhile.
    while kill -0 "$STEP" 2>/dev/null; do wait "$STEP"; done
    wait "$STEP"; code=$?
    STEP=""
    wait $viewer 2>/dev/null
    [ "$code" -ne 0 ] || [ ! -s "$RUN_DIR/.stop" ] || code=143  # it ended before its end, as it was told
    [ -z "$NOT_BEGUN" ] || code=143
    [ $code = 0 ] || rm -f "$RUN_DIR/.starts" "$RUN_DIR/.listens"  # nobody is left
    return $code
}

# The training, again while it dies by itself and each time comes further than the time before.
run_training() {
    local code why checkpoint left=${RESTARTS:-3}
    while true; do
        run_step "$@"; code=$?
        [ "$code" -ne 0 ] && [ -z "$RECEIVED$NOT_BEGUN" ] && [ ! -s "$RUN_DIR/.stop" ] && [ $((left--)) -gt 0 ] || return $code
        why=$(record end "$RUN_DIR" "$code")  # said again by end_run, unless the training goes on
        [[ $why == failed* ]] || return $code
        checkpoint=$(newest_checkpoint) && [ -n "$checkpoint" ] && [ "$checkpoint" != "${RESUME_FROM:-}" ] || return $code
        [ -z "$RECEIVED" ] || return $code
        [ -z "$NOTICED" ] || { NOTICED="" AGAIN=1; return $code; }
        echo "$why"
        go_on "$checkpoint"
        begin_run "${LAUNCHED[@]}"
    done
}

# After the notice SLURM queues the job again where it may be (sbatch --requeue, or the site's JobRequeue); but not without
# end one whose time is over each time before its training begins.
requeue() {
    [ "$NOTICED$AGAIN" ] && [ -n "${SLURM_JOB_ID:-}" ] || return
    [ "$AGAIN" ] || [ -s "$RUN_DIR/.stop" ] || { [ "$NOT_BEGUN" ] && [ "$(grep -c "had begun" "$RUN_DIR/run.json")" -le "${RESTARTS:-3}" ]; } || return
    scontrol show job "$SLURM_JOB_ID" | grep -q "Requeue=1" || return
    echo "queued again: scontrol requeue $SLURM_JOB_ID"
    scontrol requeue "$SLURM_JOB_ID"
}

end_run() {
    trap '' TERM INT
    record end "$RUN_DIR" "$1" "${RECEIVED:-$NOTICED}" "$ENDED"
    requeue
    python -m tools summary "$RUN_DIR" || echo "evidence: $RUN_DIR"
    exit "$1"
}

# Once per node; the command starts the node's processes itself (deepspeed, torchrun).
launch() {
    begin_run "$@"
    run_training "${ON_NODES[@]}" "$REPO/workshop/with_loggers.sh" "${EMULATION[@]}" "$@"
    end_run $?
}

# Once per GPU, started by srun; torchrun does the same without SLURM.
launch_per_gpu() {
    begin_run "$@"
    local tasks=$((NNODES * NPROC_PER_NODE))
    local command=("$REPO/workshop/with_loggers.sh" "${EMULATION[@]}" torchrun $(torchrun_options) --no-python "$@")
    [ -z "${SLURM_JOB_ID:-}" ] ||
        command=(srun --ntasks=$tasks --ntasks-per-node="$NPROC_PER_NODE" --cpu-bind=none --kill-on-bad-exit=1
            "$REPO/workshop/task.sh" "$@")
    run_training "${command[@]}"
    end_run $?
}
