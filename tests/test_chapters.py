"""A chapter is a diff to the one before; a copy that drifts, or a figure that no log backs, would spoil the lesson."""

import re
import subprocess
from functools import cache
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.launching import folder_of
from tests.simulated_here import simulated_here
from tools.__main__ import main
from workshop.run_folder.env_file import sourced
from workshop.run_folder.exercises import exercises_with

REPO = Path(__file__).parents[1]


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


def test_spread_of_equal_runs_in_the_ladder_s_results_is_the_measured_one() -> None:
    speeds = defaultdict(list)
    for run in find_runs(REPO / "logs/reference/h100x1-ladder", experiment="speed-ladder"):
        speeds[run.rung].append(run.summary["train/real_tokens_per_second"])
    assert table_headed("Equal runs on one H100", "further/speed-ladder/RESULTS.md") == [
        [rung.replace("_", " "), f"{len(found)}", f"{min(found):,.0f}", f"{max(found):,.0f}"]
        for rung, found in ((rung, speeds[rung]) for rung in ("0_textbook", "12_documents"))
    ]


def test_scaling_in_the_ladder_s_results_is_that_of_each_machine() -> None:
    machines = (
        "h200x2",
        "h200x2-2026-11-22a",
        "h200x2-2026-11-25b",
        "h200x2-2026-11-22b",
        "h200x4-2026-11-22a",
        "h200x4-2026-11-22d",
    )
    tables = [ladder_table("19" if machine.startswith("h200x4") else "19b", machine) for machine in machines]
    for method, *shown in table_headed("BLOOM-1b7, rung 11: GPUs, rows each", "further/speed-ladder/RESULTS.md"):
        measured = [table[method]["Of n times one GPU (%)"].replace("not measured", "-") for table in tables]
        assert shown == measured, method


def test_step_beside_its_floor_has_the_profiles_times(capsys: pytest.CaptureFixture[str]) -> None:
    folder = REPO / "logs/reference/h200x2-2026-11-25c-profiles/speed-ladder"
    runs = [str(folder / f"20261125-{run}") for run in ("082515-p621", "082622-p1276", "082728-p1866")]
    assert main(["profile", *runs]) == 0
    profile = {row[0].removesuffix(" (ms)"): row[1:] for row in markdown.grids(capsys.readouterr().out)[0].rows}
    ms = {part: [float(figure) for figure in figures] for part, figures in profile.items() if "." in figures[0]}
    rest = [a + b for a, b in zip(ms["softmax and loss"], ms["norms, casts and the rest"], strict=True)]
    parts = [ms["matrix products"], ms["attention"], ms["optimizer and clipping"], rest]
    step = ms["Step (ms), without the profiler"]
    idle = [whole - sum(busy) for whole, busy in zip(step, zip(*parts, strict=True), strict=True)]
    shown = [row[1::2] for row in table_headed("A step (ms)", "further/models/RESULTS.md")]
    assert shown[:6] == [[f"{figure:.1f}" for figure in row] for row in (*parts, idle, step)]


@pytest.mark.parametrize(
    ("document", "title", "runs"),
    [
        (
            "further/dimensions/RESULTS.md",
            "tp",
            "h200x2-2026-11-25b-profiles/dimensions/20261125- 062321-p3857 062351-p4097 062419-p4300",
        ),
        (
            "further/profiles/README.md",
            "zero2_offload",
            "h200x1-2026-11-24d-profiles/ speed-ladder/20261124-161127-p4050 speed-ladder/20261124-161147-p4174 "
            "deepspeed-single-gpu/20261124-161300-p4467",
        ),
        (
            "further/profiles/README.md",
            "sockets",
            "h200x2-2026-11-24a-profiles/fsdp/20261124- 192627-p3184 192705-p3449",
        ),
    ],
)
def test_rows_of_a_profile_in_a_document_are_the_profiles(
    document: str, title: str, runs: str, capsys: pytest.CaptureFixture[str]
) -> None:
    start, *ends = runs.split()
    assert main(["profile", *(f"{REPO}/logs/reference/{start}{end}" for end in ends)]) == 0
    printed = markdown.grids(capsys.readouterr().out)[0].rows
    shown = table_headed(title, document)
    assert shown and all(row in printed for row in shown)


PREDICTED = {
    "2026-11-26, one H100: the ladder, three times": "h100x1-ladder",
    "2026-11-23, one H200: 7 billion parameters, many rows": "h200x1-2026-11-23c-unseen",
    "2026-11-23, one H200: offload of BLOOM-3b": "h200x1-2026-11-23a-unseen",
    "2026-11-23, one H100, constants from H200s only": "h100x1-unseen",
    "2026-11-22, two H200": "h200x2-2026-11-22b-unseen",
    "2026-11-22, up to two H200: the first ten": "h200x4-2026-11-22e-unseen",
}


def test_errors_of_the_sets_that_were_predicted_before_their_runs(capsys: pytest.CaptureFixture[str]) -> None:
    for name, *shown in table_headed("Step inside", "documents/PLANNER.md"):
        folder = REPO / "logs/reference" / PREDICTED[name]
        with simulated_here():
            assert main(["plan", "check", str(folder), "--against", str(folder / "predictions.json")]) == 0
        *runs, errors, inside = markdown.grids(capsys.readouterr().out)[0].rows
        assert shown == [f"{len(runs)}", errors[1], *errors[3:6], inside[5]], name


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
    folder = REPO / "logs/reference/h200x2-2026-11-22b/deepspeed-single-gpu/20261122-212916-p9717"
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


@pytest.mark.parametrize("chapter", QUIZZES)
def test_questions_in_the_key_are_those_of_the_readme(chapter: str) -> None:
    key, readme = (
        (REPO / "instructor/answers" / f"{chapter}.md").read_text(),
        (folder_of(chapter) / "README.md").read_text(),
    )
    for name, heading in (("Prediction", "Predict"), ("Quiz", "Quiz")):
        section = readme.partition(f"\n## {heading}")[2].partition("\n## ")[0].partition("<details>")[0]
        asked = re.findall(r"^\d\. (.+(?:\n   .+)*)", section, re.M)
        quoted = re.findall(rf"^> \*\*{name} \d\.\*\* (.+(?:\n> .+)*)", key, re.M)
        without_links = [re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", question) for question in asked]
        assert [" ".join(question.replace("\n>", "").split()) for question in quoted] == [
            " ".join(question.split()) for question in without_links
        ]
        assert asked or name == "Prediction"
