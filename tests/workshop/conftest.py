"""What launch.sh hands over."""

import pytest


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"EXERCISE_DIR": "baseline", "EXPERIMENT_NAME": "baseline", "CONFIG": ""}.items():
        monkeypatch.setenv(name, value)
