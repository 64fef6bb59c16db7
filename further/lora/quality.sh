#!/bin/bash
# Table 27b: a small model is trained fully, then goes on with another task, by each method, on equally many examples.
#   bash further/lora/quality.sh         a quarter of an hour on a laptop's CPU, some minutes on a GPU
#   bash further/lora/quality.sh 64      with 64 examples: does it run?
# The learning rates are the best of 2e-3, 5e-3 and 1e-2 (full), 5e-3, 1e-2 and 2e-2 (adapters).
cd "$(dirname "$0")/../.." && source quickstart.env || exit 1

# The quickstart's model, twice as wide, and its task: a question is answered by a word.
export TRAIN_SIZE=${1:-6400} GENERATE_TRAIN_SIZE=0 BASE=$(realpath -m "${LOG_DIR:-logs}")/lora-base/harbour-base
[ -f "$BASE/config.json" ] ||
    MODEL_NAME=further/lora/harbour_model EXPERIMENT_NAME=lora-base METHOD=full LEARNING_RATE=5e-3 SAVE=end OUTPUT_DIR=$BASE \
        bash further/lora/lora.slurm || exit 1

# The other task: the answer is a sentence.
export MODEL_NAME=$BASE MODEL_INIT=pretrained DATASET=harbour-sentences MAX_NEW_TOKENS=16 NUM_EPOCHS=1 BF16=true SAVE=no
for repeat in 1 2 3; do
    export REPEAT=$repeat SEED=$((41 + repeat))
    METHOD=full LEARNING_RATE=5e-3 bash further/lora/lora.slurm || exit 1
    METHOD=lora LEARNING_RATE=1e-2 bash further/lora/lora.slurm || exit 1
    METHOD=qlora LEARNING_RATE=1e-2 bash further/lora/lora.slurm || exit 1
done
