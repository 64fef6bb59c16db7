# Settings of the FSDP exercise. Edit them here, or set a variable in your shell before you start: the shell wins.
# A name that nothing reads is an error, so a typing mistake cannot pass silently.

# ---- What this exercise changes ----
export EXPERIMENT_NAME="${EXPERIMENT_NAME:-fsdp}"

# Small micro-batches: so several GPUs have something to do with 500 examples.
export NUM_EPOCHS="${NUM_EPOCHS:-5}"
export BATCH_SIZE="${BATCH_SIZE:-1}"

# Weights & Biases into the run's folder. REPORT_TO=none: the local files only, which have every figure.
export REPORT_TO="${REPORT_TO:-wandb}"

# ---- As in the baseline ----
# Where the run goes: logs/<EXPERIMENT_NAME>/<run>/; OUTPUT_DIR (checkpoints, final model) lies inside that folder.
export LOG_DIR="${LOG_DIR:-$REPO/logs}"
export OUTPUT_DIR="${OUTPUT_DIR:-bloom-qa-finetuned}"

# The model: a hub name; or a known shape without a download (MODEL_INIT=random).
export MODEL_NAME="${MODEL_NAME:-bigscience/bloom-560m}"
export MODEL_INIT="${MODEL_INIT:-pretrained}"

# The data: a hub name, a SQuAD v1.1 JSON file, or `sample`. PADDING: max_length (default; baseline/README.md has its cost) or dynamic.
export DATASET="${DATASET:-rajpurkar/squad}"
export MAX_LENGTH="${MAX_LENGTH:-512}"
export PADDING="${PADDING:-max_length}"
export TRAIN_SIZE="${TRAIN_SIZE:-500}"
export EVAL_SIZE="${EVAL_SIZE:-100}"

# The training: effective batch = BATCH_SIZE (per GPU) x GRAD_ACC x number of GPUs.
export GRAD_ACC="${GRAD_ACC:-4}"
export LEARNING_RATE="${LEARNING_RATE:-5e-5}"
export WEIGHT_DECAY="${WEIGHT_DECAY:-0.01}"
export FP16="${FP16:-true}"
export BF16="${BF16:-false}"

# The Python environment; empty: the repository's .venv, or the python on your PATH.
export CONDA_SH_PATH="${CONDA_SH_PATH:-}"
export CONDA_ENV="${CONDA_ENV:-}"

# Weights & Biases: REPORT_TO is above; offline needs no account.
export WANDB_MODE="${WANDB_MODE:-offline}"
