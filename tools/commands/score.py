"""Print how many seconds of training each recipe takes until the model answers well; with --output draw it.

--logs has two kinds of runs. Scored ones (GENERATE_STEPS) may share a GPU: only the steps of their scorings count.
Timed ones have the GPU to themselves and give the step time; a repeat 1 that compiles with empty caches gives the
compilation. A recipe's scores are those of all scored runs that compute the same function of the same examples:
compilation, padding and a CUDA graph change only the time. More passes over the examples are another recipe.
"""

import argparse
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product
from pathlib import Path
from statistics import fmean, median, pstdev
from typing import Any

from tools import plots
from tools.commands.options import add_logs_option, chosen_runs
from tools.errors import NoRunsError
from tools.logs.figures import measure
from tools.logs.memory_logs import seconds
from tools.logs.run import Run
from tools.logs.sources import summary
from tools.tables.comparisons import RUNGS
from tools.tables.markdown import markdown

THRESHOLDS = (50, 55, 60)  # % exact match
_LABELS = {rung: label for label, rung in RUNGS.items()}
_LINES = ("-", "--", ":", "-.")


@dataclass(frozen=True)
class Recipe:
    """Runs of one recipe: `timed` alone on the GPU, `scored` of the same function."""

    timed: list[Run]
    scored: list[Run]

    @property
    def name(self) -> str:
        run = self.timed[0]
        compiled = ", compiled" if run.settings["compile"] and not run.settings["packing"] else ""
        passes = self.scored[0].settings["num_epochs"]
        more = f", {passes} passes" if passes != run.settings["num_epochs"] else ""
        return f"{_LABELS[run.rung]}{compiled}{_rows(run)}, {_rate(self.scored[0])}{more}"

    @cached_property
    def step_s(self) -> float:
        return median(median(run.steps.step_time_s[summary(run)["warmup_steps"] :]) for run in self.timed)

    @property
    def compilation_s(self) -> float:
        """With empty caches."""
        return measure(next(run for run in self.timed if run.repeat == 1), "compilation_s")

    @property
    def start_s(self) -> float:
        """From the job's start to its first step."""
        return median(_start_s(run) for run in self.timed)

    @cached_property
    def curves(self) -> list[tuple[int, dict[int, float]]]:
        """Seed, and exact match (%) by step, of each scored run."""
        scores = [(run.settings["seed"], summary(run)["exact_match_by_step"]) for run in self.scored]
        return [(seed, {int(step): score for step, score in by_step.items()}) for seed, by_step in scores]

    def seconds_to(self, threshold: float) -> dict[int, float] | None:
        """Seconds of training by seed; None unless all seeds reach it."""
        steps = {seed: reached(curve, threshold) for seed, curve in self.curves}
        return None if None in steps.values() else {seed: step * self.step_s for seed, step in steps.items()}


def reached(curve: dict[int, float], threshold: float) -> int | None:
    """The step of the second of the first two scorings in a row whose mean is at the threshold; None: never."""
    steps = sorted(curve)
    return next((after for before, after in pairwise(steps) if curve[before] + curve[after] >= 2 * threshold), None)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_logs_option(parser)
    parser.add_argument("--output", type=Path, metavar="FILE.svg", help="draw exact match over seconds instead")


def main(arguments: argparse.Namespace) -> int:
    runs = [run for run in chosen_runs(arguments) if run.state == "completed"]
    scored = [run for run in runs if "exact_match_by_step" in summary(run)]
    both = recipes(scored, [run for run in runs if run not in scored and run.steps is not None])
    if not scored:
        raise NoRunsError("no completed run answered questions on its way; expected GENERATE_STEPS and GENERATE_SIZE")
    if arguments.output and both:
        plots.check_output(arguments.output)
        draw(both, arguments.output)
        print(f"![Exact match over seconds of training]({arguments.output})")
    else:
        print(table(both) if both else rates_table(scored))
    return 0


def recipes(scored: list[Run], alone: list[Run]) -> list[Recipe]:
    """The recipes that have both kinds of runs, the slowest step first."""
    by_rate: dict[Any, list[Run]] = {}
    by_switches: dict[Any, list[Run]] = {}
    for run in scored:
        by_rate.setdefault((_function(run), _rate(run), run.settings["num_epochs"]), []).append(run)
    for run in alone:
        switches = [run.settings.get(name) for name in ("rung", "compile", "cuda_graph")]
        by_switches.setdefault((_function(run), *switches), []).append(run)
    both = product(by_switches.values(), by_rate.values())
    same = [Recipe(*runs) for runs in both if _function(runs[0][0]) == _function(runs[1][0])]
    return sorted(same, key=lambda recipe: (-recipe.step_s, recipe.name))


