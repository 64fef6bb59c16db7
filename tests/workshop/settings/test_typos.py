"""A mistyped setting is named with the one that was meant; variables that usual shells have are left alone."""

import re

import pytest

from workshop.record.errors import InputError
from workshop.settings.typos import check_shell, setting_names

MISSES = dict(
    re.findall(
        r"(\w+):(\w+)",
        """
BATCHSIZE:BATCH_SIZE BATHC_SIZE:BATCH_SIZE batch_size:BATCH_SIZE PER_DEVICE_BATCH_SIZE:BATCH_SIZE
GRADIENT_ACCUMULATION_STEPS:GRAD_ACC LEARNIG_RATE:LEARNING_RATE EPOCHS:NUM_EPOCHS GRAD_ACC_STEPS:GRAD_ACC
SUBSET_SIZE:TRAIN_SIZE MAX_SEQ_LENGTH:MAX_LENGTH MAX_STEP:MAX_STEPS MODEL_INT:MODEL_INIT MAX_LENGHT:MAX_LENGTH
FP_16:FP16 OPTIMISER:OPTIMIZER LOGDIR:LOG_DIR GPU_PER_NODE:GPUS_PER_NODE RUNGS:RUNG HIDDENSIZE:HIDDEN_SIZE
FABRIC_MIN_GB_PER_SEC:FABRIC_MIN_GB_PER_S
""",
    )
)
# Of login shells, schedulers, MPI, compilers and other people's projects: as near to a setting as they come.
USUAL = """
HOME PATH HOST LOGNAME MODULEPATH LMOD_DIR CONDA_ENVS_PATH PROJECT DATA DATADIR DATA_DIR GROUP STORE WORK
SLURM_NNODES SLURM_GPUS SLURM_GPUS_ON_NODE SLURM_GPUS_PER_NODE SLURM_CPUS_PER_TASK PBS_NODEFILE NSLOTS OMP_NUM_THREADS
MKL_NUM_THREADS NUM_THREADS NODE NODES NODE_NAME NNODES NPROC NPROC_PER_NODE WORLD_SIZE RANK LOCAL_RANK GPUS GPU_IDS
CUDA_VISIBLE_DEVICES NCCL_DEBUG COMPILER CPUS_PER_NODE WORKERS NUM_WORKERS NUM_NODES NUM_GPUS NUM_PROCS PADDING_SIDE
MODEL MODEL_PATH MODEL_DIR MODELS OPENAI_MODEL_NAME BATCH DATASET_DIR EPOCH LR LABEL LOG_LEVEL LOGLEVEL LOG_FILE
TRAIN TRAIN_DIR EVAL RUN_ID RUN_NAME SAVE_DIR CONFIG_FILE CONFIG_PATH CONFIG_DIR OUT OUTPUT OUT_DIR NAME TOKENIZER
WANDB_PROJECT HF_HOME TORCH_HOME TOKENIZERS_PARALLELISM
""".split()  # noqa: SIM905 a list would be a page


@pytest.mark.parametrize(("typed", "meant"), MISSES.items())
def test_K1_mistyped_setting_is_named_with_the_one_meant(typed: str, meant: str) -> None:
    with pytest.raises(InputError) as error:
        check_shell({typed: "2", "HOME": "/root"})
    assert str(error.value).startswith(f"your shell sets {typed}=2 (did you mean {meant}?): nothing reads it")


def test_variables_of_usual_shells_and_what_the_exercises_read_are_left_alone() -> None:
    check_shell(dict.fromkeys([*USUAL, *setting_names()], "x"))
