"""From lines that `submit` takes to their workloads, whether they fit, and what they cost.

tools/submit reads lines and settings. The costs are the source of the times in the exercises' READMEs and in the
instructor's kit.
"""

import statistics
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import chain
from operator import mul

from tools.errors import InputError
from tools.logs.runs import REFERENCE, find_runs
from tools.plan.gpus import Gpu
from tools.plan.predict import Prediction, Range, predict
from tools.plan.simulate import Shape, steps
from tools.plan.workload import SOCKETS_GB_PER_S, Workload
from tools.plan.workload_of import TRAIN, of_settings
from tools.submit.submissions import Submission
from tools.submit.submitted import read_as_job
from tools.tables.markdown import markdown
from workshop.record.exercises import declared
from workshop.record.printable import counted
from workshop.settings.configuration import read_rule
from workshop.settings.run_lines import MUST_DO

NOT_SIMULATED = "a line with peers, FLOAT8, or a script without a Trainer is not simulated"  # workload_of gives None


def workload_of(submission: Submission) -> Workload | None:
    """The line's workload; None if its launcher does not start TRAIN, as for peers, with FLOAT8, or for a job array.

    Raises InputError for a setting that is not what it has to be, or a configuration that is not trained as written.
    """
    if submission.script != TRAIN or (submission.takes.array and not submission.arguments):
        return None
    # The checkpoint that it resumes from need not be there yet.
    settings, found = read_as_job(replace(submission, settings=submission.settings | {"RESUME_FROM": ""}))
    values, nodes = vars(settings), submission.count("nodes")
    if values.get("float8", "none") != "none":
        return None
    world_size = nodes * submission.count("gpus-per-node")
    try:
        # A rule of weak scaling: the model and the batch follow from the number of GPUs.
        if declared(submission.exercise).takes(TRAIN) == "rule" and (path := submission.config_path):
            if not (sizes := read_rule(path).get(world_size)):
                raise InputError(f"{path}: has no sizes for {counted(world_size, 'GPU')}")
            values = values | {"grad_acc": 1} | sizes._asdict()
        return of_settings(values, found.values if found else None, world_size, nodes)
    except InputError as error:
        raise InputError(f"{submission.place}: {error}") from None


def shapes_of(lines: Sequence[Submission]) -> list[Shape]:
    """The steps to simulate for these lines; none for one that cannot be planned."""
    found = []
    for line in lines:
        with suppress(InputError):
            found += [workload.shape] if (workload := workload_of(line)) else []
    return found


def prediction_of(line: Submission, gpu: Gpu, fabric_gb_per_s: float = SOCKETS_GB_PER_S) -> Prediction | None:
    """None if workload_of gives none. Raises InputError for a line that cannot be planned on this GPU."""
    workload = workload_of(line)
    return predict(replace(workload, fabric_gb_per_s=fabric_gb_per_s), gpu) if workload else None


def predictions_of(lines: Sequence[Submission], gpu: Gpu, fabric_gb_per_s: float) -> list[Prediction | None]:
    """As prediction_of, with all steps simulated at once. Raises InputError as _prepare, too."""
    _prepare(lines, gpu)
    return [prediction_of(line, gpu, fabric_gb_per_s) for line in lines]


def fits(lines: Sequence[Submission], gpu: Gpu) -> list[tuple[str, bool]]:
    """For each line a sentence before it is queued, and whether it may fit. Raises InputError as _prepare."""
    _prepare(lines, gpu)
    found = []
    for line in lines:
        try:
            one, why = prediction_of(line, gpu), NOT_SIMULATED
        except InputError as error:
            one, why = None, str(error)
        if one:
            text = f"{one.verdict}: needs {one.needed_mib:,.0f} of {gpu.memory_mib:,} MiB, "
            text += f"{one.least_cpu_gib:,.0f} GiB of CPU memory of {gpu.node_gib:,.0f}, "
            text += f"about {one.ranges['total_runtime_s'].expected / 60:.1f} min"
            found.append((text, one.verdict != "does not fit"))
        else:
            found.append((f"not planned: {why}", True))
    return found


