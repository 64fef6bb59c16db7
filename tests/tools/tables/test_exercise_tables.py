"""Cells that older material filled wrongly, and the READMEs' arithmetic, computed here again."""

import re
from pathlib import Path

from tests.filled_tables import filled_table
from tools.logs.runs import find_runs
from tools.tables.comparisons import Comparison
from tools.tables.fill import fill
from tools.tables.table import blank_tables
from workshop.record.exercises import REPO, exercises_with

MULTI = REPO / "deepspeed-multi-gpu"
# Width and number of blocks.
BLOOM = {"560m": (1024, 24), "1b7": (2048, 24), "3b": (2560, 30), "7b1": (4096, 30)}
FABRIC = """\
# Collective test starting: all_reduce_perf
#  Rank  0 Group  0 Pid  1 on node1 device  0 NVIDIA H200
#  Rank  0 Group  0 Pid  2 on node2 device  0 NVIDIA H200
  4194304  1048576  float  sum  -1  N/A  N/A  N/A  N/A  9491.78  0.442  12.345  N/A
"""


def test_K7_samples_per_second_are_the_total_which_grows_under_weak_scaling(make_run, logs: Path) -> None:
    for gpus, examples, speed in ((2, 20_000, 20.0), (4, 40_000, 40.0), (8, 10_000, 10.0)):  # the last: strong scaling
        place = {"exercise": "deepspeed-multi-gpu", "config": "zero0", "gpus_per_node": gpus, "world_size": gpus}
        record = place | {"train_examples": examples, "model": {"name": "bloom-1b7"}}
        make_run(f"r{gpus}", record, {"train/samples_per_second": speed, "train/steps_per_second": 0.625})
    rows = filled_table(MULTI, "5", logs)
    assert [*rows["Samples/s"].values()] == ["20.00", "40.00", "not measured", "not measured"]
    assert [*rows["Steps/sec"].values()][:2] == ["0.625", "0.625"]


def test_K12_bandwidth_of_another_world_is_not_shown(make_run, logs: Path) -> None:
    place = {"exercise": "custom_model", "nodes": 2, "world_size": 2, "settings": {"use_fsdp": True}}
    make_run("r1", place | {"model": {"name": "simple-gpt"}}, **{"nccl.log": FABRIC})
    row = filled_table(REPO / "custom_model", "15", logs)["2 nodes"]
    assert row["AllReduce BW (GB/s)"] == "a world of 1, not 2"


def test_losses_are_compared_with_the_undisturbed_run_on_such_a_gpu(make_run, logs: Path) -> None:
    steps = "step,step_time_s,tokens,real_tokens,loss,epoch\n1,1.0,8,8,{0},0.5\n2,1.0,8,8,{0},1.0\n"
    for number, (fault, gpu, loss) in enumerate([("none", "H200", 5), ("preemption", "H200", 5), ("none", "H100", 6)]):
        place = {"exercise": "resilience", "config": "ddp", "gpu_names": [gpu], "settings": {"fault": fault}}
        make_run(f"r{number}", place, {}, **{"steps.csv": steps.format(loss)})
    row = filled_table(REPO / "further/resilience", "22", logs)["preemption"]
    assert (row["Loss equal"], row["Largest loss difference"]) == ("yes", "0.0000000")


def parameters(name: str) -> int:
    """Tied embedding and its norm, the blocks, the last norm."""
    width, blocks = BLOOM[name]
    return 250_880 * width + 2 * width + blocks * (12 * width**2 + 13 * width) + 2 * width


def bytes_left(stage: int, gpus: float) -> float:
    """Per parameter on each GPU: fp16 weights, fp16 gradients, fp32 weights with two moments."""
    parts = ((2, 3), (2, 2), (12, 1))  # bytes, and the stage from which on they are split
    return sum(size / gpus if stage >= split_from else size for size, split_from in parts)


def test_K7_memory_of_the_stages_is_16_bytes_split_and_has_no_activations_in_it() -> None:
    readme = (MULTI / "README.md").read_text()
    for stage in range(4):
        (line,) = re.findall(rf"^\| {stage} \|(.*)\|$", readme, re.MULTILINE)
        figures = [f"{bytes_left(stage, gpus):g}" for gpus in (2, 8)]
        gib = [f"{bytes_left(stage, gpus) * parameters('1b7') / 2**30:.1f}" for gpus in (2, 8)]
        assert [cell.strip() for cell in line.split("|")][-4:] == [figures[0], gib[0], figures[1], gib[1]]


def test_repeats_behind_a_cell_of_the_results_ran_one_configuration() -> None:
    runs = find_runs(REPO / "logs/reference")
    checked = 0
    for folder in exercises_with("tables.py"):
        tables = {table.number: table for table in blank_tables(folder)}
        text = (folder / "RESULTS.md").read_text()
        for command in re.findall(r"<!-- generated: python -m tools fill (.*) -->", text):
            places = [REPO / name for name in re.findall(r"--logs (\S+)", command)]
            shown = [run for run in runs if run.folder.parents[1] in places]
            only = re.findall(r"--only (\S+)", command)
            for number in only[0].split(",") if only else tables:
                for place, cell in fill(tables[number], shown).cells.items():
                    if not isinstance(cell.figure, Comparison):
                        configurations = {run.record.config for run in cell.runs}
                        assert len(configurations) <= 1, (folder.name, number, place, configurations)
                        checked += len(cell.runs) > 1
    assert checked > 100
