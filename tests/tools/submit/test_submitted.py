"""The settings of a line, read from its exercise's env_vars.sh, are those that bash gives its run."""

from pathlib import Path

import pytest

from tools.logs.runs import find_runs
from tools.submit.submissions import every_list, read
from tools.submit.submitted import effective_settings, nearest
from tools.tables.repository import ROOT
from workshop.run_folder.env_file import sourced

LISTS = every_list()


@pytest.mark.parametrize("file", LISTS, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_a_file_that_is_read_once_for_many_lines_gives_each_its_own_settings(file: Path) -> None:
    for line in read(file, {})[::5]:  # bash takes 15 ms for each
        settings = effective_settings(line)
        world = {"NNODES": str(line.count("nodes")), "NPROC_PER_NODE": str(line.count("gpus-per-node"))}
        environment = sourced(line.exercise / "env_vars.sh", world | {"REPO": str(ROOT)} | line.settings)
        assert all(str(environment.get(name.upper()) or settings[name]) == str(settings[name]) for name in settings)


def test_a_run_of_another_configuration_is_no_measurement_of_a_line_without_one() -> None:
    lines = read(ROOT / "further/resilience/submit.txt", {})
    ddp = next(line for line in lines if line.settings["FAULT"] == "none" and not line.text.endswith(".json"))
    runs = find_runs(ROOT / "logs/reference/h200x4-2026-11-27", experiment="resilience")
    assert {"zero3", "full_shard_async"} <= {run.record.config for run in runs}
    assert nearest(ddp, runs, lines) is None
