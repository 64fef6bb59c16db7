"""The two rules of weak scaling, counted from shapes; the README's figures are these."""

from dataclasses import replace
from pathlib import Path

import pytest

from custom_model.flops import Shapes
from tools.tables import markdown
from workshop.run_folder.configuration import read_rule
from workshop.run_folder.env_file import sourced

REPO = Path(__file__).parents[2]
RULES = REPO / "custom_model" / "weak_scaling_configs"
DEFAULTS = sourced(REPO / "custom_model/env_vars.sh", {"REPO": str(REPO)})
WORKSHOP = Shapes(*(int(DEFAULTS[name]) for name in ("HIDDEN_SIZE", "FF_DIM", "VOCAB_SIZE", "MAX_LENGTH")))
WITH_BLOOMS_HEAD = replace(WORKSHOP, vocab_size=250_880)


def work_tflop(rule: str, shapes: Shapes = WORKSHOP) -> list[float]:
    return [shapes.flops_per_step(*sizes) / 1e12 for sizes in read_rule(RULES / f"{rule}.json").values()]


def test_K8_published_rule_loses_a_third_of_the_work() -> None:
    assert work_tflop("published", WITH_BLOOMS_HEAD) == pytest.approx([16.5, 10.2, 7.0, 5.4], abs=0.05)
    work = work_tflop("published")
    assert work == pytest.approx([6.38, 5.12, 4.49, 4.18], abs=0.005)
    assert 1 - work[-1] / work[0] == pytest.approx(0.34, abs=0.01)


def test_K8_corrected_rule_keeps_the_work_within_2_percent() -> None:
    work = work_tflop("constant")
    assert max(work) / min(work) < 1.02


def test_K8_figures_of_the_readme_are_computed() -> None:
    lines = (REPO / "custom_model" / "README.md").read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("| GPUs | Batch per GPU | Published: layers |"))
    written = [markdown.cells(line) for line in lines[start + 2 : start + 6]]
    published, constant = read_rule(RULES / "published.json"), read_rule(RULES / "constant.json")
    rules = ("published", WORKSHOP), ("published", WITH_BLOOMS_HEAD), ("constant", WORKSHOP)
    figures = zip(*(work_tflop(*rule) for rule in rules), strict=True)
    assert written == [
        [
            *(str(gpus), str(sizes.batch_size), str(sizes.num_layers), f"{ours:.2f}", f"{blooms:.1f}"),
            *(str(constant[gpus].num_layers), f"{corrected:.2f}"),
        ]
        for (gpus, sizes), (ours, blooms, corrected) in zip(published.items(), figures, strict=True)
    ]
