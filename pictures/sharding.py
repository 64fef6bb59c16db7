"""What each rank holds and when it is gathered: ZeRO, offload, FSDP."""

from pictures.svg import GRADIENTS, OPTIMIZER, WEIGHTS, Picture
from pictures.timeline import (
    OWN,
    WHOLE,
    always,
    explain_timeline,
    from_forward_to_backward,
    gradients_until,
    timeline,
    while_computing,
)

PARTS = (("optimizer", 12, OPTIMIZER, 1), ("gradients", 2, GRADIENTS, 2), ("weights", 2, WEIGHTS, 3))
STATES = {"weights": WEIGHTS, "gradients": GRADIENTS, "optimizer": OPTIMIZER}


def zero_stages() -> Picture:
    """Bytes per parameter on each of two ranks, by stage."""
    picture = Picture(
        900,
        330,
        "What each of two GPUs keeps, ZeRO stage 0 to 3",
        "Stage 0: both GPUs keep weights, gradients and optimizer states whole, 16 bytes per parameter. Stage 1: each "
        "keeps half of the optimizer states, 10 bytes. Stage 2: half of the gradients too, 9 bytes. Stage 3: half of "
        "everything, 8 bytes.",
    )
    for stage in range(4):
        left = 24 + stage * 218
        picture.words(left + 97, 30, f"Stage {stage}", 15, "middle", bold=True)
        for rank in range(2):
            x, y = left + rank * 103, 62
            picture.words(x + 46, 52, f"GPU {rank}", 12, "middle")
            for _, size, fill, split_from in PARTS:
                height = size * 11
                for half in range(2):
                    kept = stage < split_from or half == rank
                    picture.box(x + half * 46, y, 46, height, fill if kept else "none", dashed=not kept)
                y += height + 4
        left_bytes = sum(size / 2 if stage >= split_from else size for _, size, _, split_from in PARTS)
        picture.words(left + 97, 270, f"{left_bytes:g} bytes per parameter", 13, "middle", bold=True)
    picture.legend(24, 308, {"optimizer, 12 bytes": OPTIMIZER, "gradients, 2": GRADIENTS, "weights, 2": WEIGHTS}, 160)
    picture.words(876, 308, "dashed: the other GPU keeps it", 12, "end")
    return picture


def zero_step() -> Picture:
    """What one rank of two holds during a step, ZeRO-1 to 3."""
    picture = Picture(
        900,
        347,
        "One step of ZeRO on one of two GPUs: what it holds, and when it is gathered",
        "Three layers. F1 to F3 is the forward pass, B3 to B1 the backward pass. In all stages the GPU has its own "
        "part of the optimizer's states only. ZeRO-1: weights are always whole; gradients are whole from their "
        "layer's backward pass to the update. ZeRO-2: of each layer's gradients only the GPU's own part stays after "
        "its backward pass. ZeRO-3: of the weights, too, only the own part stays; a layer is gathered before it "
        "computes, in the forward and in the backward pass, and freed after it.",
    )
    sum_up = [
        "After B1: gradients are summed up.",
        "Update: each GPU its part of the weights;",
        "an all-gather makes them whole again.",
    ]
    reduce = ["After each B: the layer's gradients are", "reduced; a GPU keeps its own part.", "Update: as ZeRO-1."]
    gather = [
        "Before F and B: all-gather of the layer;",
        "after: freed. Gradients as ZeRO-2.",
        "Update: each GPU its own part.",
    ]
    timeline(picture, 24, "ZeRO-1", always(WHOLE), gradients_until(WHOLE), always(OWN), sum_up)
    timeline(picture, 316, "ZeRO-2", always(WHOLE), gradients_until(OWN), always(OWN), reduce)
    timeline(picture, 608, "ZeRO-3", while_computing, gradients_until(OWN), always(OWN), gather)
    explain_timeline(picture)
    return picture


def fsdp_units() -> Picture:
    """What a GPU holds during one step with DDP and with two of FSDP's strategies."""
    picture = Picture(
        900,
        347,
        "One step of DDP and FSDP on one GPU: when each block is whole",
        "Three blocks, each a shard unit. DDP: weights and optimizer always whole, gradients whole until the update. "
        "With FSDP a GPU has its own part of the optimizer only. FULL_SHARD: a "
        "block's weights are whole only while it computes, once in the forward and once in the backward pass. "
        "SHARD_GRAD_OP: they stay whole from the forward to the backward pass.",
    )
    all_reduce = ["After each B: all-reduce of the gradients.", "Every GPU updates everything."]
    twice = [
        "All-gather before F and before B, freed",
        "after; reduce-scatter of gradients after B.",
        "Update: each GPU its own part.",
    ]
    once = [
        "All-gather before F only: half as many,",
        "and more memory between F and B.",
        "Gradients and update as FULL_SHARD.",
    ]
    timeline(picture, 24, "DDP", always(WHOLE), gradients_until(WHOLE), always(WHOLE), all_reduce)
    timeline(picture, 316, "FULL_SHARD", while_computing, gradients_until(OWN), always(OWN), twice)
    timeline(picture, 608, "SHARD_GRAD_OP", from_forward_to_backward, gradients_until(OWN), always(OWN), once)
    explain_timeline(picture)
    return picture


