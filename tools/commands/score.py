"""Print how many seconds of training each recipe takes until the model answers well; with --output draw it.

--logs has two kinds of runs. Scored ones (GENERATE_STEPS) may share a GPU: only the steps of their scorings count.
Timed ones have the GPU to themselves and give the step time; a repeat 1 that compiles with empty caches gives the
compilation. A recipe's scores are those of all scored runs that compute the same function of the same examples:
compilation, padding and a CUDA graph change only the time.
"""

import argparse
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median, pstdev
from typing import Any

from tools import plots
from tools.commands.options import add_logs_option, chosen_runs
from tools.errors import NoRunsError
from tools.logs.figures import measure
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
        settings = self.timed[0].settings
        compiled = ", compiled" if settings["compile"] and not settings["packing"] else ""
        return f"{_LABELS[self.timed[0].rung]}{compiled}{_rows(self.timed[0])}, {_rate(self.scored[0])}"

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
        of_runs = [(run, summary(run)["exact_match_by_step"]) for run in self.scored]
        return [(run.settings["seed"], {int(step): score for step, score in by.items()}) for run, by in of_runs]

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
    found = recipes(scored, [run for run in runs if run not in scored and run.steps is not None])
    if not scored:
        raise NoRunsError("no completed run answered questions on its way; expected GENERATE_STEPS and GENERATE_SIZE")
    if arguments.output and found:
        plots.check_output(arguments.output)
        draw(found, arguments.output)
        print(f"![Exact match over seconds of training]({arguments.output})")
    else:
        print(table(found) if found else rates_table(scored))
    return 0


def recipes(scored: list[Run], alone: list[Run]) -> list[Recipe]:
    """The recipes that have both kinds of runs, the slowest step first."""
    by_function: dict[Any, list[Run]] = {}
    by_recipe: dict[Any, list[Run]] = {}
    for run in scored:
        by_function.setdefault((_function(run), _rate(run)), []).append(run)
    for run in alone:
        switches = [run.settings.get(name) for name in ("rung", "compile", "cuda_graph")]
        by_recipe.setdefault((_function(run), *switches), []).append(run)
    found = [
        Recipe(timed, answered)
        for (function, *_), timed in by_recipe.items()
        for (same, _), answered in by_function.items()
        if same == function
    ]
    return sorted(found, key=lambda recipe: (-recipe.step_s, recipe.name))


def table(found: list[Recipe]) -> str:
    """The recipes as Markdown. Ratios to the first, seed by seed, and totals are at the highest score that the first
    and another one reach in all seeds.
    """
    first, *others = found
    reached_by_two = [
        goal for goal in THRESHOLDS if first.seconds_to(goal) and any(other.seconds_to(goal) for other in others)
    ]
    goal = max(reached_by_two, default=THRESHOLDS[0])
    header = (
        *("Recipe", "Seeds", "Step time (ms)", *(f"Seconds to {threshold} %" for threshold in THRESHOLDS)),
        *(f"{goal} %, with compilation (s)", f"{goal} %, with start, too (s)"),
        *("Times sooner, least", "Times sooner, most", "Exact match at the end (%)", "Exact match, std (%)"),
    )
    return markdown(header, [(*_row(recipe, first, goal),) for recipe in found])


def _row(recipe: Recipe, first: Recipe, goal: float) -> list[str]:
    times = [recipe.seconds_to(threshold) for threshold in THRESHOLDS]
    totals, sooner = ["-"] * 2, ["-"] * 2
    slow, fast = first.seconds_to(goal), recipe.seconds_to(goal)
    if fast:
        compiled_s = median(fast.values()) + recipe.compilation_s
        totals = [f"{compiled_s:.1f}", f"{compiled_s + recipe.start_s:.0f}"]
    if slow and fast and (ratios := [slow[seed] / fast[seed] for seed in slow.keys() & fast.keys()]):
        sooner = [f"{min(ratios):.1f}", f"{max(ratios):.1f}"]
    ends = [summary(run)["exact_match"] for run in recipe.scored]
    return [
        *(recipe.name, str(len(recipe.curves)), f"{1000 * recipe.step_s:.1f}"),
        *("not in all" if seconds is None else f"{median(seconds.values()):.1f}" for seconds in times),
        *totals,
        *sooner,
        *(f"{fmean(ends):.1f}", f"{pstdev(ends):.1f}" if len(ends) > 1 else "one run only"),
    ]


def rates_table(scored: list[Run]) -> str:
    """Scored runs whose time nobody asks for, as Markdown: which learning rate is soonest, which ends best."""
    rows = []
    for run in sorted(scored, key=lambda run: (run.rung, run.settings["batch_size"], run.settings["learning_rate"])):
        scores = [*summary(run)["exact_match_by_step"].values()]
        first, end = (f"{score:.1f}" for score in (scores[0], summary(run)["exact_match"]))
        rows.append((_LABELS[run.rung] + _rows(run), _rate(run), first, end))
    return markdown(("Rates tried", "Learning rate", "First scoring (%)", "Exact match at the end (%)"), rows)


def draw(found: list[Recipe], output: Path) -> None:
    """Exact match over seconds of training, a line per recipe: the mean of its seeds' scorings."""
    with plots.drawing(output, 1, 1, 4.5) as (figure, axes):
        for number, recipe in enumerate(found):
            steps = sorted(set.intersection(*(set(curve) for _, curve in recipe.curves)))
            means = [fmean(curve[step] for _, curve in recipe.curves) for step in steps]
            look = {"marker": ".", "color": f"C{number}", "linestyle": _LINES[number % len(_LINES)]}
            axes.plot([step * recipe.step_s for step in steps], means, label=recipe.name, **look)
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
        plots.label(axes, "seconds of training", "exact match (%)", "no scorings")
        plots.legend_below(figure, [axes], columns=2)


def _function(run: Run) -> tuple[Any, ...]:
    """What is computed: equal of runs that differ in compilation, padding or a CUDA graph."""
    names = ("model_name", "batch_size", "grad_acc", "packing", "fp16", "bf16")
    return (_is_peer(run) and run.rung, *(run.settings.get(name) for name in names))


def _rows(run: Run) -> str:
    return f", {run.settings['batch_size']} rows" if run.settings["packing"] or _is_peer(run) else ""


def _rate(run: Run) -> str:
    return f"{run.settings['learning_rate']:.1e}".replace(".0e", "e").replace("e-0", "e-")


def _is_peer(run: Run) -> bool:
    return (run.rung or "").startswith("peer_")


def _start_s(run: Run) -> float:
    timed = datetime.strptime(summary(run)["timed_start"], "%Y/%m/%d %H:%M:%S.%f")
    warmup_s = sum(run.steps.step_time_s[: summary(run)["warmup_steps"]])
    # The recorder's time is the machine's, run.json's is UTC: a zone is a number of quarters of an hour.
    return ((timed - run.start.replace(tzinfo=None)).total_seconds() - warmup_s) % 900
