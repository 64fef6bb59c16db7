"""Every kind of line that the planner prints trains the planned steps, on this machine's CPU."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.launching import REPO, launch, losses, record
from tests.trainings_on_ranks import Ranks, Training, training
from tools.plan.candidates import ADAPTERS, Candidate, Question, candidates, layouts
from tools.submit.submissions import Submission, read_argument

TINY: dict[str, Any] = {"gpu": "h200", "batch": 2, "length": 64}
ONE, TWO = (Question("tiny", gpus, 1, **TINY, tokens=2 * gpus * 128) for gpus in (1, 2))
with_adapters = partial(candidates, recipes=ADAPTERS)
NODES, LONG = Question("tiny", 2, 2, **TINY, tokens=512), Question("tiny-llama", 2, 1, "h200", 4_112, 1, tokens=1)
KINDS = {
    "baseline": (candidates, ONE, "one GPU"),
    "deepspeed-single-gpu": (candidates, ONE, "zero2_offload"),
    "lora, one GPU": (with_adapters, ONE, "LoRA one GPU"),
    "deepspeed-multi-gpu": (candidates, TWO, "zero3"),
    "fsdp, shipped file": (candidates, TWO, "ddp"),
    "fsdp, written file": (candidates, TWO, "full_shard"),
    "fsdp, two nodes": (candidates, NODES, "full_shard"),
    "lora, ddp": (with_adapters, TWO, "LoRA ddp"),
    "lora, ZeRO": (with_adapters, TWO, "LoRA zero2"),
    "dimensions, tp": (layouts, LONG, "tp 2"),
    "dimensions, cp": (layouts, LONG, "cp 2"),
    "dimensions, pp": (layouts, LONG, "pp 2"),
}
SMALL = {"GENERATE_SIZE": "0", "EVAL_SIZE": "4", "SAVE": "no"}


def printed(kind: str, folder: Path) -> tuple[Candidate, Submission]:
    """The line, read as `submit` reads it; a configuration that is to be written lies in `folder`."""
    way, question, strategy = KINDS[kind]
    # The last one has the smallest micro-batch, and checkpointing where there is any.
    *_, one = (one for one in way(question) if one.strategy == strategy)
    (folder / f"{kind}.json").write_text(json.dumps(one.written))
    text = one.line.replace("planned.json", f"'{folder}/{kind}.json'")
    return one, read_argument(text, {})


@pytest.fixture(scope="module")
def runs(ranks: Ranks, tmp_path_factory: pytest.TempPathFactory, optimizers_compiled: None) -> Path:
    folder = tmp_path_factory.mktemp("printed")

    def planned(kind: str) -> Training:
        _, line = printed(kind, folder)
        config = next((word for word in line.arguments if word.endswith(".json")), "")
        script = [word for word in line.arguments if word.endswith(".py")] or ["train.py"]
        return training(folder / kind, line.exercise.name, config, script, **line.settings | SMALL)

    for gpus in (1, 2):
        own = [kind for kind, (_, question, _) in KINDS.items() if question.gpus == gpus]
        ranks.train([planned(kind) for kind in own], ranks=gpus)
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_printed_line_trains_the_planned_steps(kind: str, runs: Path, tmp_path: Path) -> None:
    question = KINDS[kind][1]
    one, _ = printed(kind, tmp_path)
    run = runs / kind
    assert len(losses(run)) == question.steps == one.workload.steps
    settings, layout = record(run)["settings"], one.workload.layout
    copies = layout.dp if layout else question.gpus
    assert settings["batch_size"] * settings["grad_acc"] * copies == question.gpus * question.batch


@pytest.mark.slow
@pytest.mark.usefixtures("optimizers_compiled")
@pytest.mark.parametrize("kind", ["deepspeed-single-gpu", "lora, one GPU", "dimensions, pp"])
def test_launcher_that_no_other_test_runs_trains_them_too(kind: str, tmp_path: Path) -> None:
    one, line = printed(kind, tmp_path)
    own = line.settings | SMALL | {"GPUS_PER_NODE": str(KINDS[kind][1].gpus)}
    run = launch(tmp_path, str((line.exercise / line.launcher).relative_to(REPO)), *line.arguments, **own)
    assert len(losses(run)) == one.workload.steps
