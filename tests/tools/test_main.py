"""`python -m tools` itself."""

import pytest

from tools.__main__ import main


def test_no_command_shows_the_commands_and_not_only_that_one_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([])
    assert (end.value.code, "Fill the blank tables" in capsys.readouterr().out) == (0, True)
