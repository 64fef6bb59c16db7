"""The smallest environments: that makes valid Settings, and that launch.sh hands to a supervisor."""

ENVIRONMENT = {
    **{"RUN_DIR": "/tmp/run", "EXPERIMENT_NAME": "baseline", "OUTPUT_DIR": "bloom-qa-finetuned", "MODEL_NAME": "tiny"},
    **{"TRAIN_SIZE": "500", "EVAL_SIZE": "100", "MAX_LENGTH": "512", "NUM_EPOCHS": "3", "BATCH_SIZE": "4"},
    **{"GRAD_ACC": "4", "LEARNING_RATE": "5e-5", "WEIGHT_DECAY": "0.01", "FP16": "true", "BF16": "false"},
}
LAUNCHED = {"EXERCISE_DIR": "baseline", "EXPERIMENT_NAME": "baseline", "CONFIG": ""}
