"""Step times against a clock that only moves when told: what is in a step, and what is left out of the mean."""

from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from run_folder.schema import STEPS_COLUMNS
from workshop.training import callbacks
from workshop.training.callbacks import WARMUP_STEPS, GpuSample, ProgressLine, StepRecorder, TokenCounter
from workshop.training.saving import CheckpointWriter

COUNTS = {"tokens": 4096, "real_tokens": 4096, "samples": 32, "logit_positions": 4096}


class Clock:
    now_s = 0.0

    def perf_counter(self) -> float:
        return self.now_s

    monotonic = perf_counter


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(callbacks, "time", clock)
    return clock


@pytest.fixture
def recorder(tmp_path: Path) -> StepRecorder:
    recorder = StepRecorder(tmp_path / "steps.csv")
    recorder.counter = SimpleNamespace(take=lambda: dict(COUNTS))
    return recorder


def train(recorder: StepRecorder, clock: Clock, step_times_s: list[float], steps_per_epoch: int = 1000) -> None:
    """The Trainer's callbacks for steps of these lengths, with a minute's evaluation after each epoch."""
    for index, step_time_s in enumerate(step_times_s):
        if index % steps_per_epoch == 0:
            recorder.on_epoch_begin()
        clock.now_s += step_time_s
        state = SimpleNamespace(global_step=index + 1, epoch=index / steps_per_epoch, is_world_process_zero=True)
        recorder.on_step_end(None, state, None)
        recorder.on_log(None, state, None, {"loss": 1.0})
        if (index + 1) % steps_per_epoch == 0:
            clock.now_s += 60
            recorder.on_evaluate()


def older_timer(step_times_s: list[float]) -> list[float]:
    """Older material's timer: it takes the start at every tenth step, and reads the time at every step."""
    reported, now_s, start_s = [], 0.0, 0.0
    for index, step_time_s in enumerate(step_times_s):
        if index % 10 == 0:
            start_s = now_s
        now_s += step_time_s
        reported.append(now_s - start_s)
    return reported


def test_B1_older_timer_reports_5_5_times_the_step_time_and_ours_does_not(recorder: StepRecorder, clock: Clock) -> None:
    truth = [0.04] * 100
    assert sum(older_timer(truth)) / sum(truth) == pytest.approx(5.5)
    train(recorder, clock, truth, steps_per_epoch=25)
    assert [step.step_time_s for step in recorder.steps] == pytest.approx(truth)
    assert recorder.summary()["train/tokens_per_second"] == pytest.approx(4096 / 0.04)


def test_B2_warm_up_is_left_out_once_not_in_every_epoch(recorder: StepRecorder, clock: Clock) -> None:
    train(recorder, clock, [9.0] * WARMUP_STEPS + [0.5] * 15, steps_per_epoch=4)
    assert [step.step for step in recorder.steps] == list(range(1, WARMUP_STEPS + 16))
    summary = recorder.summary()
    assert summary["warmup_steps"] == WARMUP_STEPS
    assert summary["train/steps_per_second"] == pytest.approx(2.0)


def test_one_slow_step_moves_the_mean_but_not_the_median(recorder: StepRecorder, clock: Clock) -> None:
    train(recorder, clock, [0.5] * (WARMUP_STEPS + 9) + [5.5])
    summary = recorder.summary()
    assert summary["train/median_tokens_per_second"] == pytest.approx(8192)
    assert summary["train/tokens_per_second"] == pytest.approx(4096)


class Model(torch.nn.Module):
    def forward(self, **batch: torch.Tensor) -> int:
        return len(batch)


def test_what_the_model_is_evaluated_on_is_not_counted_as_training() -> None:
    model = Model()
    counter = TokenCounter(model, torch.device("cpu"))
    mask = torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]])
    padded = {"input_ids": torch.zeros(2, 4, dtype=torch.long), "attention_mask": mask}
    packed = padded | {"document_ids": torch.tensor([[1, 2, 3, 0], [1, 1, 0, 0]]), "target_positions": torch.arange(3)}
    model(**padded)
    model.eval()(**padded)
    assert counter.take() == {"tokens": 8, "real_tokens": 5, "samples": 2, "logit_positions": 8}
    model.train()(**packed)
    assert counter.take() == {"tokens": 8, "real_tokens": 5, "samples": 4, "logit_positions": 3}
    assert set(counter.take().values()) == {0}


def test_columns_of_steps_csv_are_those_of_the_contract() -> None:
    assert [item.name for item in fields(callbacks.Step)] == list(STEPS_COLUMNS)


def test_look_at_the_gpu_is_in_no_step(recorder: StepRecorder, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """NVML may take milliseconds to answer."""

    def ask_nvml() -> int:
        clock.now_s += 3
        return 100

    cuda = {"is_available": True, "mem_get_info": (1, 2), "synchronize": None}
    sizes = ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved")
    for name, answer in (cuda | dict.fromkeys(sizes, 0)).items():
        monkeypatch.setattr(torch.cuda, name, lambda answer=answer: answer)
    monkeypatch.setattr(torch.cuda, "utilization", ask_nvml)
    train(recorder, clock, [0.5, 0.5])
    assert [step.step_time_s for step in recorder.steps] == [0.5, 0.5]


def test_manifest_of_a_checkpoint_is_in_no_step(
    recorder: StepRecorder, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On two H200 the step after a checkpoint of 9 GB took 1.3 s instead of 0.15: the files' SHA-256."""

    def finish(*_: object) -> None:
        clock.now_s += 60

    writer = CheckpointWriter(SimpleNamespace(output_path=tmp_path, run_dir=tmp_path), recorder)
    monkeypatch.setattr(writer, "_finish", finish)
    train(recorder, clock, [0.5])
    writer.on_save(SimpleNamespace(), SimpleNamespace(global_step=1, is_world_process_zero=True), None)
    clock.now_s += 0.5
    recorder.on_step_end()
    assert recorder.record(2, 1.0, 1.0, write=True).step_time_s == 0.5


def test_training_killed_while_it_forgets_steps_loses_none(
    recorder: StepRecorder, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(recorder, clock, [0.5, 0.5, 0.5])
    before = recorder.path.read_bytes()
    start = {"args": SimpleNamespace(device="cpu"), "control": None, "model": Model()}
    state = SimpleNamespace(global_step=2, is_world_process_zero=True)
    again = StepRecorder(recorder.path)
    with monkeypatch.context() as killed:
        killed.delattr(callbacks, "astuple")
        with pytest.raises(NameError):
            again.on_train_begin(state=state, **start)
    assert again.path.read_bytes() == before
    again.on_train_begin(state=state, **start)
    assert (again.steps, again.path.read_bytes()) == (recorder.steps[:2], b"".join(before.splitlines(True)[:3]))


def test_B4_load_is_averaged_over_zeros_too(recorder: StepRecorder) -> None:
    recorder.samples = [GpuSample(1.0, 2.0, 3.0, load, 4.0, 5.0) for load in (0.0, 80.0, 100.0, 0.0)]
    assert recorder.summary()["avg_gpu_util_%"] == 45


def test_time_left_is_that_of_the_steps_after_the_first_which_compiles_or_goes_on(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ProgressLine()
    line.on_train_begin()
    for step, took_s in ((21, 20.0), (22, 2.0), (23, 12.0)):
        clock.now_s += took_s
        line.on_step_end(None, SimpleNamespace(global_step=step, max_steps=40, is_world_process_zero=True), None)
    assert capsys.readouterr().out.splitlines() == ["step 21 of 40 (52%)", "step 23 of 40 (57%), about 119 s left"]
