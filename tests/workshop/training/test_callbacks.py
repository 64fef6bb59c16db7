"""Step times against a clock that only moves when told: what is in a step, and what is left out of the mean."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from workshop.training import callbacks
from workshop.training.callbacks import WARMUP_STEPS, StepRecorder, TokenCounter
from workshop.training.energy import Reading

COUNTS = {"tokens": 4096, "real_tokens": 4096, "samples": 32, "logit_positions": 4096}


@pytest.fixture
def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StepRecorder:
    clock = SimpleNamespace(now_s=0.0, perf_counter=lambda: clock.now_s)
    monkeypatch.setattr(callbacks, "time", clock)
    recorder = StepRecorder(tmp_path / "steps.csv")
    recorder.counter = SimpleNamespace(take=lambda: dict(COUNTS))
    return recorder


def train(recorder: StepRecorder, step_times_s: list[float], steps_per_epoch: int = 1000) -> None:
    """The Trainer's callbacks for steps of these lengths, with a minute's evaluation after each epoch."""
    for index, step_time_s in enumerate(step_times_s):
        if index % steps_per_epoch == 0:
            recorder.on_epoch_begin()
        callbacks.time.now_s += step_time_s
        state = SimpleNamespace(global_step=index + 1, epoch=index / steps_per_epoch, is_world_process_zero=True)
        recorder.on_step_end(None, state, None)
        recorder.on_log(None, state, None, {"loss": 1.0})
        if (index + 1) % steps_per_epoch == 0:
            callbacks.time.now_s += 60
            recorder.on_evaluate()


def test_model_that_is_compiled_as_a_whole_is_counted_outside_its_graph() -> None:
    """A hook would be compiled with the model, and DeepCompile would run it while it profiles the graph."""
    graphs = []

    class Model(torch.nn.Module):
        def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
            return input_ids * 2

    (model := Model()).compile(backend=lambda graph, _: graphs.append(graph.code) or graph.forward)
    counter = TokenCounter(model, torch.device("cpu"))
    model(input_ids=torch.ones(3, 5, dtype=torch.int64))
    assert counter.take() == {"tokens": 15, "real_tokens": 15, "samples": 3, "logit_positions": 15}
    assert len(graphs) == 1 and "counts" not in graphs[0], graphs


def test_B1_older_timer_reports_5_5_times_the_step_time_and_ours_does_not(recorder: StepRecorder) -> None:
    truth = [0.04] * 100
    # Older material's timer takes the start at every tenth step, and reads the time at every step.
    older = [sum(truth[index // 10 * 10 : index + 1]) for index in range(len(truth))]
    assert sum(older) / sum(truth) == pytest.approx(5.5)
    train(recorder, truth, steps_per_epoch=25)
    assert [step.step_time_s for step in recorder.steps] == pytest.approx(truth)
    assert recorder.summary()["train/tokens_per_second"] == pytest.approx(4096 / 0.04)


def test_B2_warm_up_is_left_out_once_not_in_every_epoch(recorder: StepRecorder) -> None:
    train(recorder, [9.0] * WARMUP_STEPS + [0.5] * 15, steps_per_epoch=4)
    assert [step.step for step in recorder.steps] == list(range(1, WARMUP_STEPS + 16))
    summary = recorder.summary()
    assert summary["warmup_steps"] == WARMUP_STEPS
    assert summary["train/steps_per_second"] == pytest.approx(2.0)


class Model(torch.nn.Module):
    def forward(self, **batch: torch.Tensor) -> int:
        return len(batch)


def test_what_the_model_is_evaluated_on_is_not_counted_as_training() -> None:
    model = Model()
    counter = TokenCounter(model, torch.device("cpu"))
    mask = torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]])
    padded = {"input_ids": torch.zeros(2, 4, dtype=torch.long), "attention_mask": mask}
    packed = padded | {
        "document_ids": torch.tensor([[1, 2, 3, 0], [1, 1, 0, 0]]),
        "labels": torch.tensor([[7, 7, 7, -100], [-100, 7, -100, -100]]),  # no token is before the first
        "target_positions": torch.arange(9),  # a graph's are filled up to one length
    }
    model(**padded)
    model.eval()(**padded)
    assert counter.take() == {"tokens": 8, "real_tokens": 5, "samples": 2, "logit_positions": 8}
    model.train()(**packed)
    assert counter.take() == {"tokens": 8, "real_tokens": 5, "samples": 4, "logit_positions": 3}
    assert set(counter.take().values()) == {0}


def test_steps_after_the_checkpoint_are_forgotten_at_resume(recorder: StepRecorder) -> None:
    """They are trained again, so each would be in steps.csv twice."""
    train(recorder, [0.5, 0.5, 0.5])
    lines = recorder.path.read_bytes().splitlines(True)
    again = StepRecorder(recorder.path)
    state = SimpleNamespace(global_step=2, is_world_process_zero=True)
    again.on_train_begin(SimpleNamespace(device="cpu"), state, None, Model())
    assert (again.steps, again.path.read_bytes()) == (recorder.steps[:2], b"".join(lines[:3]))


def test_warm_up_of_each_attempt_is_left_out(recorder: StepRecorder) -> None:
    """A resumed run's first steps allocate memory and start the collectives again."""
    resumed_steps = (12, 16)
    slow_s = {step + number: 9.0 for step in (0, *resumed_steps) for number in range(1, WARMUP_STEPS + 1)}
    train(recorder, [slow_s.get(step, 0.5) for step in range(1, 41)])
    attempts = [{"resumed_step": step} for step in resumed_steps]
    recorder.path.with_name("run.json").write_text(json.dumps({"attempts": attempts}))
    again = StepRecorder(recorder.path)
    state = SimpleNamespace(global_step=40, is_world_process_zero=True)
    again.on_train_begin(SimpleNamespace(device="cpu"), state, None, Model())
    assert again.summary()["train/steps_per_second"] == pytest.approx(2.0)


def test_B4_load_is_averaged_over_zeros_too(recorder: StepRecorder) -> None:
    names = ("allocated", "reserved", "total", "peak_allocated", "peak_reserved")
    recorder.samples = 4 * [dict.fromkeys(names, 1.0)]
    with ThreadPoolExecutor() as threads:
        of_gpu = [threads.submit(Reading, None, None, load) for load in (0.0, 80.0, 100.0, 0.0)]
    recorder.readings = [(reading, reading) for reading in of_gpu]
    assert recorder.summary()["avg_gpu_util_%"] == 45
