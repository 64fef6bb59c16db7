import itertools
from pathlib import Path

from tools.benchmarks.synthetic_runs import write_runs
from tools.logs.runs import find_runs


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_same_seed_writes_the_same_bytes_and_another_does_not(tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        list(write_runs(tmp_path / name, 5, seed, samples=4))
    assert contents(tmp_path / "a") == contents(tmp_path / "b") != contents(tmp_path / "c")


def test_runs_are_readable_and_hold_what_real_ones_do(tmp_path):
    list(write_runs(tmp_path, 200, samples=4))
    runs = find_runs(tmp_path)
    assert len(runs) == 200 and not any(run.problem for run in runs)
    assert all(run.gpu_log.peak_mib and run.rss_logs[0].peak_mib and run.steps.step.size for run in runs)
    assert {run.state for run in runs} == {"completed", "oom"}
    assert any(run.fabric for run in runs) and any(len(run.rss_logs) == 2 for run in runs)
    assert any(run.summary is None and run.training.final for run in runs)
    logs = list(itertools.chain.from_iterable(run.folder.glob("gpu_memory*.csv") for run in runs))
    texts = [log.read_text() for log in logs]
    assert any("[N/A]" in text for text in texts) and any(text.count("timestamp") == 2 for text in texts)
    assert any(" MiB," not in text for text in texts) and any(not text.endswith("\n") for text in texts)
