# Settings of the preemption drill. Edit them here, or set a variable in your shell before you start: the shell wins.
# A name that nothing reads is an error, so a typing mistake cannot pass silently.

# ---- What this exercise changes ----
export EXPERIMENT_NAME="${EXPERIMENT_NAME:-resilience}"

# What goes wrong (drill.py), and after which step.
export FAULT="${FAULT:-none}"
export FAULT_STEP="${FAULT_STEP:-25}"

# A checkpoint every SAVE_STEPS steps, the two newest stay. SAVE_STEPS=0 is what a long training would take: so seldom that
# saving costs 1 % of the time at most.
export SAVE="${SAVE:-steps}"
export SAVE_STEPS="${SAVE_STEPS:-10}"
export SAVE_LIMIT="${SAVE_LIMIT:-2}"

# Short, because a drill is about its losses going on; no answers at the end.
export NUM_EPOCHS="${NUM_EPOCHS:-1}"
export MAX_STEPS="${MAX_STEPS:-40}"
export EVAL_SIZE="${EVAL_SIZE:-16}"
export GENERATE_SIZE="${GENERATE_SIZE:-0}"
export GRAD_ACC="${GRAD_ACC:-1}"

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

# The training: effective batch = BATCH_SIZE (per GPU) x GRAD_ACC x number of GPUs.
export BATCH_SIZE="${BATCH_SIZE:-4}"
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
