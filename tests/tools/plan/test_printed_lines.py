"""Every kind of line that the planner prints starts a run that does the planned steps, on this machine's CPU."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.launching import launch, losses, record
from tools.plan.ranking import Candidate, Question, adapters, candidates, layouts

TINY: dict[str, Any] = {"gpu": "h200", "batch": 2, "length": 64}
ONE, TWO = (Question("tiny", gpus, 1, **TINY, tokens=2 * gpus * 128) for gpus in (1, 2))
NODES, LONG = Question("tiny", 2, 2, **TINY, tokens=512), Question("tiny-llama", 2, 1, "h200", 4_112, 1, tokens=1)
RUNG = Question("tiny", 2, 1, **TINY, rung="0_textbook", tokens=512)
KINDS = {
    "baseline": (candidates, ONE, "one GPU"),
    "deepspeed-single-gpu": (candidates, ONE, "zero2_offload"),
    "deepspeed-multi-gpu": (candidates, TWO, "zero3"),
    "fsdp, shipped file": (candidates, TWO, "ddp"),
    "fsdp, written file": (candidates, TWO, "full_shard"),
    "fsdp, two nodes": (candidates, NODES, "full_shard"),
    "lora, one GPU": (adapters, ONE, "LoRA 8, one GPU"),
    "lora, ddp": (adapters, TWO, "LoRA 8, ddp"),
    "speed-ladder, FSDP": (candidates, RUNG, "full_shard"),
    "speed-ladder, ZeRO": (candidates, RUNG, "zero1"),
    "dimensions, tp": (layouts, LONG, "tp 2"),
    "dimensions, cp": (layouts, LONG, "cp 2"),
    "dimensions, pp": (layouts, LONG, "pp 2"),
}


def started(one: Candidate, logs: Path, folder: Path) -> Path:
    """The run folder of the line as it is printed; a configuration that is to be written lies in `folder`."""
    text = one.line
    if one.changed:
        (folder / "planned.json").write_text(json.dumps(one.config))
        text = text.replace("planned.json", str(folder / "planned.json"))
    words = shlex.split(text)
    settings = dict(word.split("=", 1) for word in words if re.match("[A-Z]", word))
    options = dict(word[2:].split("=") for word in words if word.startswith("--"))
    launcher, *arguments = words[len(settings) + len(options) :]
    nodes = {"EMULATED_NODES": options["nodes"]} if "nodes" in options else {}
    small = {"GENERATE_SIZE": "0", "EVAL_SIZE": "4", "SAVE": "no", "GPUS_PER_NODE": options["gpus-per-node"]}
    return launch(logs, launcher, *arguments, **settings, **nodes, **small)


@pytest.mark.parametrize("kind", KINDS)
def test_printed_line_starts_a_run_of_the_planned_steps(kind: str, tmp_path: Path) -> None:
    way, question, strategy = KINDS[kind]
    # The last one has the smallest micro-batch, and checkpointing where there is any.
    *_, one = (one for one in way(question) if one.strategy == strategy)
    (tmp_path / "logs").mkdir()
    run = started(one, tmp_path / "logs", tmp_path)
    assert len(losses(run)) == question.steps == one.workload.steps
    settings, layout = record(run)["settings"], one.workload.layout
    copies = layout.dp if layout else question.gpus
    assert settings["batch_size"] * settings["grad_acc"] * copies == question.gpus * question.batch
