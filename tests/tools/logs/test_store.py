import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.thousand_runs import write_runs
from tools.__main__ import main
from tools.logs import store
from tools.logs.figures import FIGURES
from tools.logs.runs import find_runs, measure, measure_all
from tools.logs.store import FILE_NAME

REPO = Path(__file__).parents[3]


@pytest.fixture
def parsed(monkeypatch):
    """The names of the runs that are measured, which still happens."""
    names = []

    class Counting(store.RunFigures):
        def outcome(self, name):
            if name not in self.known and self.run.folder.name not in names:
                names.append(self.run.folder.name)
            return super().outcome(name)

    monkeypatch.setattr(store, "RunFigures", Counting)
    return names


def figures(logs: Path) -> list:
    """Every figure of every run, as a command reads and remembers them."""
    runs = find_runs(logs)
    measure_all(runs)
    return [run.figures for run in runs]


def test_unchanged_run_is_not_parsed_twice(make_run, logs, parsed):
    make_run("r1", summary=None)
    make_run("r2", **{"gpu_memory.csv": None})
    first = figures(logs)
    assert sorted(parsed) == ["r1", "r2"]
    parsed.clear()
    assert figures(logs) == first
    assert parsed == []


def test_log_of_a_running_job_is_parsed_again_when_it_has_grown(make_run, logs, parsed):
    make_run("r1")
    growing = make_run("r2") / "gpu_memory.csv"
    figures(logs)
    parsed.clear()
    with growing.open("a") as log:
        log.write("2026/11/21 09:45:05.000, 0, Tesla V100-SXM2-32GB, 30000, 32768, 100\n")
    assert figures(logs)[1].peak_gpu_mib == 30_000
    assert parsed == ["r2"]


def test_log_of_the_same_size_written_later_is_parsed_again(make_run, logs, parsed):
    path = make_run("r1") / "gpu_memory.csv"
    figures(logs)
    parsed.clear()
    path.write_text(path.read_text().replace("21658", "21659"))
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))
    assert figures(logs)[0].peak_gpu_mib == 21_659
    assert parsed == ["r1"]


def test_change_of_the_parsers_makes_what_they_found_unknown(make_run, logs, parsed, monkeypatch):
    make_run("r1")
    figures(logs)
    parsed.clear()
    monkeypatch.setattr(store, "code_version", lambda: b"0123456789abcdef")
    figures(logs)
    assert parsed == ["r1"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[: len(data) // 2],
        lambda data: data.replace(b"21658", b"11658"),
        lambda data: b"{}",
        lambda data: b"\xff" * 100,
    ],
    ids=["empty", "cut off", "one digit", "no head", "no text"],
)
def test_damaged_file_of_figures_costs_time_and_nothing_else(make_run, logs, damage):
    make_run("r1")
    first = figures(logs)
    path = logs / FILE_NAME
    path.write_bytes(damage(path.read_bytes()))
    assert figures(logs) == first
    assert b'"r1"' in path.read_bytes() or b"/r1" in path.read_bytes()


def test_logs_folder_that_cannot_be_written_to_is_read_all_the_same(make_run, logs):
    make_run("r1")
    (logs / FILE_NAME).mkdir()  # also root cannot write a file there
    assert figures(logs)[0].peak_gpu_mib == 21_658
    assert sorted(path.name for path in logs.iterdir()) == [FILE_NAME, "baseline"]


def test_several_commands_at_once_leave_one_good_file(logs):
    for _ in write_runs(logs, 60):
        pass
    command = [sys.executable, "-m", "tools", "runs", "--figures", "peak_gpu,mean_cpu", "--logs", str(logs)]
    commands = [subprocess.Popen(command, cwd=REPO, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    outputs = {command.communicate()[0] for command in commands}
    assert len(outputs) == 1 and "60 runs" in outputs.pop()
    assert [path.name for path in logs.glob(".*")] == [FILE_NAME]
    known = json.loads((logs / FILE_NAME).read_bytes().partition(b"\n")[2])
    assert len(known) > 50


def test_deleted_run_is_forgotten(make_run, logs):
    make_run("r1")
    shutil.rmtree(make_run("r2"))
    figures(logs)
    assert list(json.loads((logs / FILE_NAME).read_bytes().partition(b"\n")[2])) == ["baseline/r1"]


def test_damaged_log_is_the_same_error_from_the_file_of_figures(make_run, logs):
    make_run("r1", **{"gpu_memory.csv": "NVIDIA-SMI has failed\n"})
    first, second = figures(logs), figures(logs)
    assert (logs / FILE_NAME).exists()
    assert first == second and "NVIDIA-SMI has failed" in first[0].known["peak_gpu_mib"][0]


def test_committed_reference_logs_stay_as_they_were_committed(capsys):
    reference = REPO / "logs" / "reference" / "h200x1"
    assert main(["fill", "baseline", "--logs", str(reference)]) == 0
    assert "Table 1" in capsys.readouterr().out
    assert list(reference.glob("**/.*")) == []


def test_a_folder_that_looks_like_a_run_s_own_is_not_written_to(make_run, logs):
    folder = make_run("r1")
    assert figures(folder)[0].peak_gpu_mib == 21658
    assert not (folder / FILE_NAME).exists()


def test_figures_do_not_depend_on_how_they_were_read(logs):
    """All together, from the file of figures, and each run alone: the very same floats."""
    folders = list(write_runs(logs, 100))
    together, remembered = figures(logs), figures(logs)
    alone = [{name: measure(folder).outcome(name) for name in FIGURES} for folder in folders]
    assert [found.known for found in together] == [found.known for found in remembered]
    assert [{name: found.outcome(name) for name in FIGURES} for found in together] == alone
    assert not any(isinstance(outcome, list) for found in alone for outcome in found.values())


def test_figure_that_nobody_asked_for_is_measured_when_somebody_does(make_run, logs, parsed):
    damaged = make_run("r1", **{"steps.csv": "no such header\n"})
    for names in (["peak_gpu_mib"], ["peak_gpu_mib", "optimizer_steps"], ["optimizer_steps"]):
        runs = find_runs(logs)
        measure_all(runs, names)
    assert list(runs[0].figures.known) == ["peak_gpu_mib", "optimizer_steps"]
    assert str(damaged / "steps.csv:1") in runs[0].figures.outcome("optimizer_steps")[0]
    assert runs[0].figures.peak_cpu_mib == measure(damaged).peak_cpu_mib


def test_figures_survive_relative_and_absolute_names_of_the_logs_folder(make_run, logs, monkeypatch, parsed):
    make_run("r1")
    monkeypatch.chdir(logs)
    figures(Path())
    parsed.clear()
    for name in (Path("../logs"), logs, Path()):
        figures(name)
    assert parsed == []
