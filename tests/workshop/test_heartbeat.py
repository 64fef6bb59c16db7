"""A rank that stops answering ends its job, with the reason and the stacks; one that only works for long does not."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.launching import REPO, tiny_profile
from workshop.heartbeat import Heartbeat, beat

SHORT_S = 8  # a machine that is busy with other tests must come round in it


def wait_for(condition, seconds: float = 120) -> None:
    end_s = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end_s, "waited in vain"
        time.sleep(0.1)


def test_stopped_rank_ends_the_job_as_a_hang_with_the_stacks_of_all_ranks(tmp_path: Path) -> None:
    environment = tiny_profile() | {"LOG_DIR": str(tmp_path), "GPUS_PER_NODE": "2", "HANG_TIMEOUT_S": str(SHORT_S)}
    environment |= {"NUM_EPOCHS": "1000", "SAVE": "no", "GENERATE_SIZE": "0", "OMP_NUM_THREADS": "1"}
    command = ["bash", "fsdp/multi_gpu.slurm", "fsdp/fsdp_configs/ddp.json"]
    job = subprocess.Popen(command, cwd=REPO, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: [*tmp_path.glob("fsdp/*/heartbeat/rank-1.json")] or job.poll() is not None)
        (file,) = tmp_path.glob("fsdp/*/heartbeat/rank-1.json")
        run, stopped = file.parents[1], json.loads(file.read_text())["pid"]
        wait_for((run / "steps.csv").exists)
        os.kill(stopped, signal.SIGSTOP)
        job.wait(timeout=120)
    finally:
        job.terminate()
        job.wait()
    record, output = json.loads((run / "run.json").read_text()), (run / "train.out").read_text()
    assert (record["state"], record["cause"]) == ("failed", "hang")
    reason = rf"error \(rank 0\): hang: nothing was done for {SHORT_S} s \(HANG_TIMEOUT_S\) after step \d+; "
    assert re.search(rf"{reason}rank 1 on {socket.gethostname()} does not run", output), output[-4000:]
    assert record["reason"].split(": hang: ")[0] == "error (rank 0)"
    # Rank 0 printed its own stack, and woke rank 1 to print its.
    assert len(re.findall(r'^ +File ".*fsdp/train.py", line \d+ in main$', output, re.M)) >= 2
    assert not Path(f"/proc/{stopped}").exists()


@pytest.fixture(scope="module")
def two_pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, SimpleNamespace]:
    """What became of two ranks one of which "saves" for long, or "holds" the interpreter's lock (hang_on_ranks.py)."""
    folder = tmp_path_factory.mktemp("pairs")
    found = {}
    for kind in ("saves", "holds"):
        (folder / kind).mkdir()
        environment = os.environ | {"RUN_DIR": str(folder / kind), "PYTHONPATH": str(REPO), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, str(Path(__file__).with_name("hang_on_ranks.py")), kind]
        found[kind] = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    return {
        kind: SimpleNamespace(
            run=folder / kind,
            codes=json.loads(process.communicate(timeout=120)[0]),
            outputs=[(folder / kind / f"rank{rank}.out").read_text() for rank in (0, 1)],
        )
        for kind, process in found.items()
    }


def test_save_that_takes_longer_than_the_time_limit_of_a_hang_is_none_for_any_rank(two_pairs) -> None:
    """Neither for the rank that waits, whose collective has a time limit of its own."""
    assert two_pairs["saves"].codes == [0, 0], two_pairs["saves"].outputs
    assert two_pairs["saves"].outputs == ["", ""]


def test_rank_in_c_code_that_holds_the_lock_is_named_and_prints_its_stack_and_the_job_ends(two_pairs) -> None:
    run, codes, (waiting, holding) = vars(two_pairs["holds"]).values()
    assert codes == [1, -signal.SIGKILL], waiting + holding
    assert re.search(r"^error \(rank 0\): hang: .*; rank 1 on \S+ does not run$", waiting, re.M), waiting
    assert re.search(r'File ".*hang_on_ranks.py", line \d+ in hold_the_lock$', holding, re.M), holding
    (entry, *_) = json.loads((run / "flight_recorder-rank-0.json").read_text())["entries"]
    assert entry["profiling_name"] == "gloo:all_reduce"
    assert not [*run.glob("heartbeat/*.dump")], "a request for a stack that the next attempt would answer"


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A watch of a second's tenths, and whether it would have ended the rank."""
    ended = []
    heart = Heartbeat(SimpleNamespace(run_dir=tmp_path, output_path=tmp_path / "out", hang_timeout_s=0.5))
    monkeypatch.setattr(heart, "_end", lambda every_s: (ended.append(every_s), heart.stop()))
    heart.on_train_begin()
    yield heart, ended
    heart.stop()


def test_rank_that_evaluates_or_saves_for_long_is_let_alone(watched) -> None:
    heart, ended = watched
    for _ in range(30):
        time.sleep(0.05)
        heart.on_prediction_step()
    assert not ended
    wait_for(lambda: ended, 20)


def test_end_leaves_no_heartbeat(watched, tmp_path: Path) -> None:
    heart, ended = watched
    wait_for(lambda: [*(tmp_path / "heartbeat").iterdir()], 20)
    beat()
    heart.stop()
    wait_for(lambda: not (tmp_path / "heartbeat").exists(), 5)
    assert not ended


def test_0_watches_nothing(tmp_path: Path) -> None:
    Heartbeat(SimpleNamespace(run_dir=tmp_path, output_path=tmp_path, hang_timeout_s=0)).on_train_begin()
    assert not [*tmp_path.iterdir()]
