"""A rank that makes no progress is ended, its stack says where it was, and the run records it; slow work is no hang."""

import ctypes
import faulthandler
import multiprocessing
import os
import re
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from transformers import Trainer, TrainingArguments

from tests.workshop.environment import LAUNCHED
from workshop.job.outcome import begin, hang_of, record_end
from workshop.record import checkpoints
from workshop.record.exercises import Start
from workshop.record.run_record import read_run_record, update_run_record
from workshop.training import hangs
from workshop.training.hangs import SLOW_S, START_S, HangWatch
from workshop.training.saving import CheckpointWriter, save_apart

LONG_S = 3600
LIMIT_S = 1
STEPS = "step,step_time_s,tokens,real_tokens,loss\n1,1,9,9,2.0\n2,1,9,9,1.5\n3"  # cut off
# Of pairs of ranks: what happens to them, and the signal that rank 1 gets when rank 0 has ended, as torchrun does.
PAIRS = {
    "stopped": signal.SIGKILL,  # rank 1 is stopped
    "hold": None,  # both are in C code that keeps the interpreter's lock
    "told": signal.SIGTERM,  # rank 0 does nothing
    "save": None,  # rank 0 saves for longer than the limit
    "loading": None,  # both wait before the training begins, for one that never comes
}
Pairs = dict[str, tuple[Path, list[int]]]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Pairs:
    """Of each pair of gloo ranks under HangWatch its run folder and the exit codes; all run at the same time."""
    started, fork = {}, multiprocessing.get_context("fork")
    for kind in PAIRS:
        run = tmp_path_factory.mktemp(kind)
        (run / hangs.STACKS).mkdir()
        (run / "steps.csv").write_text(STEPS)
        started[kind] = run, [fork.Process(target=rank_of_two, args=(rank, kind, run)) for rank in (0, 1)]
        for rank in started[kind][1]:
            rank.start()
    for kind, (_, ranks) in started.items():
        ranks[0].join()
        if PAIRS[kind]:
            os.kill(ranks[1].pid, PAIRS[kind])
        ranks[1].join()
    return {kind: (run, [rank.exitcode for rank in ranks]) for kind, (run, ranks) in started.items()}


@pytest.mark.parametrize(
    ("kind", "codes", "rank", "place", "said"),
    [
        ("stopped", [1, -9], 0, "wait_for_the_other", "rank 0, {}; no stack from rank 1"),
        ("hold", [1, 1], 0, "hold_the_lock", "rank [01], {}"),
        ("hold", [1, 1], 1, "hold_the_lock", "rank [01], {}"),
        ("told", [1, -15], 1, "do_nothing", "rank 0, {}"),
        ("loading", [1, 1], 1, "do_nothing", "rank [01], {}"),
    ],
)
def test_rank_that_hangs_ends_with_its_stack_and_is_named(pairs, kind, codes, rank, place, said) -> None:
    run, found = pairs[kind]
    assert found == codes and f"in {place}" in (run / f"stacks/rank-{rank}.txt").read_text()
    assert kind != "told" or "Timeout" not in (run / "stacks/rank-1.txt").read_text()
    assert re.fullmatch(f"hang: {said.format(f'no progress for {LIMIT_S} s after step 2')}", hang_of(run))


def test_save_that_takes_longer_than_the_limit_is_no_hang_for_either_rank_and_leaves_nothing(pairs: Pairs) -> None:
    run, codes = pairs["save"]
    assert codes == [0, 0]
    assert not (run / "stacks").exists()


HANG = "hang: rank 0, no progress for 1800 s after step 0"
GPU_ERROR = "[rank1]: RuntimeError: CUDA error: uncorrectable ECC error encountered"


@pytest.mark.parametrize(
    ("printed", "cause", "reason"),
    [  # reading the stacks of threads that run may end the process: exit code -11
        ("Signal 11 (SIGSEGV) received, [rank1]: RuntimeError: lost", "hang", HANG),
        (GPU_ERROR, "CUDA error", GPU_ERROR),
    ],
)
def test_hang_is_the_cause_although_its_rank_died_of_a_signal_but_not_of_a_gpu_s_error(
    printed: str, cause: str, reason: str, tmp_path: Path
) -> None:
    update_run_record(tmp_path, state="running", start_time="2026-11-24T06:00:00+00:00")
    (tmp_path / "stacks").mkdir()
    (tmp_path / "stacks/rank-0.txt").write_text("Timeout (0:30:00)!\nThread 0x00")
    (tmp_path / "train.out").write_text(f"{{'loss': 1.0}}\n{printed}\n")
    record_end(tmp_path, LAUNCHED, 1, "", by_itself=True)
    found = read_run_record(tmp_path)
    assert (found["state"], found["cause"], found["reason"]) == ("failed", cause, reason)
    begin(tmp_path, LAUNCHED, ["python", "train.py"])
    assert hang_of(tmp_path) == "", "the next attempt would be a hang, too"
    assert (tmp_path / "stacks-1/rank-0.txt").exists()


