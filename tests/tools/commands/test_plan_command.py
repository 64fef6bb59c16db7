"""`python -m tools plan` on the exercises' own lines and on the reference runs; the simulation is the real one."""

import json

import pytest

from tests.launching import REPO
from tools.__main__ import main
from tools.logs.runs import find_runs
from tools.plan import evaluate, overhead
from tools.plan.lines import workload_of
from tools.submit.submissions import exercise_files, read

REFERENCE = REPO / "logs" / "reference"


def test_line_is_planned_from_its_launchers_configuration_and_its_exercises_settings(capsys) -> None:
    line = "MODEL_INIT=random MODEL_NAME=tiny --gpus-per-node=2 deepspeed-multi-gpu/deepspeed.slurm"
    assert main(["plan", line, "--format", "json", "--gpu", "a100-40gb"]) == 0
    answer = json.loads(capsys.readouterr().out)
    (planned,) = answer["runs"]
    assert answer["gpu"] == "a100-40gb"
    assert planned["verdict"] == "fits"
    # No configuration is named: the launcher takes ds_config.json, ZeRO-2.
    assert {"weights", "master weights", "activations"} <= planned["terms_mib"].keys()
    peaks = planned["peak_allocated_mib"], planned["peak_reserved_mib"], planned["nvidia_smi_mib"]
    assert all(peak["least"] <= peak["expected"] <= peak["largest"] for peak in peaks)
    assert peaks[0]["expected"] == pytest.approx(sum(planned["terms_mib"].values()), abs=1)


def test_every_line_of_every_exercise_is_understood() -> None:
    for file in exercise_files([]):
        for line in read(file, {}):
            workload = workload_of(line)
            if file.parent.name == "by-hand" or line.launcher == "peers.slurm":
                assert workload is None
            else:
                assert workload.shape["max_length"] >= 64, line.place


def test_run_that_ran_out_of_memory_is_said_not_to_fit_and_the_completed_one_to_fit() -> None:
    found = evaluate.cases(find_runs(REFERENCE / "h200x2", experiment="deepspeed-zero3-offload"))
    verdicts = {case.ran_out: case.predicted.verdict("h200") for case in found}
    assert verdicts == {True: "does not fit", False: "fits"}
    (completed,) = (case for case in found if not case.ran_out)
    assert abs(completed.errors_percent["peak_allocated_mib"]) < 1


def test_check_says_each_familys_error(capsys) -> None:
    assert main(["plan", "--check", str(REFERENCE / "h200x1"), "--format", "json"]) == 0
    metrics = json.loads(capsys.readouterr().out)["families"]["baseline"]
    assert metrics["peak_allocated_mib"]["mean_error_percent"] < 0.5
    assert set(metrics) == set(evaluate.METRICS)


def test_a_configuration_is_predicted_without_its_own_measurement() -> None:
    def point(key: str, reserved_mib: float) -> overhead.Measured:
        return overhead.Measured(key, "ddp", True, 1000, reserved_mib, reserved_mib + 500)

    points = [point("a", 1100), point("b", 1300)]
    fitted = overhead.fit(one for one in points if one.key != "a")
    assert overhead.of(fitted, "ddp", True).reserved == (1.3, 1.3, 1.3)
    assert overhead.of(fitted, "fsdp2", True).beside == (500, 500, 500)  # no run of it: those on several GPUs


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "expected an exercise, a line in quotes, or --list FILE"),
        (["nothere"], "no folder with a submit.txt"),
        (["MAX_LENGTH=no fsdp/multi_gpu.slurm"], "MAX_LENGTH='no': expected a whole number"),
        (["MODEL_INIT=random MODEL_NAME=bloom-9b fsdp/multi_gpu.slurm"], "expected a shape out of bloom-560m"),
        (["--check", "logs/nothere"], "no such folder"),
    ],
)
def test_bad_input_is_named_with_what_is_expected(words: list[str], says: str, capsys) -> None:
    assert main(["plan", *words]) == 2
    assert says in capsys.readouterr().err
