"""constants.json: every constant that was fitted to the reference runs, with its unit and what it is multiplied with.

`python -m tools plan --fit` writes it anew from logs/reference. It also holds how far the runs of a kind were from
their predictions, each predicted without its own configuration: the intervals of new predictions.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tools.plan import reserved, timing, whole_run
from tools.plan.fitting import Constants, Terms
from tools.plan.reserved import Beside

FILE = Path(__file__).with_name("constants.json")
HOW = (
    "Fitted by `python -m tools plan --fit` to the completed runs of logs/reference (NVIDIA H200, one H100), one point "
    "per configuration (repeats: their median), without those with a profiler or DeepSpeed's timers. "
    "measured_per_predicted: single runs of a kind, predicted without their configuration, 2.5th and 97.5th percentile."
)
FORMULAS: dict[str, Terms] = {
    "reserved_mib": reserved.TERMS,
    "step_time_s": timing.TERMS,
    "cpu_mib": whole_run.CPU_TERMS,
    "other_s": whole_run.OTHER_TERMS,
}
Ratios = dict[str, tuple[float, float]]


@dataclass(frozen=True)
class Fitted:
    """Attributes: constants, ratios: by formula; measured / predicted by kind; beside: CUDA's and NCCL's own memory."""

    beside: Beside
    constants: dict[str, Constants]
    ratios: dict[str, Ratios]


def save(fitted: Fitted) -> None:
    formulas = {
        name: {
            "constants": {
                term: {"value": float(f"{fitted.constants[name][term]:.4g}"), "unit": about.unit, "times": about.text}
                for term, about in terms.items()
            },
            "measured_per_predicted": fitted.ratios[name],
        }
        for name, terms in FORMULAS.items()
    }
    content = {"how": HOW, **formulas, "beside_reserved_mib": fitted.beside}
    FILE.write_text(json.dumps(content, indent=1) + "\n")


@cache
def load() -> Fitted:
    content = json.loads(FILE.read_text())
    constants = {
        name: {term: about["value"] for term, about in content[name]["constants"].items()} for name in FORMULAS
    }
    ratios = {
        name: {kind: tuple(pair) for kind, pair in content[name]["measured_per_predicted"].items()} for name in FORMULAS
    }
    beside = {name: tuple(three) for name, three in content["beside_reserved_mib"].items()}
    return Fitted(beside, constants, ratios)
