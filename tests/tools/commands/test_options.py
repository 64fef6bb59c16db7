"""A limit that is no number would never be reached, or at once."""

import pytest

from tools.__main__ import main


@pytest.mark.parametrize("value", ["nan", "-1"])
@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("doctor --job", "--wait"),
        ("doctor", "--space"),
        ("rehearse --local", "--wait"),
        ("replay", "--speed"),
        ("watch --once", "--every"),
        ("watch --once", "--recent"),
        ("check my_results.md", "--tolerance"),
    ],
)
def test_option_that_is_no_number_is_refused_by_name(
    capsys: pytest.CaptureFixture, command: str, option: str, value: str
) -> None:
    with pytest.raises(SystemExit) as refused:
        main([*command.split(), f"{option}={value}"])
    assert refused.value.code == 2
    assert f"error: argument {option}: '{value}' is not a " in capsys.readouterr().err


def test_no_command_shows_the_commands_and_not_only_that_one_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([])
    assert (end.value.code, "Fill the blank tables" in capsys.readouterr().out) == (0, True)
