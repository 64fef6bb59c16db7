"""A layout's rank: what it holds, computes and sends, beside the same counted by hand."""

import json
from dataclasses import replace

import pytest

from tests.launching import REPO
from tools.logs.communication import sent_bytes
from tools.plan.gpus import named
from tools.plan.layout import LOSS_CHUNK, Layout
from tools.plan.predict import predict
from tools.plan.workload_of import of_layout
from workshop.record.schema import RunRecord, typed

RUNS = REPO / "logs/reference/h200x2-2026-11-25a-dimensions/dimensions"

# Four blocks of 100 parameters between an embedding and a head of 50 each. A block keeps 10 bytes, and in the forward
# pass 200 of autocast's copies.
UNITS = ["embedding", "0", "1", "2", "3", "head"]
PEAKS = [5, 230, 440, 650, 860, 890, 90, 60, 50, 40, 30, 5]
STEP = {
    "parts": [
        {"peak_bytes": peak, "gradient_bytes": 8, "unit": unit}
        for peak, unit in zip(PEAKS, UNITS + UNITS[::-1], strict=True)
    ],
    **{"parameters": 500, "block_parameters": 100, "blocks": 4, "largest_parameter": 50, "parameter_tensors": 8},
    "operations": {
        "blocks": {"attention": {"flops": 64, "launches": 1}, "other": {"launches": 10, "bytes": 8}},
        "outside": {"matrix product": {"flops": 16, "bytes": 2}},
    },
}
# One row of 8 tokens in each of 4 micro-batches; 6 numbers in a hidden state, 2 in the keys.
ALONE = Layout(1, 1, 1, 1, 8, 4, 6, 2, False)


def proved(layout: Layout) -> float:
    """What a rank sends by the formula that the script's counted bytes are compared with."""
    model = {"parameters": 500, "block_parameters": 400, "embedding_parameters": 50, "layers": 4}
    model |= {"hidden_size": 6, "key_value_size": 2, "untied_embedding": not layout.tied}
    settings = {"padding": "max_length", "bf16": True, "batch_size": 1, "grad_acc": 4, "max_length": layout.length}
    settings |= {"sequence_parallel": True, "gradient_checkpointing": layout.checkpointing, "loss_chunk": LOSS_CHUNK}
    sharding = {"method": layout.dimension, "stages": layout.pp}
    sharding["rank_parameters"] = 500 // layout.tp
    ranks = {"dp_size": layout.dp, "world_size": layout.dp * layout.tp * layout.cp * layout.pp}
    return sent_bytes(typed({"model": model, "settings": settings, "sharding": sharding} | ranks, RunRecord))


@pytest.mark.parametrize(
    "sizes",
    [
        *({"tp": 2}, {"tp": 2, "dp": 2}, {"tp": 4, "length": 2 * LOSS_CHUNK}, {"cp": 2}, {"cp": 2, "dp": 2}, {"dp": 4}),
        *({"pp": 2}, {"pp": 2, "tied": True}, {"pp": 4}, {"pp": 4, "tied": True}),
    ],
)
def test_layout_sends_what_is_proved_of_its_script(sizes: dict[str, int]) -> None:
    for checkpointing in (False, True):
        layout = replace(ALONE, checkpointing=checkpointing, **sizes)
        assert 0 < layout.traffic(layout.on_rank(STEP), 8)[0] == pytest.approx(proved(layout))


def test_attention_without_a_kernel_is_planned_where_ranks_have_whole_rows() -> None:
    """As GraniteSWA's, whose sinks no kernel of PyTorch knows: `plan model` ended in a KeyError."""
    blocks = {"other": STEP["operations"]["blocks"]["other"]}
    step = STEP | {"operations": STEP["operations"] | {"blocks": blocks}}
    assert replace(ALONE, pp=2).on_rank(step)["operations"]["blocks"].keys() == {"other"}


@pytest.mark.parametrize(("run", "sizes"), [("023250-p1349", (1, 1, 2)), ("023218-p1140", (1, 2, 1))], ids=["cp", "tp"])
def test_allocated_memory_is_that_of_a_run(run: str, sizes: tuple[int, int, int]) -> None:
    """The loss was the speed ladder's, which never keeps fp32 logits: 17 and 5 % less memory than measured."""
    layout = Layout(*sizes, 1, 8192, 1, 2048, 512, True, True)
    found = predict(of_layout({"model_name": "llama-3.2-1b"}, layout, 1), named("h200"))
    summary = json.loads((RUNS / f"20261125-{run}/summary.json").read_text())
    assert found.ranges["peak_allocated_mib"].expected == pytest.approx(summary["peak_mem_alloc_mib"], rel=0.03)
