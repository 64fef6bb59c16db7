"""A rank that stops answering ends its job, with the reason and the stacks; one that only works for long does not."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from tests.launching import REPO, tiny_profile
from workshop.heartbeat import Heartbeat, beat
from workshop.rank_files import LONGEST_END_S, RankFiles, saved_bytes

SHORT_S = 8  # a machine that is busy with other tests must come round in it


def wait_for(condition, seconds: float = 120) -> None:
    end_s = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end_s, "waited in vain"
        time.sleep(0.1)


@pytest.mark.parametrize(("stopped", "who"), [([1], r" \(rank 0\)"), ([0, 1], "")], ids=["one rank", "every rank"])
def test_stopped_ranks_end_the_job_as_a_hang_with_the_stacks_of_all(
    tmp_path: Path, stopped: list[int], who: str
) -> None:
    with training(tmp_path) as (job, run):
        wait_for((run / "steps.csv").exists)
        pids = [json.loads((run / f"heartbeat/rank-{rank}.json").read_text())["pid"] for rank in stopped]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        job.wait(timeout=180)
    record, output = json.loads((run / "run.json").read_text()), (run / "train.out").read_text()
    assert (record["state"], record["cause"]) == ("failed", "hang")
    whose = "".join(f"; rank {rank} on {socket.gethostname()} does not run" for rank in stopped)
    reason = rf"error{who}: hang: nothing was done for {SHORT_S} s \(HANG_TIMEOUT_S\) after step \d+{re.escape(whose)}"
    assert re.search(rf"^{reason}$", output, re.M), output[-4000:]
    assert record["reason"].split(": hang: ")[0] == re.sub(r"\\", "", f"error{who}")
    # A rank that runs printed its own stack; those that were stopped were woken to print theirs.
    assert len(re.findall(r'^ +File ".*fsdp/train.py", line \d+ in main$', output, re.M)) >= 2
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_run_that_is_suspended_and_resumed_goes_on(tmp_path: Path) -> None:
    """`scontrol suspend` stops every process of the run, also the watch beside the training."""
    with training(tmp_path) as (job, run):
        wait_for((run / "steps.csv").exists)
        processes = [process for process in psutil.process_iter() if is_of(process, run)]
        assert any("workshop.hang_watch" in process.cmdline() for process in processes)
        for process in processes:
            process.suspend()
        steps = (run / "steps.csv").stat().st_size
        time.sleep(LONGEST_END_S + 2 * SHORT_S)
        for process in processes:
            process.resume()
        wait_for(lambda: job.poll() is not None or (run / "steps.csv").stat().st_size > steps)
        time.sleep(SHORT_S)
        assert job.poll() is None, (run / "train.out").read_text()[-4000:]


@contextlib.contextmanager
def training(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """The launcher of two ranks that train for long, ended at the end, and the run folder."""
    environment = tiny_profile() | {"LOG_DIR": str(folder), "GPUS_PER_NODE": "2", "HANG_TIMEOUT_S": str(SHORT_S)}
    environment |= {"NUM_EPOCHS": "1000", "SAVE": "no", "GENERATE_SIZE": "0", "OMP_NUM_THREADS": "1"}
    command = ["bash", "fsdp/multi_gpu.slurm", "fsdp/fsdp_configs/ddp.json"]
    job = subprocess.Popen(command, cwd=REPO, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: [*folder.glob("fsdp/*/heartbeat/rank-1.json")] or job.poll() is not None)
        (file,) = folder.glob("fsdp/*/heartbeat/rank-1.json")
        yield job, file.parents[1]
    finally:
        job.terminate()
        job.wait()


def is_of(process: psutil.Process, run: Path) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.environ().get("RUN_DIR") == str(run)
    return False


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, SimpleNamespace]:
    """What became of two ranks in each of the ways of hang_on_ranks.py, with the watch beside them."""
    folder = tmp_path_factory.mktemp("pairs")
    ranks, watches = {}, []
    for kind in ("saves", "hashes", "holds", "all_hold"):
        (folder / kind).mkdir()
        environment = os.environ | {"RUN_DIR": str(folder / kind), "PYTHONPATH": str(REPO), "OMP_NUM_THREADS": "1"}
        environment |= {"OUTPUT_DIR": "out"}
        command = [sys.executable, str(Path(__file__).with_name("hang_on_ranks.py")), kind]
        ranks[kind] = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        watch = [sys.executable, "-m", "workshop.hang_watch", str(folder / kind)]
        with (folder / kind / "watch.out").open("w") as output:
            watches.append(subprocess.Popen(watch, env=environment, stderr=output))
    found = {
        kind: SimpleNamespace(
            run=folder / kind,
            codes=json.loads(process.communicate(timeout=180)[0]),
            outputs=[(folder / kind / f"{name}.out").read_text() for name in ("rank0", "rank1", "watch")],
        )
        for kind, process in ranks.items()
    }
    for watch in watches:
        watch.kill()
        watch.wait()
    return found


@pytest.mark.parametrize("kind", ["saves", "hashes"])
def test_save_that_takes_longer_than_the_time_limit_of_a_hang_is_none_for_any_rank(pairs, kind: str) -> None:
    """Neither for the rank that waits, whose collectives have a time limit of their own in each group of ranks."""
    assert pairs[kind].codes == [0, 0], pairs[kind].outputs
    assert pairs[kind].outputs == ["", "", ""]


def test_rank_in_c_code_that_holds_the_lock_is_named_and_prints_its_stack_and_the_job_ends(pairs) -> None:
    run, codes, (waiting, holding, watch) = vars(pairs["holds"]).values()
    assert codes == [1, -signal.SIGKILL], waiting + holding
    assert re.search(r"^error \(rank 0\): hang: .*; rank 1 on \S+ does not run$", waiting, re.M), waiting
    assert re.search(r'File ".*hang_on_ranks.py", line \d+ in hold_the_lock$', holding, re.M), holding
    (entry, *_) = json.loads((run / "flight_recorder-rank-0.json").read_text())["entries"]
    assert entry["profiling_name"] == "gloo:all_reduce"
    assert not [*run.glob("heartbeat/*.dump")], "a request for a stack that the next attempt would answer"
    assert watch == "", "a rank that ran has noticed it"


def test_ranks_all_of_which_hold_the_lock_print_their_stacks_and_are_killed(pairs) -> None:
    run, codes, (*ranks, watch) = vars(pairs["all_hold"]).values()
    assert codes == [-signal.SIGKILL, -signal.SIGKILL], watch
    assert re.fullmatch(r"error: hang: .*; rank 0 on \S+ does not run; rank 1 on \S+ does not run\n", watch)
    for output in ranks:
        assert re.search(r'File ".*hang_on_ranks.py", line \d+ in hold_the_lock$', output, re.M), output
    assert not [*run.glob("heartbeat/*.dump")]


def test_stopped_ranks_are_killed_also_where_a_full_disk_has_no_room_to_say_why(tmp_path: Path) -> None:
    """The watch died of its own message, and the job waited for its time limit."""
    environment = os.environ | {"RUN_DIR": str(tmp_path), "PYTHONPATH": str(REPO), "OUTPUT_DIR": "out"}
    watch = "from workshop import hang_watch, rank_files; hang_watch.LONGEST_END_S = rank_files.GRACE_S = 0.2; "
    rank = subprocess.Popen(["sleep", "600"], env=environment)
    files = RankFiles(tmp_path)
    files.folder.mkdir()
    files.write(0, host=socket.gethostname(), pid=rank.pid, step=1, done=1, idle_s=0.0, timeout_s=0.2)
    try:
        with Path("/dev/full").open("wb") as full:
            command = [sys.executable, "-c", watch + "hang_watch.main()", str(tmp_path)]
            subprocess.run(command, env=environment, stderr=full, timeout=120, check=False)
        assert rank.wait(timeout=60) == -signal.SIGKILL
    finally:
        rank.kill()
        rank.wait()


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


def test_files_that_no_save_writes_do_not_hide_a_hang(tmp_path: Path) -> None:
    """OUTPUT_DIR may be a folder that others write into, too: with their logs growing nothing ever hung."""
    saves = ("unfinished/checkpoint-2/global_step2/rank0", "global_step9/rank0", "model.safetensors")
    assert grown_bytes(tmp_path, *saves, "other_job/train.out") == [100, 100, 100, 0]


def test_link_that_leads_nowhere_does_not_hide_that_a_save_grows(tmp_path: Path) -> None:
    """The count ended at it: a save that took longer than HANG_TIMEOUT_S was ended as a hang."""
    (tmp_path / "latest").symlink_to("checkpoint-1")
    assert grown_bytes(tmp_path, "unfinished/checkpoint-2/rank0") == [100]


def grown_bytes(output: Path, *names: str) -> list[int]:
    """What each file adds when 100 bytes are written into it."""
    for name in names:
        (output / name).parent.mkdir(parents=True, exist_ok=True)
        (output / name).touch()
    grown = []
    for name in names:
        before = saved_bytes(output)
        (output / name).write_bytes(b"w" * 100)
        grown.append(saved_bytes(output) - before)
    return grown


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
