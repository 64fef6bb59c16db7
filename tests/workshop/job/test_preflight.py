"""What a launcher says before it starts, where nothing is wrong but something is probably not meant so."""

import pytest

from workshop.job.preflight import warn_without_reporter


@pytest.mark.parametrize(
    ("shell", "told"),
    [
        ({"WANDB_API_KEY": "k" * 40}, "WANDB_API_KEY set, but REPORT_TO=none"),
        ({"WANDB_MODE": "online", "REPORT_TO": "none"}, "WANDB_MODE set, but REPORT_TO=none"),
        ({"WANDB_API_KEY": "k" * 40, "REPORT_TO": "wandb"}, ""),
        ({"WANDB_API_KEY": "k" * 40, "WANDB_MODE": "disabled"}, ""),
        ({"WANDB_MODE": "offline"}, ""),
    ],
)
def test_key_without_report_to_is_told(shell: dict[str, str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    warn_without_reporter(shell)
    said = capsys.readouterr().err
    assert told in said if told else not said
    assert "kkk" not in said
