# Settings of the speed ladder. Edit them here, or set a variable in your shell before you start: the shell wins.
# A name that nothing reads is an error, so a typing mistake cannot pass silently.

# ---- What this exercise changes ----
# The rung: rungs/<RUNG>.env changes one thing and sources the rung below it. What it sets comes before this file's.
export RUNG="${RUNG:-0_textbook}"
[ -f "rungs/$RUNG.env" ] ||
    { echo "error: RUNG='$RUNG': no such rung; expected one of:" $(ls rungs | sort -V | sed 's/\.env$//') >&2; exit 1; }
source "rungs/$RUNG.env"

export EXPERIMENT_NAME="${EXPERIMENT_NAME:-speed-ladder}"

# The rungs' switches (README.md), here as the library does it.
export PACKING="${PACKING:-false}"
export ATTENTION="${ATTENTION:-eager}"
export LOSS="${LOSS:-full}"
export LOSS_CHUNK="${LOSS_CHUNK:-4096}"
export LOGITS="${LOGITS:-all}"
export STREAM="${STREAM:-fp32}"
export COMPILE="${COMPILE:-false}"
export DATA_WORKERS="${DATA_WORKERS:-0}"
export FLOAT8="${FLOAT8:-none}"

# Short, because a rung is about speed; with enough examples for MAX_STEPS of the top rung.
export TRAIN_SIZE="${TRAIN_SIZE:-8000}"
export EVAL_SIZE="${EVAL_SIZE:-64}"
export NUM_EPOCHS="${NUM_EPOCHS:-1}"
export MAX_STEPS="${MAX_STEPS:-40}"
export EVAL_BATCH_SIZE="${EVAL_BATCH_SIZE:-4}"

# Nothing after the training.
export SAVE="${SAVE:-no}"
export GENERATE_SIZE="${GENERATE_SIZE:-0}"

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

# The training: effective batch = BATCH_SIZE (per GPU) x GRAD_ACC x number of GPUs.
export BATCH_SIZE="${BATCH_SIZE:-4}"
export GRAD_ACC="${GRAD_ACC:-4}"
export LEARNING_RATE="${LEARNING_RATE:-5e-5}"
export WEIGHT_DECAY="${WEIGHT_DECAY:-0.01}"
export FP16="${FP16:-true}"
export BF16="${BF16:-false}"

# The Python environment; empty: the repository's .venv, or the python on your PATH.
export CONDA_SH_PATH="${CONDA_SH_PATH:-}"
export CONDA_ENV="${CONDA_ENV:-}"

# Weights & Biases: REPORT_TO=wandb sends the figures there, too; offline needs no account (baseline/README.md).
export REPORT_TO="${REPORT_TO:-none}"
export WANDB_MODE="${WANDB_MODE:-offline}"
