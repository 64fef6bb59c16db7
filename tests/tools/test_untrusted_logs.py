"""Other people's logs folders: no file outside them is read, nothing waits, and no terminal is steered by them."""

import json
import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tools.__main__ import main
from tools.errors import LogError
from tools.logs import memory_logs, trainer_log
from tools.logs.run import read_steps
from tools.logs.runs import find_runs, read_run
from tools.page.entries import command
from workshop.run_folder import causes, collectives, nccl_log
from workshop.run_folder.safe_open import LARGEST_BYTES

SECRET = "ssh-ed25519 AAAAC3Nz of the instructor"
NASTY = "\x1b[2J\x1b]0;owned\x07\r\x9b31m\u202eevil\u2066\n| PASS | \ufeff$\\frac{"
HARMFUL = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
FILES = ("train.out", "steps.csv", "gpu_memory.csv", "cpu_memory.txt", "nccl.log", "collectives.csv", "summary.json")


@pytest.fixture
def printed(logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> Callable[[], str]:
    """What all commands that read logs print about the folder."""

    def run() -> str:
        for words in (
            ("runs",),
            ("runs", "--figures", "peak_gpu_mib,peak_cpu_mib,train_loss,optimizer_steps,all_reduces,optimizer_ms"),
            ("runs", "--format", "csv"),
            ("fill", "baseline"),
            ("plot", "baseline", "--output", str(tmp_path / "plot.png")),
        ):
            assert main([*words, "--logs", str(logs)]) in (0, 2, 3), words
        output = capsys.readouterr()
        return output.out + output.err

    return run


def test_links_out_of_the_logs_are_not_followed_and_pipes_not_waited_for(
    make_run, logs: Path, tmp_path: Path, printed
) -> None:
    outside = tmp_path / "home"
    outside.mkdir()
    (outside / "key").write_text(SECRET + "\nValueError: " + SECRET + "\n")
    (outside / "steps.csv").write_text(f"{SECRET}\n" * 3)
    (outside / "run.json").write_text(json.dumps({"exercise": SECRET, "state": "completed", "start_time": "2026"}))
    whole = make_run("r1", start_time="2026-11-21T08:00:00+00:00")
    for number, target in enumerate((outside / "key", "/dev/zero", "/dev/stdin", "pipe"), 2):
        folder = make_run(f"r{number}", {"state": "failed", "settings": {"timers": True}})
        for name in FILES:
            (folder / name).unlink(missing_ok=True)
            os.mkfifo(folder / name) if target == "pipe" else (folder / name).symlink_to(target)
    (logs / "linked").symlink_to(outside)
    (make_run("r9") / "run.json").unlink()
    (logs / "baseline" / "r9" / "run.json").symlink_to(outside / "run.json")
    (logs / "latest").symlink_to(whole)  # within the logs: it is in the list already
    text = printed()
    assert SECRET not in text
    states = {run.folder.name: run.state for run in find_runs(logs)}
    assert states == {"r1": "completed", "r9": "unreadable", "linked": "unreadable"} | dict.fromkeys(
        ("r2", "r3", "r4", "r5"), "failed"
    )
    assert "found 'a symbolic link', expected a folder; name one that lies elsewhere with --logs" in text
    assert (outside / "key").read_text().startswith(SECRET)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look everywhere")
def test_folder_without_permission_costs_itself(make_run, logs: Path) -> None:
    make_run("r1")
    closed = make_run("r2", {"experiment": "theirs"}).parent
    closed.chmod(0)
    try:
        states = {run.folder.name: run.state for run in find_runs(logs)}
    finally:
        closed.chmod(0o755)
    assert states == {"r1": "completed", "theirs": "unreadable"}


@pytest.mark.parametrize("name", ["/etc/passwd", "../../secret", "..", "*", "zero2/../..", "a b; rm -rf ~", "$(id)"])
def test_names_in_a_record_are_no_paths(make_run, name: str) -> None:
    for key in ("exercise", "config"):
        run = read_run(make_run(key, {key: name}))
        assert run.state == "unreadable"
        assert f"{key} '{name}'" in run.reason and "expected a name without a folder" in run.reason


def test_control_characters_of_logs_records_and_names_reach_no_terminal(
    make_run, logs: Path, capsys: pytest.CaptureFixture, printed
) -> None:
    record = {"state": "failed", "reason": NASTY, "cause": NASTY, "precision": NASTY, "experiment": NASTY}
    make_run("r1", {"model": {"name": NASTY}, "precision": NASTY, "gpu_names": [NASTY], "host": NASTY})
    make_run("r2", record | {"experiment": "baseline"})
    make_run("r3", {"state": "failed"}, **{"train.out": f"RuntimeError: {NASTY}", "gpu_memory.csv": NASTY})
    make_run("r4" + NASTY.replace("/", ""))
    make_run("r5", {"config": NASTY})
    make_run("r6", **{f"gpu_memory-{NASTY.replace('/', '')}.csv": "no log\nat all\n", "steps.csv": NASTY * 3})
    (logs / "baseline" / "r7").mkdir()
    (logs / "baseline" / "r7" / "run.json").write_bytes(b'{"exercise": "\xff\x1b[2J", \x00')
    text = printed()
    for name in ("r1", "r2", "r3", "r6"):
        main(["summary", str(logs / "baseline" / name)])
    text += capsys.readouterr().out
    assert not HARMFUL.search(text), HARMFUL.search(text)
    assert "\n| PASS |" not in text
    assert r"\x1b[2J" in text


@pytest.mark.parametrize("submission", ["X;id=1 baseline.slurm", "A=1 $(id)=2 baseline.slurm", "A=1 `id`.slurm;id"])
def test_command_to_repeat_a_run_runs_nothing_else(make_run, submission: str) -> None:
    run = read_run(make_run("r1", {"submission": submission}))
    words = shlex.split(command(run), posix=False)  # with their quotes: what is outside of them the shell would read
    assert not any(set(word) & set(";`$&|<>") for word in words if not word.startswith("'"))


def test_huge_files_are_refused_unread(make_run, logs: Path, printed) -> None:
    folder = make_run("r1", {"state": "failed"})
    for name in FILES[1:]:
        os.truncate(folder / name, LARGEST_BYTES + 1) if (folder / name).exists() else None  # sparse
    os.truncate(make_run("r2") / "run.json", LARGEST_BYTES + 1)
    assert "found 'more than 512 MiB'" in printed()


READERS = (
    *(
        collectives.read,
        trainer_log.read_timers,
        nccl_log.read,
        memory_logs.read_psrecord,
        memory_logs.read_nvidia_smi,
        read_steps,
    ),
    *(trainer_log.read, causes.cause),
)
# What means something to a reader; the fuzzer puts together these lines and their words.
LINES = """\
{'loss': '2.5', 'epoch': '0.5'}
{'eval_loss': 'train_runtime': 'x'} { ' | , - nan 1e999 1.2.3 ٣
[Rank 0] time (ms) | fwd: 141.28 | bwd: 7
# Collective test starting: all_gather_perf
# nThread
#  Rank  0 Group  0 Pid 1 on node1 device  0 X
  1024 256 float sum -1 75.18 0.01 0.01 0
[1,0]<stdout>: node1:1:1 [0] NCCL INFO Connected NCCL WARN
step,step_time_s,tokens,real_tokens,loss,epoch
1,0.5,8,7,2,1
step,collective,group,dtype,bytes,calls
3,all-gather,0 1,bfloat16,1000,1
# Elapsed time   CPU (%)     Real (MB)   Virtual (MB)
       0.000        5.000     1000.500     2000.000
timestamp, index, name, memory.used [MiB], memory.total [MiB], utilization.gpu [%]
2026/11/21 05:55:41.717, 0, NVIDIA H200, 8 MiB, 143771 MiB, 20 %
slurmstepd: error: *** STEP 2.0 ON n CANCELLED AT x DUE TO TIME LIMIT ***
[rank0]: RuntimeError: CUDA out of memory
error: hang: No space left on device
"""
ODD = ["\n", "\r", "\0", "\ufeff", "\x1b[31m", " ", "9" * 5000, "\u202e", "\u2028"]
PIECES = [*LINES.splitlines(), *sorted(set(LINES.split())), *ODD * 5]
TEXTS = st.lists(st.sampled_from(PIECES) | st.text(max_size=6), max_size=30).map("".join)


def test_no_log_makes_a_reader_raise_but_a_log_error_that_names_it(tmp_path_factory) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "log"
    seen = {"figures": 0, "errors": 0}

    @settings(max_examples=400, deadline=None, database=None, derandomize=True, suppress_health_check=HealthCheck)
    @given(TEXTS)
    def check(text: str) -> None:
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        for read in READERS:
            try:
                read(path)
                seen["figures"] += 1
            except LogError as error:
                assert error.path == path
                seen["errors"] += 1

    check()
    assert min(seen.values()) > 100
