# Settings of the speed ladder. Edit them here, or set a variable in your shell before you start: the shell wins.
# A name that nothing reads is an error, so a typing mistake cannot pass silently.

# The rung: rungs/<RUNG>.env, sourced before this file, changes one thing and sources the rung below it.
export RUNG="${RUNG:-0_textbook}"

# Where the run goes: logs/<EXPERIMENT_NAME>/<run>/; OUTPUT_DIR (checkpoints, final model) lies inside that folder.
export EXPERIMENT_NAME="${EXPERIMENT_NAME:-speed-ladder}"
export LOG_DIR="${LOG_DIR:-$REPO/logs}"
export OUTPUT_DIR="${OUTPUT_DIR:-bloom-qa-finetuned}"

# The model: a hub name; or a known shape without a download (MODEL_INIT=random).
export MODEL_NAME="${MODEL_NAME:-bigscience/bloom-560m}"
export MODEL_INIT="${MODEL_INIT:-pretrained}"

# The data: a hub name, a SQuAD v1.1 JSON file, or `sample`. Enough examples for MAX_STEPS of the top rung.
export DATASET="${DATASET:-rajpurkar/squad}"
export MAX_LENGTH="${MAX_LENGTH:-512}"
export PADDING="${PADDING:-max_length}"
export TRAIN_SIZE="${TRAIN_SIZE:-8000}"
export EVAL_SIZE="${EVAL_SIZE:-64}"

# The training: short, because a rung is about speed. Effective batch = BATCH_SIZE (rows per GPU) x GRAD_ACC x GPUs.
export NUM_EPOCHS="${NUM_EPOCHS:-1}"
export MAX_STEPS="${MAX_STEPS:-40}"
export BATCH_SIZE="${BATCH_SIZE:-4}"
export GRAD_ACC="${GRAD_ACC:-4}"
export EVAL_BATCH_SIZE="${EVAL_BATCH_SIZE:-4}"
export LEARNING_RATE="${LEARNING_RATE:-5e-5}"
export WEIGHT_DECAY="${WEIGHT_DECAY:-0.01}"
export FP16="${FP16:-true}"
export BF16="${BF16:-false}"
export SAVE="${SAVE:-no}"
export GENERATE_SIZE="${GENERATE_SIZE:-0}"

# The Python environment; empty: the repository's .venv, or the python on your PATH.
export CONDA_SH_PATH="${CONDA_SH_PATH:-}"
export CONDA_ENV="${CONDA_ENV:-}"

# Weights & Biases, used where REPORT_TO=wandb; offline needs no account.
export WANDB_MODE="${WANDB_MODE:-offline}"
