"""A participant's own table, as further/models/README.md says: one variable, and the training ends well."""

from pathlib import Path

from tests.launching import REPO, only_run, record, run, tiny_profile

SHORT = {"MAX_STEPS": "2", "SAVE": "no", "MAX_LENGTH": "64", "OMP_NUM_THREADS": "1"}


def test_own_csv_trains_with_one_variable(tmp_path: Path) -> None:
    assert "    DATASET=boats.csv bash baseline/baseline.slurm\n" in (REPO / "further/models/README.md").read_text()
    rows = [f"Who owns boat {number}?, Ann owns boat {number}.\n" for number in range(20)]
    (tmp_path / "boats.csv").write_text("prompt,completion\n" + "".join(rows))
    environment = tiny_profile() | SHORT | {"LOG_DIR": str(tmp_path / "logs"), "DATASET": "boats.csv:train[:50%]"}
    launcher = REPO / "fsdp/single_gpu.slurm"  # as the baseline's, which other tests run
    job = run("bash", launcher, cwd=tmp_path, env=environment)
    assert "boats.csv:train[:50%] is trained on without SQuAD's questions: no answers are scored" in job.stdout
    assert "has 10 examples, fewer than TRAIN_SIZE + EVAL_SIZE = 160: 8 to train on, 2 held out" in job.stdout
    facts = record(only_run(tmp_path / "logs", "fsdp"))
    assert (facts["state"], facts["train_examples"], facts["eval_examples"]) == ("completed", 8, 2)
