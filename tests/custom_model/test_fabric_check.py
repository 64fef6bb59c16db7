"""The verdict on a fabric: measured in one world, and fast enough for the threshold; 44 and 46 are told apart."""

import subprocess
from pathlib import Path

import pytest

from custom_model.fabric_check import judge, row
from tests.launching import PATH, REPO, program, tiny_profile
from workshop.run_folder import nccl_log
from workshop.run_folder.collectives import bus_factor

RANKS = "#  Rank  0 Group  0 Pid  1 on node1 device  0 X\n#  Rank  1 Group  0 Pid  2 on node2 device  0 X\n"
UNNAMED = RANKS + row("all_reduce", 4 * 2**20, 0.0005, 2) + "\n"
FAST = f"# Collective test starting: all_reduce_perf\n{UNNAMED}"


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (FAST, 0, "Measured AllReduce BW: 8.39 GB/s\n"),
        (FAST, 46, "error: fabric check: found 8.39 GB/s, expected FABRIC_MIN_GB_PER_S=9 or more"),
        (RANKS, 44, "found no line of results, expected an all-reduce"),
        (FAST.replace("all_reduce", "all_gather"), 44, "found only all_gather, expected an all-reduce"),
        (RANKS + row("all_reduce", 1024, 1e-3, 2)[:-20] + "\n", 44, "cannot be read"),
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


def test_bus_bandwidth_factors_are_those_of_nccl_tests() -> None:
    assert bus_factor("all-reduce", 8) == 2 * 7 / 8
    assert bus_factor("all-gather", 8) == bus_factor("reduce-scatter", 8) == 7 / 8


# A stand-in for nccl-tests built with MPI, and for the mpirun that starts it as one world or, without MPI, as several.
PERF = """\
echo "# $0 $*" >> "$CALLS"
printf '%s' "$FAKE_OUTPUT"
"""


def check_fabric(folder: Path, output: str) -> subprocess.CompletedProcess[str]:
    """The check takes tests that are linked with MPI; ldd, mpirun and the tests are stand-ins here."""
    programs = {
        "ldd": '[ -n "$1" ] && echo "libmpi.so.40"',
        "mpirun": '[ "$1 $2" = "-np 2" ] && shift 2 && exec "$@"',
        **{f"{name}_perf": PERF for name in ("all_reduce", "all_gather", "reduce_scatter")},
    }
    for name, text in programs.items():
        program(folder / name, text)
    script = "cd custom_model; source ../workshop/launch.sh; start_run;"
    script += "check_first python -m custom_model.fabric_check torchrun;"
    script += "launch bash -c 'echo trains; echo finished >> $RUN_DIR/.control'"
    variables = tiny_profile() | {"PATH": f"{folder}:{PATH}", "GPUS_PER_NODE": "2", "LOG_DIR": str(folder / "logs")}
    variables |= {"CALLS": str(folder / "calls"), "FAKE_OUTPUT": output}
    return subprocess.run(["bash", "-c", script], cwd=REPO, env=variables, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(("output", "code"), [(UNNAMED, 0), (UNNAMED.replace("Rank  1", "Rank  0"), 44)])
def test_K12_nccl_tests_are_started_by_mpi_and_their_world_is_counted(tmp_path: Path, output: str, code: int) -> None:
    job = check_fabric(tmp_path, output)
    assert job.returncode == code, job.stdout + job.stderr
    assert ("trains" in job.stdout) == (code == 0)
    assert "all_reduce_perf -b 1M -e 4M -f 4 -g 1 -n 5 -w 2" in (tmp_path / "calls").read_text()
    (log,) = tmp_path.glob("logs/custom_model/*/nccl.log")
    assert list(nccl_log.read(log).collectives) == ["all_reduce", "all_gather", "reduce_scatter"]
