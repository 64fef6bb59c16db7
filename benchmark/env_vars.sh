# Settings of the benchmark. Edit them here, or set a variable in your shell before you start: the shell wins.
# A name that nothing reads is an error, so a typing mistake cannot pass silently.

# ---- What this exercise changes ----
# Which of several equal runs this is. It changes nothing but the record, and so makes a run of its own.
export REPEAT="${REPEAT:-1}"

export EXPERIMENT_NAME="${EXPERIMENT_NAME:-benchmark}"

# The model: GPT-2's shape with random weights, which are as fast as the trained ones.
export MODEL_NAME="${MODEL_NAME:-gpt2}"
export MODEL_INIT="${MODEL_INIT:-random}"

# TRAIN_SIZE rows of MAX_LENGTH tokens, filled with the passages of DATASET.
export MAX_LENGTH="${MAX_LENGTH:-128}"
export TRAIN_SIZE="${TRAIN_SIZE:-1600}"
export EVAL_SIZE="${EVAL_SIZE:-32}"

# MAX_STEPS steps, however many epochs that takes; large batches, none of them accumulated.
export MAX_STEPS="${MAX_STEPS:-55}"
export NUM_EPOCHS="${NUM_EPOCHS:-1}"
export BATCH_SIZE="${BATCH_SIZE:-32}"
export GRAD_ACC="${GRAD_ACC:-1}"

# Nothing after the training, and the GPU's memory and load five times a second.
export SAVE="${SAVE:-no}"
export GENERATE_SIZE="${GENERATE_SIZE:-0}"
export GPU_LOG_INTERVAL_MS="${GPU_LOG_INTERVAL_MS:-200}"

# ---- As in the baseline ----
# Where the run goes: logs/<EXPERIMENT_NAME>/<run>/; OUTPUT_DIR (checkpoints, final model) lies inside that folder.
export LOG_DIR="${LOG_DIR:-$REPO/logs}"
export OUTPUT_DIR="${OUTPUT_DIR:-bloom-qa-finetuned}"

# The data: a hub name, a SQuAD v1.1 JSON file, or `sample`. PADDING: max_length (default; baseline/README.md has its cost) or dynamic.
export DATASET="${DATASET:-rajpurkar/squad}"
export PADDING="${PADDING:-max_length}"

# The training: effective batch = BATCH_SIZE (per GPU) x GRAD_ACC x number of GPUs.
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