def offload() -> Picture:
    """Which memory holds what, with the three stages' offload."""
    picture = Picture(
        900,
        330,
        "Offload: what lies in GPU memory and what in CPU memory",
        "ZeRO-1 with offload: weights and gradients on the GPU, optimizer in CPU memory. ZeRO-2: gradients go to CPU "
        "memory too. ZeRO-3: weights as well; a layer's weights come to the GPU when it computes. The CPU updates the "
        "weights in every stage.",
    )
    columns = (
        ("ZeRO-1 + offload", ("weights", "gradients"), ("optimizer",), "gradients", "new weights"),
        ("ZeRO-2 + offload", ("weights",), ("gradients", "optimizer"), "gradients, in buckets", "new weights"),
        ("ZeRO-3 + offload", (), ("weights", "gradients", "optimizer"), "gradients", "one layer's weights"),
    )
    for number, (title, on_gpu, on_cpu, down, up) in enumerate(columns):
        x = 24 + number * 292
        picture.words(x + 134, 30, title, 15, "middle", bold=True)
        for y, name, holds in ((44, "GPU memory", on_gpu), (216, "CPU memory, where Adam runs", on_cpu)):
            picture.box(x, y, 268, 92)
            picture.words(x + 10, y + 18, name, 12)
            for place, part in enumerate(holds):
                picture.box(x + 10 + place * 84, y + 30, 80, 26, STATES[part])
                picture.words(x + 50 + place * 84, y + 48, part, 12, "middle", ink="#ffffff", bold=True)
        if not on_gpu:
            picture.box(x + 10, 74, 140, 26, "none", WEIGHTS, dashed=True)
            picture.words(x + 80, 92, "one layer's weights", 12, "middle")
        picture.words(x + 10, 122, "activations, logits", 12)
        picture.arrow(x + 60, 138, x + 60, 212)
        picture.words(x + 70, 166, down, 12)
        picture.arrow(x + 206, 212, x + 206, 138)
        picture.words(x + 196, 198, up, 12, "end")
    return picture


def hybrid_shard() -> Picture:
    """Who holds which part, and what crosses the network."""
    picture = Picture(
        900,
        300,
        "FULL_SHARD and HYBRID_SHARD on two nodes of two GPUs",
        "FULL_SHARD: each of four GPUs holds a quarter; every gathering crosses the network between the nodes. "
        "HYBRID_SHARD: each node holds the whole model, each of its GPUs a half; gathering stays inside the node, only "
        "gradients cross.",
    )
    for number, (title, parts) in enumerate((("FULL_SHARD", 4), ("HYBRID_SHARD, 2 copies x 2 shards", 2))):
        left = 24 + number * 440
        picture.words(left + 206, 30, title, 15, "middle", bold=True)
        for node in range(2):
            x = left + node * 216
            picture.box(x, 48, 196, 150)
            picture.words(x + 10, 66, f"node {node}", 12)
            for gpu in range(2):
                own = (node * 2 + gpu) % parts
                top = 78 + gpu * 72
                picture.words(x + 10, top + 20, f"GPU {node * 2 + gpu}", 12)
                for part in range(parts):
                    width = 128 / parts
                    kept = part == own
                    picture.box(x + 56 + part * width, top, width, 32, WEIGHTS if kept else "none", dashed=not kept)
            if parts == 2:
                picture.arrow(x + 120, 112, x + 120, 148, both=True)
        if parts == 4:
            picture.arrow(left + 190, 130, left + 222, 130, both=True)
            for x in (left + 100, left + 316):
                picture.arrow(x, 114, x, 146, both=True)
            lines = (
                "Each GPU holds a quarter. Every gathering of a unit",
                "crosses the network, twice per micro-batch.",
            )
        else:
            for top in (94, 166):
                picture.arrow(left + 190, top, left + 222, top, both=True)
            lines = (
                "Gathering stays inside a node. Between the nodes",
                "only gradients are added up: an all-reduce per step.",
            )
        for line, text in enumerate(lines):
            picture.words(left, 230 + line * 18, text, 13)
    picture.legend(24, 282, {"the part that a GPU holds": WEIGHTS})
    return picture


def communication() -> Picture:
    """When a step sends, and what. How much is for the reader to predict."""
    picture = Picture(
        900,
        220,
        "What each rank communicates in one step",
        "DDP: an all-reduce of the gradients after the backward pass. ZeRO-1 and 2: a reduce-scatter of the gradients, "
        "and after the update an all-gather of the weights. ZeRO-3 and FULL_SHARD: an all-gather of the weights for "
        "the forward pass and one for the backward pass, and a reduce-scatter of the gradients.",
    )
    gather, scatter = ("all-gather", "weights", WEIGHTS), ("reduce-scatter", "gradients", GRADIENTS)
    rows = (
        ("DDP", ("forward", "backward", ("all-reduce", "gradients", GRADIENTS), "update")),
        ("ZeRO-1, ZeRO-2", ("forward", "backward", scatter, "update", gather)),
        ("ZeRO-3, FULL_SHARD", (gather, "forward", gather, "backward", scatter, "update")),
    )
    for number, (title, parts) in enumerate(rows):
        x, y = 186, 24 + number * 66
        picture.words(176, y + 29, title, 13, "end", bold=True)
        for part in parts:
            if isinstance(part, str):
                picture.box(x, y, 78, 46)
                picture.words(x + 39, y + 28, part, 12, "middle")
                x += 84
            else:
                name, sent, fill = part
                picture.box(x, y, 108, 46, fill)
                picture.words(x + 54, y + 20, name, 12, "middle", ink="#ffffff", bold=True)
                picture.words(x + 54, y + 37, sent, 12, "middle", ink="#ffffff", bold=True)
                x += 114
    return picture
