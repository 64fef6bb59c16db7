"""Names of runs in a plot: what sets each apart from the others, in words."""

from collections import Counter
from collections.abc import Sequence

from tools.logs.run import Run


def run_labels(runs: Sequence[Run]) -> list[str]:
    """A different name for each run: its facts that not all of them share; of equal ones also when they started."""
    all_parts = [_parts(run) for run in runs]
    known = [len({parts[place] for parts in all_parts}) > 1 for place in range(len(all_parts[0]))]
    first = [next((part for part in parts if part), "run") for parts in all_parts]
    names = [
        ", ".join(part for part, differs in zip(parts, known, strict=True) if differs and part) or own
        for parts, own in zip(all_parts, first, strict=True)
    ]
    for when in ("%d %b %H:%M", "%d %b %H:%M:%S"):
        count = Counter(names)
        found = [
            f"{name}, {run.start:{when}}" if count[name] > 1 else name for name, run in zip(names, runs, strict=True)
        ]
        if len(set(found)) == len(runs):
            return found
    return [f"{name} ({run.folder.name})" for name, run in zip(names, runs, strict=True)]


def configuration(run: Run) -> str:
    """Its rung or configuration; of a run without either how it shards; "" if it does not."""
    method = run.facts["method"]
    return run.facts["rung"] or run.facts["config"] or (method if method != "none" else None) or ""


def _parts(run: Run) -> tuple[str, ...]:
    """What a run is, the part that says most first; "" where it is not known."""
    facts = run.facts
    experiment = run.record.get("experiment") or ""
    return (
        configuration(run).replace("_", " ") if facts["rung"] else configuration(run),
        "" if facts["fault"] in (None, "none") else facts["fault"].replace("_", " "),
        facts["model"] or "",
        facts["precision"],
        f"batch {facts['batch_size']} x {facts['grad_acc']}" if facts["batch_size"] else "",
        _count(facts["train_examples"], "example"),
        _count(facts["epochs"], "epoch"),
        _count(facts["world_size"], "process", "processes"),
        _count(facts["nodes"], "node"),
        f"repeat {facts['repeat']}",
        "profiled" if facts["profiled"] else "",
        "with timers" if facts["timed"] else "",
        "" if experiment == facts["exercise"] else experiment,
        "" if run.state == "completed" else run.state,
    )


def _count(number: int | None, one: str, several: str = "") -> str:
    return "" if number is None else f"{number:,} {one if number == 1 else several or one + 's'}"
