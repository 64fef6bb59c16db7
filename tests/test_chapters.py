"""A chapter is a diff to the one before; a copy that drifts, or a figure that no log backs, would spoil the lesson."""

import itertools
import json
import re
import statistics
import subprocess
from collections import defaultdict
from functools import cache
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.filled_tables import filled_table
from tests.simulated_here import simulated_here
from tools.__main__ import main
from tools.logs.runs import find_runs
from tools.tables import markdown
from workshop.measure import offload_lower_bound
from workshop.run_folder.env_file import sourced

REPO = Path(__file__).parents[1]
# The speed ladder's rungs, from the textbook to the top.
LADDER = sorted(
    (path.stem for path in (REPO / "further/speed-ladder/rungs").glob("[0-9]*.env")), key=lambda r: int(r.split("_")[0])
)
TEXTBOOK, TOP = LADDER[0], LADDER[11]  # the last one that the hosts below have run


def test_figures_in_the_readmes_are_those_of_the_committed_logs() -> None:
    """Of the thousand times that the tables ask for a line's settings, those of a line are read by bash once."""

    @cache
    def once(path: Path, given: frozenset[tuple[str, str]]) -> dict[str, str]:
        return sourced(path, dict(given))

    asked = patch("tools.submit.submitted.sourced", lambda path, given: once(path, frozenset(given.items())))
    with simulated_here(), asked:
        assert main(["report", "--check"]) == 0


def test_cost_of_the_loggers_in_the_results_is_the_measured_one() -> None:
    measured = (REPO / "logs/reference/h200x1/logger_cost.md").read_text()
    figures = [f"{float(figure):.3f}" for figure in re.findall(r"\d\.\d{4}", measured.splitlines()[-1])]
    assert table_headed("Step time with / without the loggers", "baseline/RESULTS.md") == [["six pairs", *figures]]


def test_steps_that_fp16_skips_in_the_fsdp_results_are_those_of_the_logs() -> None:
    skipped = {}
    for run in (REPO / "logs/reference/h200x4-2026-11-21/fsdp").iterdir():
        record = json.loads((run / "run.json").read_text())
        first = re.match(
            r"(?:nan )*", " ".join(re.findall(r"'grad_norm': '?([\w.]+)", (run / "train.out").read_text()))
        )
        skipped[record["config"], record["world_size"]] = str(len(first[0].split()))
    rows = [
        [name, *(skipped.get((config, gpus), "not measured") for gpus in (1, 2, 4))]
        for name, config in (("FULL_SHARD", "full_shard"), ("DDP", "ddp"))
    ]
    assert table_headed("Steps skipped at the start, second host", "fsdp/RESULTS.md") == rows


def test_profile_in_the_fsdp_results_is_the_measured_one() -> None:
    measured = {}
    for run in (REPO / "logs/reference/h200x4-gap/fsdp").iterdir():
        record = json.loads((run / "run.json").read_text())
        columns = measured.setdefault(record["config"], {})
        if (run / "profile.txt").exists():
            text = (run / "profile.txt").read_text()
            (profiled_ms,) = re.findall(r"steps 10 to 12, rank 0, (\d+\.\d) ms", text)
            computing, _, alone, idle = re.findall(r"(\d+\.\d)%\n", text)[:4]
            columns["shares"] = [f"{share}%" for share in (computing, alone, idle)]
            columns["busy"] = f"{float(profiled_ms) / 3 * (1 - float(idle) / 100):.0f} ms"
        elif record["settings"]["batch_size"] == 4:
            speed = json.loads((run / "summary.json").read_text())["train/steps_per_second"]
            columns["step"] = f"{1000 / speed:.0f} ms"
    ddp, full_shard = ([*c["shares"], c["busy"], c["step"]] for c in (measured["ddp"], measured["full_shard"]))
    rows = table_headed("Rank 0's GPU", "fsdp/RESULTS.md")
    assert [row[1:] for row in rows] == [list(pair) for pair in zip(ddp, full_shard, strict=True)]


def table_headed(title: str, readme: str) -> list[list[str]]:
    """The rows below the header that has this cell."""
    lines = (REPO / readme).read_text().splitlines()
    (start,) = (number for number, line in enumerate(lines) if line.startswith("|") and title in markdown.cells(line))
    below = itertools.takewhile(lambda line: line.startswith("|"), lines[start + 2 :])
    return [markdown.cells(line) for line in below]


