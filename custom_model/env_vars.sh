# Settings of the custom model. Edit them here, or set a variable in your shell before you start: the shell wins.
# A name that nothing reads is an error, so a typing mistake cannot pass silently.

# ---- What this exercise changes ----
export EXPERIMENT_NAME="${EXPERIMENT_NAME:-custom_model}"

# The model's sizes. The tokenizer must not have more entries than VOCAB_SIZE (this one has 49,152).
export VOCAB_SIZE="${VOCAB_SIZE:-50000}"
export HIDDEN_SIZE="${HIDDEN_SIZE:-2048}"
export NUM_LAYERS="${NUM_LAYERS:-3}"
export NUM_HEADS="${NUM_HEADS:-16}"
export FF_DIM="${FF_DIM:-8192}"
export SEQ_LENGTH="${SEQ_LENGTH:-512}"
export MAX_LENGTH="${MAX_LENGTH:-$SEQ_LENGTH}"
export TOKENIZER_NAME="${TOKENIZER_NAME:-HuggingFaceTB/SmolLM2-135M}"

# Whether FSDP shards it; single_node.slurm sets false.
export USE_FSDP="${USE_FSDP:-true}"

# The fabric check of multi_node.slurm: bus bandwidth (GB/s) of the all-reduce of FABRIC_MAX_MIB over all GPUs, below
# which the job ends with exit code 46. 5 suits nodes on fast Ethernet; RESULTS.md has values for other fabrics.
# A network that does not answer ends it after FABRIC_TIMEOUT_S=600 seconds; set that in your shell.
export FABRIC_MIN_GB_PER_S="${FABRIC_MIN_GB_PER_S:-5}"
export FABRIC_MAX_MIB="${FABRIC_MAX_MIB:-4096}"
export FABRIC_ITERATIONS="${FABRIC_ITERATIONS:-50}"
export FABRIC_WARMUP="${FABRIC_WARMUP:-20}"

# ---- As in the baseline ----
# Where the run goes: logs/<EXPERIMENT_NAME>/<run>/; OUTPUT_DIR (checkpoints, final model) lies inside that folder.
export LOG_DIR="${LOG_DIR:-$REPO/logs}"
export OUTPUT_DIR="${OUTPUT_DIR:-bloom-qa-finetuned}"

# The data: a hub name, a SQuAD v1.1 JSON file, or `sample`. PADDING: max_length (default; baseline/README.md has its cost) or dynamic.
export DATASET="${DATASET:-rajpurkar/squad}"
export PADDING="${PADDING:-max_length}"
export TRAIN_SIZE="${TRAIN_SIZE:-500}"
export EVAL_SIZE="${EVAL_SIZE:-100}"

# The training: effective batch = BATCH_SIZE (per GPU) x GRAD_ACC x number of GPUs.
export NUM_EPOCHS="${NUM_EPOCHS:-3}"
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
