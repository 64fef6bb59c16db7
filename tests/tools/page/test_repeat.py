import shlex

from tools.logs.runs import read_run
from tools.page.repeat import command
from tools.submit.submissions import read_argument

SETTINGS = {"batch_size": 8, "fp16": False, "experiment_name": "mine", "train_size": 500}


def repeated(make_run, **record) -> str:
    return command(read_run(make_run("r1", record)))


def test_run_of_a_submission_is_repeated_by_its_line(make_run):
    line = "DATASET='my data.json' --gpus-per-node=2 multi_gpu.slurm fsdp_configs/shard_grad_op.json"
    found = repeated(make_run, exercise="fsdp", submission=line)
    assert found == f"DATASET='my data.json' sbatch --gpus-per-node=2 fsdp/{line.split('=2 ')[1]}"


def test_run_started_by_hand_is_repeated_with_what_differs_from_the_exercise_s_settings(make_run):
    record = {"exercise": "fsdp", "config": "shard_grad_op", "gpus_per_node": 2, "launcher": "multi_gpu.slurm"}
    found = repeated(make_run, **record, settings=SETTINGS)
    shape = "--nodes=1 --gpus-per-node=2"
    assert found == f"BATCH_SIZE=8 FP16=false sbatch {shape} fsdp/multi_gpu.slurm fsdp_configs/shard_grad_op.json"
    line = " ".join(word for word in shlex.split(found) if word != "sbatch")
    assert read_argument(line, {}).launcher == "multi_gpu.slurm"


def test_where_the_record_says_too_little_there_is_no_command(make_run):
    assert repeated(make_run, exercise="fsdp", settings=SETTINGS) == ""  # which of its launchers?


def test_record_cannot_have_a_script_of_its_own_sourced(make_run, tmp_path):
    (tmp_path / "evil").mkdir()
    (tmp_path / "evil" / "x.slurm").touch()
    (tmp_path / "evil" / "env_vars.sh").write_text(f"touch {tmp_path}/ran\n")
    elsewhere = f"../../../../../../../..{tmp_path}/evil"
    assert repeated(make_run, exercise=elsewhere, launcher="x.slurm", settings=SETTINGS) == ""
    assert not (tmp_path / "ran").exists()