def ladder_table(number: str, *hosts: str) -> dict[str, dict[str, str]]:
    return filled_table(REPO / "further/speed-ladder", number, *(REPO / "logs/reference" / host for host in hosts))


def test_what_became_of_the_ladder_s_predictions_is_what_was_measured() -> None:
    quoted = [row[2:4] for row in table_headed("Predicted", "further/speed-ladder/RESULTS.md")]
    hosts = [ladder_table("18", "h200x1-2026-11-24d", "h200x1-2026-11-24e-energy"), ladder_table("18", "h200x2")]
    expected = [[rows[rung.replace("_", " ")]["Gain over the rung below"] for rows in hosts] for rung in LADDER[1:12]]
    assert quoted == [*expected, [rows[TOP.replace("_", " ")]["Gain over the textbook"] for rows in hosts]]


def test_profiles_of_the_ladder_s_top_on_four_gpus_are_the_measured_ones() -> None:
    shares = {}
    for run in find_runs(REPO / "logs/reference/h200x4-2026-11-22a", experiment="fsdp"):
        if run.profiled:
            found = re.findall(r"(\d+\.\d)%\n", (run.folder / "profile.txt").read_text())[:4]
            shares[run.record.config] = [f"{float(share):.0f}%" for share in found]
    rows = table_headed("Rank 0's GPU", "further/speed-ladder/RESULTS.md")
    assert [row[1:] for row in rows] == [list(pair) for pair in zip(shares["full_shard"], shares["ddp"], strict=True)]


def test_how_steady_the_ladder_s_steps_are_is_what_was_measured() -> None:
    steps, outside = {True: 0, False: 0}, {True: 0, False: 0}
    for run in find_runs(REPO / "logs/reference/h200x2", experiment="speed-ladder"):
        textbook = run.rung == TEXTBOOK
        upper = run.rung in LADDER[9:] and run.model == "bloom-560m" and not run.profiled
        if not (textbook or upper):
            continue
        times_s = run.steps.step_time_s[run.summary["warmup_steps"] :].tolist()
        steps[textbook] += len(times_s)
        outside[textbook] += sum(abs(time_s / statistics.median(times_s) - 1) > 0.1 for time_s in times_s)
    assert table_headed("More than 10 % from their run's median", "further/speed-ladder/RESULTS.md") == [
        ["rungs 9 to 11", f"{steps[False]}", f"{outside[False]}"],
        ["textbook", f"{steps[True]}", f"{outside[True]}"],
    ]


def test_profile_in_the_ladder_s_results_is_the_measured_one() -> None:
    """The GPU's time in each kind of kernel; what is left of the step without the profiler is idle."""
    steps_ms, parts_ms = defaultdict(list), {}
    for run in find_runs(REPO / "logs/reference/h200x2", experiment="speed-ladder"):
        rung = run.rung
        if run.profiled:
            parts_ms[rung] = kernels_ms_per_step((run.folder / "profile.txt").read_text())
        elif run.model == "bloom-560m":
            steps_ms[rung].append(1000 / run.summary["train/steps_per_second"])
    columns = []
    for rung in ("10_stream", "11_labelled"):
        step_ms, busy_ms = statistics.median(steps_ms[rung]), sum(parts_ms[rung].values())
        texts = [f"{ms:.0f} ms" if ms else "in the others" for ms in parts_ms[rung].values()]
        columns.append([*texts, f"{step_ms - busy_ms:.0f} ms", f"{step_ms:.0f} ms"])
    names = [*parts_ms["10_stream"], "idle", "the step, unprofiled"]
    expected = [list(row) for row in zip(names, *columns, strict=True)]
    assert table_headed("Per step", "further/speed-ladder/RESULTS.md") == expected


def kernels_ms_per_step(profile: str) -> dict[str, float]:
    """The README's parts in its order, from a profile of three steps."""
    kernels_ms = {}  # the column Self CUDA, the fourth time of a line
    for line in profile.splitlines():
        times = re.findall(r" ([\d.]+)(ms|us)\b", line)
        if len(times) >= 6:
            kernels_ms.setdefault(line.split()[0], float(times[3][0]) / {"ms": 3, "us": 3000}[times[3][1]])
    parts = {
        "matrix products": kernels_ms["aten::mm"] + kernels_ms["aten::addmm"],
        "attention": sum(ms for name, ms in kernels_ms.items() if "_flex_attention_" in name),
        "loss and its gradient": sum(ms for name, ms in kernels_ms.items() if "log_softmax" in name),
        "optimizer": kernels_ms["aten::_fused_adamw_"],
    }
    (total,) = re.findall(r"Self CUDA time total: ([\d.]+)ms", profile)
    return parts | {"all other kernels": float(total) / 3 - sum(parts.values())}