def _prepare(lines: Sequence[Submission], gpu: Gpu) -> None:
    """Raises InputError for a line with more GPUs than a node holds."""
    for line in lines:
        if (count := line.count("gpus-per-node")) > (most := gpu.per_node):
            holds = f"a node of {gpu.driver_name} holds {most}; expected at most {most}, and more --nodes"
            raise InputError(f"{line.place}: --gpus-per-node={count}: {holds}")
    steps(shapes_of(lines))


# ---- what they cost ----


def cost_table(lines: Sequence[Submission], gpu: Gpu, fabric_gb_per_s: float = SOCKETS_GB_PER_S) -> str:
    """Two rows for each exercise, what one must do and all; one row where these are the same. Then those of all.

    Raises InputError for a line that cannot be planned on this GPU.
    """
    groups: dict[str, list[tuple[bool, int, float | None]]] = {}  # whether one must do it, GPUs, time
    predictions = predictions_of(lines, gpu, fabric_gb_per_s)
    for line, found in zip(lines, predictions, strict=True):
        taken = job_time(line, found)
        gpus = line.count("nodes") * line.count("gpus-per-node")
        own = line.contains(MUST_DO), gpus, taken and taken.expected
        groups.setdefault(line.exercise.name, []).append(own)
    if several := len(groups) > 1:
        known = [own for own in groups.values() if None not in (time_s for *_, time_s in own)]
        groups["together"] = list(chain.from_iterable(known))  # of what somebody has measured
    rows = []
    for name, own in groups.items():
        required = [one for one in own if one[0]]
        for what, chosen in {"must do": required, "all": own if own != required else []}.items():
            if not chosen:
                continue
            _, counts, times_s = zip(*chosen, strict=True)
            cells = ["not measured"] * 3
            if None not in times_s:
                hours = sum(map(mul, times_s, counts)) / 3600
                amounts = sum(times_s) / 60, hours, hours * gpu.tdp_w / 1000
                cells = [f"{float(f'{amount:.2g}'):,g}" for amount in amounts]  # the error allows no more digits
            gpus = " to ".join(map(str, sorted({min(counts), max(counts)})))
            rows.append([f"{name}: {what}" if several else what, str(len(chosen)), gpus, *cells])
    titles = ["Runs", "Number", "GPUs each", "One after the other (min)", "GPU-hours", "At most (kWh)"]
    notes = [f"Expected on {gpu.driver_name}; the queue, reading and filling in come on top."]
    notes.append(f"kWh: of the GPUs alone, at the {gpu.tdp_w} W of their data sheet.")
    if number := predictions.count(None):
        notes.append(f"Not simulated: {counted(number, 'run')}, with our times on H100s and H200s (logs/reference).")
    if number := sum(found.verdict == "does not fit" for found in predictions if found):
        notes.append(f"Does not fit: {counted(number, 'run')}, with the time that it would take.")
    return f"{markdown(titles, rows)}\n\n{' '.join(notes)}"


def job_time(line: Submission, found: Prediction | None) -> Range | None:
    """Of the whole job (s), as it is predicted; else of the launcher's reference runs; None without such a run."""
    return found.ranges["total_runtime_s"] if found else _measured(line.exercise.name, line.launcher)


@cache
def _measured(exercise: str, launcher: str) -> Range | None:
    """Time (s) of the completed reference runs of a launcher: the shortest, the median, the longest."""
    runs = find_runs(*sorted(REFERENCE.glob("*/")), experiment=exercise)
    times_s = [
        run.runtime_s
        for run in runs
        if run.state == "completed" and run.runtime_s and launcher in (run.record.submission or "").split()
    ]
    return Range(min(times_s), statistics.median(times_s), max(times_s)) if times_s else None
