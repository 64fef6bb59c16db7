"""A damaged run costs its own figures, never a command, and never another run's figures; cases are drawn by a seed."""

import json
import random
import shutil
from pathlib import Path

from tests.launching import REPO
from tools.logs import figures
from tools.logs.run import SHOWN_STATES, Run
from tools.logs.runs import find_runs
from tools.tables import fill
from tools.tables.table import blank_tables

SOURCE = REPO / "logs/reference/h200x4/custom_model"
A_FOLDER = b"a folder"
ODD_VALUES = [None, True, 10**400, -1, 0, 0.5, float("nan"), "", "x\x1b[2J", [], [1, "x"], {}, {"x": None}]
ODD_VALUES += [{"5": "x"}, {"9" * 400: 50.0}]
# What means something to a reader: these lines and their words, among what does not, are put into its file.
LINES = """\
{'loss': '2.5', 'epoch': '0.5'}
{'eval_loss': 'train_runtime': 'x'} { ' | , - nan 1e999 1.2.3 ٣
[Rank 0] time (ms) | fwd: 141.28 | bwd: 194.50 | step: 679.87
# Collective test starting: all_gather_perf
#  Rank  0 Group  0 Pid 1 on node1 device  0 X
  1024 256 float sum -1 75.18 0.01 0.01 0 75.18 0.01 0.01 0
step,step_time_s,tokens,real_tokens,loss,epoch
1,0.5,8,7,2,1
step,collective,group,dtype,bytes,calls
3,all-gather,0 1,bfloat16,1000,1
# Elapsed time   CPU (%)     Real (MB)   Virtual (MB)
       0.000        5.000     1000.500     2000.000
timestamp, index, name, memory.used [MiB], memory.total [MiB], utilization.gpu [%]
2026/11/21 05:55:41.717, 0, NVIDIA H200, 8 MiB, 143771 MiB, 20 %
slurmstepd: error: *** STEP 2.0 ON n CANCELLED AT x DUE TO TIME LIMIT ***
[rank0]: RuntimeError: CUDA out of memory
""".splitlines(keepends=True)
ODD = ["", "\n", ",", "\r", "\0", "\ufeff", "\x1b[31m", "{", "}", "9" * 400, "9" * 5000]
PIECES = [piece.encode() for piece in (*LINES, *sorted(set("".join(LINES).split())), *ODD * 5)] + [b"\xff\xfe"] * 5


def mutation(drawn: random.Random, sources: dict[str, bytes]) -> tuple[str, bytes | None]:
    """A file and its content after a mutation; None: it is gone; A_FOLDER: a folder has its name."""
    name = drawn.choice([*["run.json", "summary.json"] * 3, *sources, *sources])
    data, new = sources[name], drawn.choice(PIECES)
    if name.endswith(".json") and drawn.random() < 0.75:
        objects = [content := json.loads(data), *(one for one in content.values() if isinstance(one, dict) and one)]
        inner = drawn.choice(objects)
        inner[drawn.choice(list(inner))] = drawn.choice(ODD_VALUES)
        return name, json.dumps(content).encode()
    at = drawn.randrange(len(data))
    return name, drawn.choice([data[:at], data[:at] + new + data[at + drawn.randrange(9) :], None, A_FOLDER])


def shown(run: Run) -> list[str]:
    assert run.state in SHOWN_STATES and isinstance(run.reason, str)
    return [figures.text_of(run, name) for name in figures.OF_ONE_RUN]


def test_mutated_run_costs_only_its_own_figures(tmp_path: Path) -> None:
    drawn, logs = random.Random(63), tmp_path / "custom_model"
    sound, damaged = logs / "20261121-100000-j1", logs / "20261121-110000-j2"
    shutil.copytree(next(path.parent for path in sorted(SOURCE.glob("*/run.json"))), sound)
    (sound / "train.out").write_text("".join(LINES[:3] + LINES[-2:]))
    (sound / "collectives.csv").write_text("".join(LINES[8:10]))
    summary = json.loads((sound / "summary.json").read_text()) | {"exact_match_by_step": {"5": 30.0, "9": 60.0}}
    (sound / "summary.json").write_text(json.dumps(summary))
    shutil.copytree(sound, damaged)
    sources = {path.name: path.read_bytes() for path in sorted(damaged.iterdir())}
    tables = [table for one in ("custom_model", "further/speed-ladder") for table in blank_tables(REPO / one)][:4]
    expected = shown(find_runs(tmp_path)[0])
    assert sum(text[:1].isdigit() for text in expected) >= 10
    for case in range(1600):
        file, data = mutation(drawn, sources)
        (path := damaged / file).unlink()
        if data == A_FOLDER:
            path.mkdir()
        elif data is not None:
            path.write_bytes(data)
        runs = {run.folder: run for run in find_runs(tmp_path)}
        assert shown(runs[sound]) == expected
        assert all(isinstance(text, str) for run in runs.values() for text in shown(run)), (file, data)
        if case % 16 == 0:
            fill.fill(tables[case // 16 % len(tables)], list(runs.values())).markdown()
        if data == A_FOLDER:
            path.rmdir()
        path.write_bytes(sources[file])
