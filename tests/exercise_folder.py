"""A repository with one tiny exercise, whose launcher leaves a run folder in a moment and reports what it was given."""

from pathlib import Path

# `fail` as an argument makes the run fail, `early` stops the launcher before it has a run folder.
LAUNCHER = """\
#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus-per-node=1
case " $* " in *" early "*) echo "error: no python on PATH" >&2; exit 1;; esac
state=completed
case " $* " in *" fail "*) state=failed;; esac
folder=$LOG_DIR/ex/$(date +%s%N)
mkdir -p "$folder"
echo "run folder: $folder"
started=$(date -u +%Y-%m-%dT%H:%M:%S.%6N+00:00)
cat > "$folder/run.json" <<END
{"exercise": "ex", "state": "$state", "start_time": "$started", "submission": "$SUBMISSION",
 "given": "$TRAIN_SIZE $GPUS_PER_NODE $PWD", "code": "$(cat "$(dirname "$0")/train.py")"}
END
[ "$state" = completed ]
"""
DECLARED = """\
scripts = { "train.py" = "any" }
[launchers."run.slurm"]
arguments = ["..."]
"""
ENV_VARS = """\
export EXPERIMENT_NAME="${EXPERIMENT_NAME:-ex}"
export TRAIN_SIZE="${TRAIN_SIZE:-500}"
export FP16="${FP16:-true}"
export BATCH_SIZE="${BATCH_SIZE:-4}"
export MODEL_NAME=tiny OUTPUT_DIR=out EVAL_SIZE=8 MAX_LENGTH=64 NUM_EPOCHS=1 GRAD_ACC=1 BF16=false
export LEARNING_RATE=1e-3 WEIGHT_DECAY=0
"""


def make_exercise(root: Path, submit: str) -> Path:
    """root/ex with a submit.txt; gives the exercise's folder."""
    exercise = root / "ex"
    (exercise / "ds_configs").mkdir(parents=True)
    (exercise / "run.slurm").write_text(LAUNCHER)
    (exercise / "env_vars.sh").write_text(ENV_VARS)
    (exercise / "train.py").write_text("old")
    (exercise / "ds_configs/zero1.json").write_text("{}")
    (exercise / "exercise.toml").write_text(DECLARED)
    (exercise / "submit.txt").write_text(submit)
    return exercise
