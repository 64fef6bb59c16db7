"""A damaged run costs its own figures, never a command, and never another run's figures."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tools.logs.run import SHOWN_STATES
from tools.logs.runs import find_runs
from tools.tables import fill as tables
from tools.tables.definitions import definitions
from tools.tables.metrics import METRICS

REPO = Path(__file__).parents[2]
SOUND, DAMAGED = "20261121-100000-j1", "20261121-110000-j2"
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from([10**400, -1, 0])
)
VALUES = SCALARS | st.lists(SCALARS, max_size=3) | st.dictionaries(st.text(max_size=4), SCALARS, max_size=2)
BYTES = st.binary(max_size=12) | st.sampled_from(
    [b"\n", b",", b"\r", b"\x00", b"nan", b"1e999", b"'loss': ", b"{", b"}"]
)


@pytest.fixture(scope="module")
def sources() -> dict[str, bytes]:
    """Every kind of file that a run can leave, of a reference run and by hand."""
    folder = next(path.parent for path in sorted((REPO / "logs/reference").glob("h200x4/custom_model/*/run.json")))
    names = ("gpu_memory.csv", "cpu_memory.txt", "cpu_pss.txt", "nccl.log", "steps.csv")
    found = {name: (folder / name).read_bytes()[:2000] for name in names if (folder / name).is_file()}
    found |= {name: (folder / name).read_bytes() for name in ("run.json", "summary.json")}
    found["train.out"] = (
        b"{'loss': '2.5', 'epoch': '0.5'}\n[Rank 0] time (ms) | fwd: 141.28 | bwd: 194.50 | step: 679.87\n"
        b"{'eval_loss': '1.8', 'eval_samples_per_second': '39.4', 'epoch': '1'}\n"
        b"{'train_runtime': '42.3', 'train_samples_per_second': '11.8', 'train_loss': '0.7', 'epoch': '1'}\n"
        b"RuntimeError: CUDA out of memory\n"
    )
    found["collectives.csv"] = b"step,collective,group,dtype,bytes,calls\n3,all-gather,0 1,bfloat16,1000,1\n"
    return found


@pytest.fixture(scope="module")
def tables_to_fill() -> list:
    exercises = ("custom_model", "speed-ladder", "by-hand")
    return [table for exercise in exercises for table in definitions(REPO / exercise)][:4]


def seen(run) -> list[str]:
    assert run.state in SHOWN_STATES and isinstance(run.reason, str)
    return [tables.figure_of(run, metric) for metric in METRICS.values()]


def keys(value, before: tuple = ()) -> list[tuple]:
    """Where a JSON value can be changed: the keys to every object's entries."""
    found = [(*before, key) for key in value]
    return found + [one for key in value if isinstance(value[key], dict) for one in keys(value[key], (*before, key))]


@st.composite
def mutations(draw: st.DrawFn) -> tuple[str, float, object]:
    kind = draw(st.sampled_from(["value", "value", "value", "key", "bytes", "cut", "absent", "folder"]))
    return kind, draw(st.floats(0, 1)), draw(VALUES if kind == "value" else BYTES)


def mutated(data: bytes, kind: str, place: float, new: object) -> bytes | None:
    """The file after a mutation; None: it is gone."""
    if kind in ("value", "key"):
        content = json.loads(data)
        *outer, last = (found := keys(content))[min(int(place * len(found)), len(found) - 1)]
        inner = content
        for key in outer:
            inner = inner[key]
        if kind == "key":
            del inner[last]
        else:
            inner[last] = new
        return json.dumps(content).encode()
    at = int(place * len(data))
    return {"cut": data[:at], "bytes": data[:at] + new + data[at + len(new) :]}.get(kind) if kind != "absent" else None


def test_mutated_run_costs_only_its_own_figures(
    tmp_path_factory, sources: dict[str, bytes], tables_to_fill: list
) -> None:
    logs = tmp_path_factory.mktemp("logs")
    for name in (SOUND, DAMAGED):
        folder = logs / "custom_model" / name
        folder.mkdir(parents=True)
        for file, data in sources.items():
            (folder / file).write_bytes(data)
    sound = seen(find_runs(logs)[0])
    assert sum(text[:1].isdigit() for text in sound) >= 10
    cases = 0

    @settings(max_examples=2000, deadline=None, database=None, derandomize=True, suppress_health_check=HealthCheck)
    @given(mutations(), st.sampled_from([*["run.json", "summary.json"] * 3, *sorted(sources)]))
    def check(mutation: tuple[str, float, object], file: str) -> None:
        nonlocal cases
        cases += 1
        kind, place, new = mutation
        if kind in ("value", "key") and not file.endswith(".json"):
            file = "run.json"
        path = folder / file
        path.unlink()
        if kind == "folder":
            path.mkdir()
        elif (data := mutated(sources[file], kind, place, new)) is not None:
            path.write_bytes(data)
        try:
            runs = {run.folder.name: run for run in find_runs(logs)}
            assert seen(runs[SOUND]) == sound
            for run in runs.values():  # without run.json a folder is no run
                assert all(isinstance(text, str) for text in seen(run))
            tables.fill(tables_to_fill[cases % len(tables_to_fill)], list(runs.values())).markdown()
        finally:
            if path.is_dir():
                path.rmdir()
            path.write_bytes(sources[file])

    check()
    assert cases >= 2000
