# Settings of the baseline. Edit them here, or set a variable in your shell before you start: the shell wins.
# A name that nothing reads is an error, so a typing mistake cannot pass silently.

# Where the run goes: logs/<EXPERIMENT_NAME>/<run>/; OUTPUT_DIR (checkpoints, final model) lies inside that folder.
export EXPERIMENT_NAME="${EXPERIMENT_NAME:-baseline}"
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

# ---- More settings of every exercise with a Trainer, with their defaults: set them in your shell, or here without the # ----
#export TOKENIZER_NAME=             # a hub name or `sample`; empty: the model's own
#export EVAL_DATASET=               # as DATASET, to evaluate on; empty: DATASET's own held-out part
#export IGNORE_KEYS=                # keys of rows and turns to take without effect: toxic,redacted
#export LABELS=answer               # or text: the loss is on the whole row, as in older material
#export MAX_STEPS=0                 # stop after so many steps; 0: after NUM_EPOCHS
#export EVAL_BATCH_SIZE=0           # per GPU; 0: as BATCH_SIZE
#export LR_WARMUP_STEPS=0           # the learning rate rises over these steps, then falls to 0
#export OPTIMIZER=adamw_torch_fused # or adamw_torch, adamw_torch_8bit
#export WEIGHTS=fp32                # or bf16: what the optimizer updates, its gradients and moments; small updates are lost
#export NAN_FILTER=true             # the Trainer waits for each loss to keep NaN and infinity out of the log
#export GRADIENT_CHECKPOINTING=false # less memory, a second forward pass
#export SEED=42                     # of the weights, where they are random, and of the order of the examples
#export RESUME_FROM=                # a checkpoint folder to go on from
#export HANG_TIMEOUT_S=1800        # a rank without progress for so long has hung; 0: never
#export SAVE=steps                  # checkpoints and the final model; epoch: one per epoch; end: the model only; no: nothing
#export SAVE_STEPS=0                # of SAVE=steps; 0: so seldom that saving takes 1 % of the time
#export SAVE_LIMIT=2                # checkpoints to keep, the newest ones; 0: all
#export GENERATE_SIZE=100           # held-out questions to answer for exact match and F1; 0: none
#export GENERATE_TRAIN_SIZE=0       # training questions to answer too
#export GENERATE_BEFORE=false       # answer before the training too
#export GENERATE_STEPS=0            # and after every so many steps; 0: not
#export MAX_NEW_TOKENS=32           # of an answer
#export PROFILE=                    # FIRST:LAST, the steps to look at closely
#export TIMERS=false                # DeepSpeed prints the parts of each step
#export REPEAT=1                    # a table shows the median over runs that differ in this number only
#export GPU_LOG_INTERVAL_MS=1000    # how often nvidia-smi is asked
