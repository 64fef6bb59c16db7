"""The settings of a line, read from its exercise's env_vars.sh, are those that bash gives its run."""

from pathlib import Path

import pytest

from tools.submit import submitted
from tools.submit.submissions import every_list, read
from tools.submit.submitted import effective_settings
from tools.tables.repository import ROOT
from workshop.run_folder.env_file import sourced

LISTS = every_list()


@pytest.mark.parametrize("file", LISTS, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_a_file_is_read_once_for_many_lines_and_gives_each_its_own_settings(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    monkeypatch.setattr(submitted, "sourced", lambda *given: calls.append(given) or sourced(*given))
    submitted._read.cache_clear()
    lines = read(file, {})
    found = [effective_settings(line) for line in lines]
    shapes = {(line.exercise, line.count("nodes"), line.count("gpus-per-node")) for line in lines}
    asked = {(*shape, line.settings.get("RUNG"), line.settings.get("SEQ_LENGTH")) for shape in shapes for line in lines}
    assert len(calls) <= len(asked)
    for line, settings in list(zip(lines, found, strict=True))[::5]:  # bash takes 15 ms for each
        world = {"NNODES": str(line.count("nodes")), "NPROC_PER_NODE": str(line.count("gpus-per-node"))}
        environment = sourced(line.exercise / "env_vars.sh", world | {"REPO": str(ROOT)} | line.settings)
        assert all(str(environment.get(name.upper()) or settings[name]) == str(settings[name]) for name in settings)
