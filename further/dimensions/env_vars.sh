# Settings of the other dimensions. Edit them here, or set a variable in your shell before you start: the shell wins.
# A name that nothing reads is an error, so a typing mistake cannot pass silently.

# ---- What this exercise changes ----
export EXPERIMENT_NAME="${EXPERIMENT_NAME:-dimensions}"

# simple-gpt: the custom model, in the sizes below. Or a Llama: a hub name, or a known shape with MODEL_INIT=random.
export MODEL_NAME="${MODEL_NAME:-simple-gpt}"
export MODEL_INIT="${MODEL_INIT:-pretrained}"
export VOCAB_SIZE="${VOCAB_SIZE:-50000}"
export HIDDEN_SIZE="${HIDDEN_SIZE:-2048}"
export NUM_LAYERS="${NUM_LAYERS:-8}"   # two stages for each of four ranks
export NUM_HEADS="${NUM_HEADS:-16}"
export FF_DIM="${FF_DIM:-8192}"
export SEQ_LENGTH="${SEQ_LENGTH:-512}"
export MAX_LENGTH="${MAX_LENGTH:-$SEQ_LENGTH}"
export TOKENIZER_NAME="${TOKENIZER_NAME:-HuggingFaceTB/SmolLM2-135M}"   # its 49,152 entries fit VOCAB_SIZE

# The ranks that share a row, of tp.py, cp.py, ulysses.py, pp.py, or the experts, of ep.py: 0 takes all; of fewer there are groups.
export TP_SIZE="${TP_SIZE:-0}"
export CP_SIZE="${CP_SIZE:-0}"
export SP_SIZE="${SP_SIZE:-0}"
export PP_SIZE="${PP_SIZE:-0}"
export EP_SIZE="${EP_SIZE:-0}"
# tp.py: the ranks also share the positions between the matrices. pp.py: gpipe, 1f1b or interleaved.
export SEQUENCE_PARALLEL="${SEQUENCE_PARALLEL:-false}"
export SCHEDULE="${SCHEDULE:-1f1b}"

# Long rows: activations are computed again in the backward pass; logits of LOSS_CHUNK positions at a time, 0: of all.
export GRADIENT_CHECKPOINTING="${GRADIENT_CHECKPOINTING:-false}"
export LOSS_CHUNK="${LOSS_CHUNK:-0}"
# Every token of a row is a target.
export LABELS="${LABELS:-text}"

# Twenty steps are enough to count what one of them sends. Micro-batches per step: GRAD_ACC.
export MAX_STEPS="${MAX_STEPS:-20}"
export GRAD_ACC="${GRAD_ACC:-1}"
export FP16="${FP16:-false}"
export BF16="${BF16:-true}"

# ---- As in the baseline ----
# Where the run goes: logs/<EXPERIMENT_NAME>/<run>/; SAVE=end leaves a checkpoint of the weights in OUTPUT_DIR.
export LOG_DIR="${LOG_DIR:-$REPO/logs}"
export OUTPUT_DIR="${OUTPUT_DIR:-bloom-qa-finetuned}"
export SAVE="${SAVE:-no}"

# The data: a hub name, a SQuAD v1.1 JSON file, or `sample`. PADDING: max_length (default; baseline/README.md has its cost) or dynamic.
export DATASET="${DATASET:-rajpurkar/squad}"
export PADDING="${PADDING:-max_length}"
export TRAIN_SIZE="${TRAIN_SIZE:-500}"
export EVAL_SIZE="${EVAL_SIZE:-100}"

# The training: effective batch = BATCH_SIZE x GRAD_ACC x groups of ranks with rows of their own.
export NUM_EPOCHS="${NUM_EPOCHS:-3}"
export BATCH_SIZE="${BATCH_SIZE:-4}"
export LEARNING_RATE="${LEARNING_RATE:-5e-5}"
export WEIGHT_DECAY="${WEIGHT_DECAY:-0.01}"

# The Python environment; empty: the repository's .venv, or the python on your PATH.
export CONDA_SH_PATH="${CONDA_SH_PATH:-}"
export CONDA_ENV="${CONDA_ENV:-}"
