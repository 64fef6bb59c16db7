"""A layout's rank: what it holds, computes and sends, beside the same counted by hand."""

import json
from dataclasses import replace

import pytest

from tests.launching import REPO
from tools.logs.dimension_traffic import sent_bytes
from tools.plan.gpus import named
from tools.plan.layout import LOSS_CHUNK, Layout, splits
from tools.plan.predict import predict
from tools.plan.simulate import without_errors
from tools.plan.workload import of_layout
from workshop.run_folder.schema import RunRecord, typed

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
ALONE = Layout(1, 1, 1, 1, 1, 8, 4, 6, 2, False)


def sent(layout: Layout, per_node: int = 8) -> tuple[float, float]:
    return layout.traffic(layout.on_rank(STEP), per_node)


def peaks(layout: Layout) -> list[float]:
    return [part["peak_bytes"] for part in layout.on_rank(STEP)["parts"]]


def proved(layout: Layout) -> float:
    """What a rank sends by the formula that the script's counted bytes are compared with."""
    model = {"parameters": 500, "block_parameters": 400, "embedding_parameters": 50, "layers": 4}
    model |= {"hidden_size": 6, "key_value_size": 2, "untied_embedding": not layout.tied}
    settings = {"padding": "max_length", "bf16": True, "batch_size": 1, "grad_acc": 4, "max_length": layout.length}
    settings |= {"sequence_parallel": True, "gradient_checkpointing": layout.checkpointing, "loss_chunk": LOSS_CHUNK}
    sharding = {"method": layout.script.removesuffix(".py"), "stages": layout.chunks * layout.pp}
    sharding["rank_parameters"] = 500 // layout.tp
    ranks = {"dp_size": layout.dp, "world_size": layout.dp * layout.tp * layout.cp * layout.pp}
    return sent_bytes(typed({"model": model, "settings": settings, "sharding": sharding} | ranks, RunRecord))


@pytest.mark.parametrize(
    "sizes",
    [
        *({"tp": 2}, {"tp": 2, "dp": 2}, {"tp": 4, "length": 2 * LOSS_CHUNK}, {"cp": 2}, {"cp": 2, "dp": 2}, {"dp": 4}),
        *({"pp": 2}, {"pp": 2, "tied": True}, {"pp": 4}, {"pp": 2, "chunks": 2}, {"pp": 4, "tied": True}),
    ],
)
def test_layout_sends_what_is_proved_of_its_script(sizes: dict[str, int]) -> None:
    for checkpointing in (False, True):
        layout = replace(ALONE, checkpointing=checkpointing, **sizes)
        assert 0 < sent(layout)[0] == pytest.approx(proved(layout))


def test_layouts_without_a_proved_formula_send_the_sums_of_their_dimensions() -> None:
    hidden = 2 * 6 * 8  # bytes of a micro-batch
    assert sent(ALONE) == (0, 0)
    # Copies of a pipeline add up 250 fp32 gradients.
    assert sent(replace(ALONE, dp=2, pp=2))[0] == 2 * hidden * 4 + 4 * 250
    both, tensor, context = (sent(replace(ALONE, tp=tp, cp=cp))[0] for tp, cp in ((2, 2), (2, 1), (1, 2)))
    weights = ((2 * 4 + 1) * 2 * 250 / 2, (4 * 900 + 500) * 2 / 2)
    # Each rank has half of the positions, and half of the keys.
    assert both == tensor / 2 + (context - weights[1]) / 2 + weights[0]


def test_group_over_nodes_goes_by_the_network_with_all_groups_beside_it() -> None:
    inside, between = sent(replace(ALONE, dp=2, tp=4), per_node=4)
    assert inside == sent(replace(ALONE, tp=4))[0]
    # Each of the four ranks of a node shares its quarter of the weights with one of the other node.
    assert between == 4 * (2 * 4 + 1) / 2 * 2 * 500 / 4
    # One ring over two nodes leaves each of them once.
    assert sent(replace(ALONE, dp=8), per_node=4) == (0, sent(replace(ALONE, dp=8))[0])


