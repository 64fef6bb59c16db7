"""A damaged run costs its own figures, never a command, and never another run's figures."""

import json
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tools.logs.figures import FIGURES
from tools.logs.run import SHOWN_STATES
from tools.logs.runs import find_runs
from tools.tables import fill as tables
from tools.tables.labels import blank_tables
from tools.tables.repository import exercise_folder

REPO = Path(__file__).parents[2]
SOURCE = REPO / "logs/reference/h200x4/custom_model"
FOLDER = b"a folder"
SOUND, DAMAGED = "20261121-100000-j1", "20261121-110000-j2"
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from([10**400, -1, 0])
)
VALUES = SCALARS | st.lists(SCALARS, max_size=3) | st.dictionaries(st.text(max_size=4), SCALARS, max_size=2)
ODD = [b"\n", b",", b"\r", b"\x00", b"nan", b"1e999", b"'loss': ", b"{", b"}"]
BYTES = st.binary(max_size=12) | st.sampled_from(ODD)
TRAIN_OUT = b"""\
{'loss': '2.5', 'epoch': '0.5'}
[Rank 0] time (ms) | fwd: 141.28 | bwd: 194.50 | step: 679.87
{'eval_loss': '1.8', 'eval_samples_per_second': '39.4', 'epoch': '1'}
{'train_runtime': '42.3', 'train_samples_per_second': '11.8', 'train_loss': '0.7', 'epoch': '1'}
RuntimeError: CUDA out of memory
"""


def every_kind_of_file() -> dict[str, bytes]:
    """What a run can leave, of a reference run and by hand."""
    folder = next(path.parent for path in sorted(SOURCE.glob("*/run.json")))
    names = ("gpu_memory.csv", "cpu_memory.txt", "cpu_pss.txt", "nccl.log", "steps.csv")
    found = {name: (folder / name).read_bytes()[:2000] for name in names if (folder / name).is_file()}
    found |= {name: (folder / name).read_bytes() for name in ("run.json", "summary.json")}
    collectives = b"step,collective,group,dtype,bytes,calls\n3,all-gather,0 1,bfloat16,1000,1\n"
    return found | {"train.out": TRAIN_OUT, "collectives.csv": collectives}


def seen(run) -> list[str]:
    assert run.state in SHOWN_STATES and isinstance(run.reason, str)
    return [tables.figure_of(run, figure) for figure in FIGURES.values()]


def objects(value: dict) -> list[tuple[dict, str]]:
    """Where a JSON value can be changed: every object in it with each of its keys."""
    found = [(value, key) for key in value]
    return found + [one for inner in value.values() if isinstance(inner, dict) for one in objects(inner)]


@st.composite
def mutations(draw: st.DrawFn, sources: dict[str, bytes]) -> tuple[str, bytes | None]:
    """A file and its content after a mutation; None: it is gone; FOLDER: a folder has its name."""
    name = draw(st.sampled_from([*["run.json", "summary.json"] * 3, *sorted(sources)]))
    data, place = sources[name], draw(st.floats(0, 1, exclude_max=True))
    if name.endswith(".json") and draw(st.integers(0, 3)):
        found = objects(content := json.loads(data))
        inner, key = found[int(place * len(found))]
        inner[key] = draw(VALUES)
        if draw(st.integers(0, 3)) == 0:
            del inner[key]
        return name, json.dumps(content).encode()
    at, new = int(place * len(data)), draw(BYTES)
    return name, draw(st.sampled_from([data[:at], data[:at] + new + data[at + len(new) :], None, FOLDER]))


def test_mutated_run_costs_only_its_own_figures(tmp_path_factory) -> None:
    logs, sources, cases = tmp_path_factory.mktemp("logs"), every_kind_of_file(), 0
    exercises = ("custom_model", "speed-ladder", "by-hand")
    to_fill = [table for exercise in exercises for table in blank_tables(exercise_folder(exercise))][:4]
    for name in (SOUND, DAMAGED):
        folder = logs / "custom_model" / name
        folder.mkdir(parents=True)
        for file, data in sources.items():
            (folder / file).write_bytes(data)
    sound = seen(find_runs(logs)[0])
    assert sum(text[:1].isdigit() for text in sound) >= 10

    @settings(max_examples=2000, deadline=None, database=None, derandomize=True, suppress_health_check=HealthCheck)
    @given(mutations(sources))
    def check(mutation: tuple[str, bytes | None]) -> None:
        nonlocal cases
        cases += 1
        file, data = mutation
        path = folder / file
        path.unlink()
        if data == FOLDER:
            path.mkdir()
        elif data is not None:
            path.write_bytes(data)
        runs = {run.folder.name: run for run in find_runs(logs)}
        assert seen(runs[SOUND]) == sound
        for run in runs.values():  # without run.json a folder is no run
            assert all(isinstance(text, str) for text in seen(run))
        tables.fill(to_fill[cases % len(to_fill)], list(runs.values())).markdown()
        if data == FOLDER:
            path.rmdir()
        path.write_bytes(sources[file])

    check()
    assert cases >= 2000