def test_model_larger_than_the_gpu_has_the_figures_of_its_run() -> None:
    runs = {run.state: run for run in find_runs(REPO / "logs/reference/h200x2", experiment="deepspeed-zero3-offload")}
    texts = {state: (run.folder / "train.out").read_text() for state, run in runs.items()}
    step_s = 1 / runs["completed"].summary["train/steps_per_second"]
    (peak, states), (growth, _) = re.findall(r"check: .*?([\d.]+) GiB.*?([\d.]+) GiB", texts["completed"])
    (losses,) = re.findall(r"check: the loss fell from ([\d.]+) to ([\d.]+): NOT SO", texts["completed"])
    times_s = runs["completed"].steps.step_time_s.tolist()
    (one_thread,) = find_runs(REPO / "logs/reference/h200x2-2026-11-22a", experiment="deepspeed-zero3-offload")
    skipped = texts["completed"].count("'grad_norm': 'inf'")
    assert table_headed("BLOOM-7b1, ZeRO-3 with offload, two H200", "deepspeed-zero3-offload/RESULTS.md") == [
        ["States, 16 bytes per parameter", f"{states} GiB"],
        ["Peak GPU memory of a rank, allocated", f"{peak} GiB"],
        ["Growth of the CPU memory", f"{growth} GiB"],
        ["Step, mean after the warm-up", f"{step_s:.1f} s"],
        ["Loss, first and last step", ", ".join(losses)],
        ["Steps that fp16 skipped", f"{skipped}"],
        ["A skipped step", span_s(times_s[1 : 1 + skipped])],
        ["A later step with an update", span_s(times_s[1 + skipped :])],
        ["A skipped step with one thread per process", span_s(one_thread.steps.step_time_s.tolist()[1:])],
    ]
    oom = table_headed("BLOOM-7b1, ZeRO-0, one of two H200", "deepspeed-zero3-offload/RESULTS.md")
    sizes = [
        re.search(rf"{words} ([\d.]+) GiB", texts["oom"])[1] for words in ("allocated memory", "total capacity of")
    ]
    assert [row[1] for row in oom] == [f"{size} GiB" for size in sizes]


def test_floor_of_a_step_with_offload_is_the_one_measured_beside_its_run(capsys: pytest.CaptureFixture[str]) -> None:
    section = (REPO / "deepspeed-zero3-offload/RESULTS.md").read_text().split("## The floor of a step")[1]
    for run in (
        "h200x2-2026-11-22b/deepspeed-single-gpu/20261122-212916-p9717",
        "h200x1-2026-11-23a-unseen/speed-ladder/20261123-080152-p2730",
    ):
        folder = REPO / "logs/reference" / run
        offload_lower_bound.main([str(folder), "--rates", str(folder / "offload_floor.txt")])
        printed = capsys.readouterr().out
        assert printed[printed.index("| part of a step") :] in section


def span_s(times_s: list[float]) -> str:
    return f"{min(times_s):.1f} to {max(times_s):.1f} s"


def test_reference_logs_name_no_folder_of_the_machine_they_come_from() -> None:
    found = [
        f"{path.relative_to(REPO)}: {line}"
        for path in (REPO / "logs" / "reference").rglob("*")
        if path.is_file()
        for line in path.read_text(errors="replace").splitlines()
        if re.search(r"(?<![\w.])/(?:root|home|work)/", line)
    ]
    assert found == []


def test_secrets_are_in_no_tracked_file() -> None:
    files = subprocess.run(["git", "ls-files"], cwd=REPO, capture_output=True, text=True, check=True).stdout.split()
    assigned = re.compile(r"WANDB_API_KEY\s*=\s*['\"]?[0-9a-f]{20,}")
    texts = {name: (REPO / name).read_text(errors="replace") for name in files if (REPO / name).is_file()}
    assert [name for name, text in texts.items() if assigned.search(text)] == []
