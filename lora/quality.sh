#!/bin/bash
# Table 27b: the quickstart's model is trained fully, then goes on with another task, by each method, on equally many examples.
#   bash lora/quality.sh         about five minutes on a laptop's CPU, less on a GPU
#   bash lora/quality.sh 64      with 64 examples: does it run?
# Learning rates: of 1e-2 and 3e-2 the better one of each method. The answers of DATASET=harbour-sentences are longer.
cd "$(dirname "$0")/.." && source quickstart.env || exit 1

export TRAIN_SIZE=${1:-6400} GENERATE_TRAIN_SIZE=0 MODEL=$(realpath -m "${LOG_DIR:-logs}")/lora-base/harbour-base
[ -f "$MODEL/config.json" ] ||
    EXPERIMENT_NAME=lora-base METHOD=full SAVE=end OUTPUT_DIR=$MODEL bash lora/lora.slurm || exit 1

export MODEL_NAME=$MODEL MODEL_INIT=pretrained DATASET=harbour-sentences MAX_NEW_TOKENS=16 NUM_EPOCHS=1 BF16=true SAVE=no
for repeat in 1 2 3; do
    export REPEAT=$repeat SEED=$((41 + repeat))
    METHOD=full LEARNING_RATE=1e-2 bash lora/lora.slurm || exit 1
    METHOD=lora LEARNING_RATE=3e-2 bash lora/lora.slurm || exit 1
    METHOD=qlora LEARNING_RATE=3e-2 bash lora/lora.slurm || exit 1
done
