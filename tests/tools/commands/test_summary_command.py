"""What a launcher says at the end of a run: a few lines, of which none is about something that was not measured."""

from tools.__main__ import main


def test_completed_run_is_a_few_lines_and_a_failed_one_says_where_to_read_on(make_run, capsys) -> None:
    run = make_run("20261121-094500-j1")
    assert main(["summary", str(run)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "loss: 2.2500 in the last tenth of the steps, 1.7790 in the last evaluation",
        "speed: 11.80 samples/s, 1,355.9 ms per step",
        "peak memory: 21,658 MiB of GPU memory, 8,000 MiB of CPU memory (RSS)",
        f"evidence: {run}",
        f"next: python -m tools fill baseline --logs {run.parents[1]}",
    ]
    nothing = {"steps.csv": None, "gpu_memory.csv": None, "cpu_memory.txt": None, "train.out": "error: no\n"}
    run = make_run("20261121-094500-j2", {"state": "failed", "exit_code": 1}, summary=None, **nothing)
    assert main(["summary", str(run)]) == 0
    assert capsys.readouterr() == (f"evidence: {run}\nnext: less {run}/train.out\n", "")
