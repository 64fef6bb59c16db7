"""The verdict on a fabric: measured in one world, and fast enough for the threshold; 44 and 46 are told apart."""

from pathlib import Path

import pytest

from custom_model.fabric_check import judge, row
from tests.launching import only_run, program, record, run, tiny_profile

RANKS = "#  Rank  0 Group  0 Pid  1 on node1 device  0 X\n#  Rank  1 Group  0 Pid  2 on node2 device  0 X\n"
FAST = f"# Collective test starting: all_reduce_perf\n{RANKS}{row(4 * 2**20, 0.0005, 2)}\n"


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (FAST, 0, "Measured AllReduce BW: 8.39 GB/s\n"),
        (FAST, 46, "error: fabric check: found 8.39 GB/s, expected FABRIC_MIN_GB_PER_S=9 or more"),
        (RANKS, 44, "found no line of an all-reduce, expected one"),
        (FAST.replace("all_reduce", "all_gather"), 44, "found no line of an all-reduce, expected one"),
        (RANKS + row(1024, 1e-3, 2)[:-20] + "\n", 44, "cannot be read"),
        (FAST.replace("Rank  1", "Rank  0"), 44, "found a world of 1 rank, expected 2"),
        (None, 44, "cannot be read"),
    ],
    ids=["fast", "slow", "no_figure", "no_all_reduce", "damaged", "two_worlds", "no_log"],
)
def test_K12_verdict_is_about_a_measurement_of_one_world(
    tmp_path: Path, capsys: pytest.CaptureFixture, text: str | None, code: int, said: str
) -> None:
    if text:
        (tmp_path / "nccl.log").write_text(text)
    assert judge(tmp_path / "nccl.log", 2, 9 if code == 46 else 5) == code
    assert said in "".join(capsys.readouterr())


def test_K12_training_does_not_start_after_a_slow_measurement(tmp_path: Path) -> None:
    """After a fast one it does: test_custom_launchers.py and tests/slurm."""
    program(tmp_path / "torchrun", 'printf "%s" "$FAKE_OUTPUT" > "$RUN_DIR/nccl.log"')
    script = "cd custom_model; source ../workshop/launch.sh; start_run;"
    script += f"export CHECK_FIRST='python -m custom_model.fabric_check {tmp_path}/torchrun';"
    script += "exec python -m workshop.job.supervisor bash -c 'echo trains; echo finished >> $RUN_DIR/.control'"
    environ = tiny_profile() | {"GPUS_PER_NODE": "2", "LOG_DIR": str(tmp_path / "logs"), "FAKE_OUTPUT": FAST}
    job = run("bash", "-c", script, "multi_gpu.slurm", env=environ, code=46, FABRIC_MIN_GB_PER_S="9")
    assert "trains" not in job.stdout
    found = record(only_run(tmp_path / "logs", "custom_model"))
    assert (found["exit_code"], found["state"]) == (46, "failed")
    assert found["reason"].startswith("error: fabric check: ")