def test_rank_computes_its_share_of_the_whole_rows_attention() -> None:
    """Simulated with a quarter of a row, attention had a sixteenth of the operations instead of a quarter."""
    operations = replace(ALONE, cp=2, tp=2).on_rank(STEP)["operations"]
    assert operations["blocks"]["attention"]["flops"] == 4 * 64
    # The slowest of three stages has two blocks of four, where an even share was 4 / 3, and the head alone.
    stage = replace(ALONE, pp=3).on_rank(STEP)
    assert stage["operations"]["blocks"]["other"]["bytes"] == pytest.approx(8 * 2 / (4 / 3))
    assert stage["operations"]["outside"]["matrix product"]["flops"] == 3 * 16
    assert (stage["parameters"], stage["blocks"]) == (2 * 100 + 50, 2)
    assert replace(ALONE, tp=2).on_rank(STEP)["parameters"] == 250


def test_stage_holds_the_micro_batches_that_are_in_flight() -> None:
    # Of two stages: two blocks of two micro-batches in flight, and beside these what a block needs while it computes.
    assert peaks(replace(ALONE, pp=2)) == [460 + 10 * (2 * 2 - 4), 490 + 10 * (2 * 1 - 4)]
    assert peaks(replace(ALONE, pp=2, micro_batches=1))[0] == 460 + 10 * (2 - 4)
    # Interleaved: p + (p - 1) / v on the first stage, and the copies of one chunk of its layers.
    assert peaks(replace(ALONE, pp=2, chunks=2))[0] == 260 + 10 * (2 * 2.5 - 4)
    # Tensor parallel ranks hold two hidden states of all of them, half of each their own, and in the head its logits.
    assert peaks(replace(ALONE, tp=2, checkpointing=True))[1] == 230 + 96
    assert peaks(replace(ALONE, tp=2))[1] == 230 + 4 * 96
    assert peaks(replace(ALONE, tp=2, checkpointing=True))[5] == 890 + 96 + 4 * 8 * 50 / 6 / 2


@pytest.mark.parametrize(("run", "sizes"), [("023250-p1349", (1, 1, 2)), ("023218-p1140", (1, 2, 1))], ids=["cp", "tp"])
def test_allocated_memory_is_that_of_a_run(run: str, sizes: tuple[int, int, int]) -> None:
    """The loss was the speed ladder's, which never keeps fp32 logits: 17 and 5 % less memory than measured."""
    layout = Layout(*sizes, 1, 1, 8192, 1, 2048, 512, True, True)
    (found,) = without_errors(predict([of_layout({"model_name": "llama-3.2-1b"}, layout, 1)], named("h200")))
    summary = json.loads((RUNS / f"20261125-{run}/summary.json").read_text())
    assert found.ranges["peak_allocated_mib"].expected == pytest.approx(summary["peak_mem_alloc_mib"], rel=0.03)


def test_host_takes_longer_through_dtensor_and_in_a_ring() -> None:
    """With rows of 8,192 tokens a step of tp.py took three times as long as predicted: the GPU waits for Python."""
    alone, context, tensor = (
        replace(ALONE, **sizes).on_rank(STEP)["operations"]["blocks"]["other"]["launches"]
        for sizes in ({}, {"cp": 2}, {"tp": 2})
    )
    assert alone == 10 < context < tensor


def test_bubble_and_the_scripts_that_run_a_layout() -> None:
    assert replace(ALONE, pp=4).bubble == pytest.approx(3 / 7)
    assert replace(ALONE, pp=4, chunks=2).bubble == pytest.approx(3 / 11)
    assert ALONE.bubble == 0
    found = {Layout(*split, 8, 4, 6, 2, False).name: Layout(*split, 8, 4, 6, 2, False).script for split in splits(4)}
    assert found == {
        **{"dp 4": "cp.py", "dp 2 x cp 2": "cp.py", "cp 4": "cp.py", "dp 2 x tp 2": "tp.py", "tp 4": "tp.py"},
        **{"dp 2 x pp 2": "pp.py", "dp 2 x pp 2, interleaved": "pp.py", "pp 4": "pp.py", "pp 4, interleaved": "pp.py"},
        **dict.fromkeys(("tp 2 x cp 2", "tp 2 x pp 2", "tp 2 x pp 2, interleaved"), ""),
        **dict.fromkeys(("cp 2 x pp 2", "cp 2 x pp 2, interleaved"), ""),
    }