def test_every_step_is_progress_and_loading_compilation_and_saves_have_longer_limits(tmp_path, monkeypatch) -> None:
    """A long step, evaluation or save was ended as a hang."""
    armed, seen = [0], list[tuple[str, int]]()
    monkeypatch.setattr(faulthandler, "dump_traceback_later", lambda limit_s, **_: armed.append(limit_s))

    def note(part: str) -> None:
        """The limit that counts in a part of the training."""
        seen.append((part, armed[-1] - LONG_S))

    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            note("train" if self.training else "evaluate")
            return {"loss": (self.weight * x).mean(), "logits": x}

    make_whole = checkpoints.finish

    def finish(*arguments: object, **named: object) -> int:
        note("save")
        return make_whole(*arguments, **named)

    monkeypatch.setattr(checkpoints, "finish", finish)
    update_run_record(tmp_path, model={"trained_parameters": 1})
    settings = SimpleNamespace(run_dir=tmp_path, output_path=tmp_path / "out", hang_timeout_s=LONG_S, start=Start())
    vars(settings).update(resumes_own_run=False, save="steps", save_steps=1, save_limit=1)
    arguments = TrainingArguments(
        output_dir=str(settings.output_path),
        **{"per_device_train_batch_size": 1, "per_device_eval_batch_size": 1, "num_train_epochs": 1},
        **{"eval_strategy": "epoch", "save_strategy": "no", "logging_strategy": "no"},
        **{"report_to": "none", "disable_tqdm": True, "use_cpu": True},
    )
    rows = [{"x": torch.ones(2), "labels": torch.ones(2)} for _ in range(2)]
    hangs.start(settings)
    try:
        note("load")
        recorder = SimpleNamespace(start_clock=lambda: None)
        callbacks = [HangWatch(settings), CheckpointWriter(settings, recorder)]
        model = Model()
        model.weight = torch.nn.Parameter(torch.ones(1))
        trainer = Trainer(model, arguments, train_dataset=rows, eval_dataset=rows, callbacks=callbacks)
        save_apart(settings, trainer)
        trainer.train()
        note("end")
    finally:
        hangs.stop()
    assert seen == [
        *[("load", START_S), ("train", SLOW_S), ("save", SLOW_S), ("train", SLOW_S)],
        *[("evaluate", SLOW_S), ("evaluate", 0), ("save", SLOW_S), ("end", SLOW_S)],
    ]
    assert LONG_S in armed[3:], "each step is progress"
    assert not (tmp_path / "stacks").exists()


def test_0_watches_nothing(tmp_path: Path) -> None:
    hangs.start(SimpleNamespace(run_dir=tmp_path, hang_timeout_s=0, start=Start()))
    hangs.progress()
    assert not [*tmp_path.iterdir()]


def hold_the_lock() -> None:
    """For ever, and signals do not end it: a mutex locked twice, through ctypes' door that keeps Python's lock."""
    mutex = ctypes.create_string_buffer(64)
    library = ctypes.PyDLL(None)
    library.pthread_mutex_lock(mutex)
    library.pthread_mutex_lock(mutex)


def do_nothing() -> None:
    while True:
        time.sleep(1)


def wait_for_the_other() -> None:
    dist.barrier()


def rank_of_two(rank: int, kind: str, run: Path) -> None:
    dist.init_process_group("gloo", init_method=f"file://{run}/store", rank=rank, world_size=2)
    settings = SimpleNamespace(run_dir=run, hang_timeout_s=LIMIT_S, start=Start(rank=rank))
    hangs.START_S = 0
    hangs.start(settings)
    if kind == "loading":
        do_nothing()
    watch = HangWatch(settings)
    watch.on_train_begin()
    dist.barrier()
    if kind == "save":
        watch.on_save()
        if rank == 0:
            time.sleep(2 * LIMIT_S)
        dist.barrier()
        hangs.stop()
        return
    if kind == "stopped" and rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    if rank == 0 or kind == "hold":
        hangs.progress()
    {"stopped": wait_for_the_other, "hold": hold_the_lock}.get(kind, do_nothing)()
