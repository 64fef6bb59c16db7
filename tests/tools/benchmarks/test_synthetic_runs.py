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
    figures = [run.figures for run in runs]
    assert all(one.peak_gpu_mib and one.peak_cpu_mib and one.optimizer_steps for one in figures)
    assert {run.state for run in runs} == {"completed", "oom"}
    assert any(one.allreduce_gb_per_s for one in figures)
    assert any(one.train_loss and not run.summary for one, run in zip(figures, runs, strict=True))
    assert any(len(list(run.folder.glob("cpu_memory*.txt"))) == 2 for run in runs)
    logs = list(itertools.chain.from_iterable(run.folder.glob("gpu_memory*.csv") for run in runs))
    texts = [log.read_text() for log in logs]
    assert any("[N/A]" in text for text in texts) and any(text.count("timestamp") == 2 for text in texts)
    assert any(" MiB," not in text for text in texts) and any(not text.endswith("\n") for text in texts)
