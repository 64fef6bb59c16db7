"""The default interval: saving takes one per cent of the training's time, however long a save lasts."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from workshop.training import saving
from workshop.training.saving import FIRST_SAVE_S, FIRST_SAVE_S_PER_PARAMETER, CheckpointWriter

STEP_S = 0.3


def writer(now_s: list[float], monkeypatch: pytest.MonkeyPatch, **settings: object) -> CheckpointWriter:
    """The writer of a training that began at 0 on a clock that the test sets."""
    monkeypatch.setattr(saving.time, "monotonic", lambda: now_s[0])
    every = {"run_dir": Path("nowhere"), "save": "steps", "save_steps": 0}
    found = CheckpointWriter(SimpleNamespace(**every | settings), None)
    found._first_s = FIRST_SAVE_S + 559e6 * FIRST_SAVE_S_PER_PARAMETER
    return found


@pytest.mark.parametrize(("save_s", "hours"), [(0.05, 1), (13.0, 24)])
def test_default_interval_never_costs_more_than_one_per_cent(
    monkeypatch: pytest.MonkeyPatch, save_s: float, hours: float
) -> None:
    now_s = [0.0]
    saves = writer(now_s, monkeypatch)
    while now_s[0] < hours * 3600:
        now_s[0] += STEP_S
        if saves._due(1):
            now_s[0] += save_s
            saves.save_times_s.append(save_s)
            assert sum(saves.save_times_s) <= 0.01 * now_s[0]
    assert sum(saves.save_times_s) > 0.009 * now_s[0], "what is not saved is lost"


@pytest.mark.parametrize(("save", "due"), [("steps", [10, 20, 30]), ("epoch", [])])
def test_steps_that_are_named_are_kept_to(monkeypatch: pytest.MonkeyPatch, save: str, due: list[int]) -> None:
    saves = writer([1e9], monkeypatch, save=save, save_steps=10)
    assert [step for step in range(1, 31) if saves._due(step)] == due