def table(shown: list[Recipe]) -> str:
    """The recipes as Markdown. Ratios to the first, seed by seed, and totals are at the highest score that the first
    and another one reach in all seeds.
    """
    first, *others = shown
    by_first = [goal for goal in THRESHOLDS if first.seconds_to(goal)]
    goal = max((goal for goal in by_first if any(other.seconds_to(goal) for other in others)), default=THRESHOLDS[0])
    return markdown([*_cells(first, first, goal)], [[*_cells(recipe, first, goal).values()] for recipe in shown])


def _cells(recipe: Recipe, first: Recipe, goal: float) -> dict[str, str]:
    """A recipe's row, by column."""
    slow, fast, total, ratios = first.seconds_to(goal), recipe.seconds_to(goal), None, []
    if fast:
        total = median(fast.values()) + recipe.compilation_s
    if fast and slow:
        ratios = [slow[seed] / fast[seed] for seed in slow.keys() & fast.keys()]
    ends = [summary(run)["exact_match"] for run in recipe.scored]
    cells = {"Recipe": recipe.name, "Seeds": str(len(ends)), "Step time (ms)": f"{1000 * recipe.step_s:.1f}"}
    for threshold in THRESHOLDS:
        times_s = recipe.seconds_to(threshold)
        cells[f"Seconds to {threshold} %"] = f"{median(times_s.values()):.1f}" if times_s else "not in all"
    return cells | {
        f"{goal} %, with compilation (s)": f"{total:.1f}" if total else "-",
        f"{goal} %, with start, too (s)": f"{total + recipe.start_s:.0f}" if total else "-",
        "Times sooner, least": f"{min(ratios):.1f}" if ratios else "-",
        "Times sooner, most": f"{max(ratios):.1f}" if ratios else "-",
        "Exact match at the end (%)": f"{fmean(ends):.1f}",
        "Exact match, std (%)": f"{pstdev(ends):.1f}" if len(ends) > 1 else "one run only",
    }


def rates_table(scored: list[Run]) -> str:
    """Scored runs as Markdown, without times: which learning rate is soonest, which ends best."""
    rows = []
    names = ("batch_size", "num_epochs", "learning_rate")
    for run in sorted(scored, key=lambda run: (run.rung, *(run.settings[name] for name in names))):
        scores = [*summary(run)["exact_match_by_step"].values()]
        first, end = (f"{score:.1f}" for score in (scores[0], summary(run)["exact_match"]))
        rows.append((_LABELS[run.rung] + _rows(run), str(run.settings["num_epochs"]), _rate(run), first, end))
    return markdown(("Rates tried", "Passes", "Learning rate", "First scoring (%)", "Exact match at the end (%)"), rows)


def draw(shown: list[Recipe], output: Path) -> None:
    """Exact match over seconds of training, a line per recipe: the mean of its seeds' first scorings, second ..."""
    with plots.drawing(output, 1, 4.5) as (figure, axes):
        for number, recipe in enumerate(shown):
            tenths = zip(*(sorted(curve.items()) for _, curve in recipe.curves), strict=False)
            steps, means = zip(*(map(fmean, zip(*seeds, strict=True)) for seeds in tenths), strict=True)
            look = {"marker": ".", "color": f"C{number}", "linestyle": _LINES[number % len(_LINES)]}
            axes.plot([step * recipe.step_s for step in steps], means, label=recipe.name, **look)
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
        plots.label(axes, "seconds of training", "exact match (%)", "no scorings")
        plots.legend_below(figure, [axes])


def _function(run: Run) -> tuple[Any, ...]:
    """The function that a run computes: the same with and without compilation, padding or a CUDA graph."""
    names = ("model_name", "batch_size", "grad_acc", "packing", "fp16", "bf16")
    return (_is_peer(run) and run.rung, *(run.settings.get(name) for name in names))


def _rows(run: Run) -> str:
    return f", {run.settings['batch_size']} rows" if run.settings["packing"] or _is_peer(run) else ""


def _rate(run: Run) -> str:
    return f"{run.settings['learning_rate']:.1e}".replace(".0e", "e").replace("e-0", "e-")


def _is_peer(run: Run) -> bool:
    return (run.rung or "").startswith("peer_")


def _start_s(run: Run) -> float:
    timed_s = seconds(run.folder / "summary.json", None, summary(run)["timed_start"])
    start_s = seconds(run.folder / "run.json", None, f"{run.start:%Y/%m/%d %H:%M:%S.%f}")
    # The recorder's time is the machine's, run.json's is UTC: a zone is a number of quarters of an hour.
    return (timed_s - start_s - sum(run.steps.step_time_s[: summary(run)["warmup_steps"]])) % 900
