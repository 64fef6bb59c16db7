"""What each rank holds and when it is gathered: ZeRO, offload, FSDP."""

from pictures.svg import GRADIENTS, GREY, OPTIMIZER, WEIGHTS, WHITE, Picture

# What a rank holds of layers 1 to 3 while a step goes through them: # a whole layer, - its own part of it.
TIMES = ("F1", "F2", "F3", "B3", "B2", "B1", "update")
ALWAYS_WHOLE, ALWAYS_OWN = ["#######"] * 3, ["-------"] * 3
WHOLE_WHILE_COMPUTING = ["#----#-", "-#--#--", "--##---"]
WHOLE_FROM_F_TO_B = ["######-", "-####--", "--##---"]
GRADIENTS_STAY, GRADIENTS_REDUCED = ["     ##", "    ###", "   ####"], ["     #-", "    #--", "   #---"]


def timeline(
    picture: Picture, x: float, title: str, weights: list[str], gradients: list[str], optimizer: list[str], notes: str
) -> None:
    """One rank's states over a step: a full box is a whole layer, a low one the rank's own part.

    The optimizer's states have one row: they are the same for all layers.
    """
    picture.words(x, 34, title, 14, bold=True)
    for column, time in enumerate(TIMES):
        picture.words(x + 76 + column * 29, 56, time, 10, "middle")
    rows = [(f"weights {layer}", WEIGHTS, held, 43 + layer * 23) for layer, held in enumerate(weights, 1)]
    rows += [(f"gradients {layer}", GRADIENTS, held, 120 + layer * 23) for layer, held in enumerate(gradients, 1)]
    for name, fill, held_at, top in (*rows, ("optimizer", OPTIMIZER, optimizer[0], 220)):
        picture.words(x + 58, top + 14, name, 11, "end")
        for column, held in enumerate(held_at):
            height = {"#": 18, "-": 7, " ": 0}[held]
            left = x + 62 + column * 29
            picture.box(left, top, 27, 18, "none", GREY)
            if height:
                picture.box(left, top + 18 - height, 27, height, fill)
    for line, note in enumerate(notes.split("\n")):
        picture.words(x, 267 + line * 17, note, 12)


def explain_timeline(picture: Picture) -> None:
    boxes = "Full box: the layer is whole. Low box: the GPU's own part."
    picture.words(24, 333, f"F1: forward pass of layer 1. B1: its backward pass. {boxes}", 12)


def zero_stages(picture: Picture) -> None:
    """What each of two GPUs keeps, ZeRO stage 0 to 3

    Stage 0: both GPUs keep weights, gradients and optimizer states whole, 16 bytes per parameter. Stage 1: each keeps
    half of the optimizer states, 10 bytes. Stage 2: half of the gradients too, 9 bytes. Stage 3: half of everything, 8
    bytes.
    """
    parts = ((12, OPTIMIZER, 1), (2, GRADIENTS, 2), (2, WEIGHTS, 3))  # bytes, and the stage that splits them
    for stage in range(4):
        left = 24 + stage * 218
        picture.words(left + 97, 30, f"Stage {stage}", 15, "middle", bold=True)
        for rank in range(2):
            x, y = left + rank * 103, 62
            picture.words(x + 46, 52, f"GPU {rank}", 12, "middle")
            for size, fill, split_from in parts:
                height = size * 11
                for half in range(2):
                    kept = stage < split_from or half == rank
                    picture.box(x + half * 46, y, 46, height, fill if kept else "none", dashed=not kept)
                y += height + 4
        left_bytes = sum(size / 2 if stage >= split_from else size for size, _, split_from in parts)
        picture.words(left + 97, 270, f"{left_bytes:g} bytes per parameter", 13, "middle", bold=True)
    picture.legend(24, 308, {"optimizer, 12 bytes": OPTIMIZER, "gradients, 2": GRADIENTS, "weights, 2": WEIGHTS}, 160)
    picture.words(876, 308, "dashed: the other GPU keeps it", 12, "end")


def zero_step(picture: Picture) -> None:
    """One step of ZeRO on one of two GPUs: what it holds, and when it is gathered

    Three layers. F1 to F3 is the forward pass, B3 to B1 the backward pass. In all stages the GPU has its own part of
    the optimizer's states only. ZeRO-1: weights are always whole; gradients are whole from their layer's backward pass
    to the update. ZeRO-2: of each layer's gradients only the GPU's own part stays after its backward pass. ZeRO-3: of
    the weights, too, only the own part stays; a layer is gathered before it computes, in the forward and in the
    backward pass, and freed after it.
    """
    sum_up = (
        "After B1: gradients are summed up.\n"
        "Update: each GPU its part of the weights;\n"
        "an all-gather makes them whole again."
    )
    reduce = "After each B: the layer's gradients are\nreduced; a GPU keeps its own part.\nUpdate: as ZeRO-1."
    gather = (
        "Before F and B: all-gather of the layer;\nafter: freed. Gradients as ZeRO-2.\nUpdate: each GPU its own part."
    )
    timeline(picture, 24, "ZeRO-1", ALWAYS_WHOLE, GRADIENTS_STAY, ALWAYS_OWN, sum_up)
    timeline(picture, 316, "ZeRO-2", ALWAYS_WHOLE, GRADIENTS_REDUCED, ALWAYS_OWN, reduce)
    timeline(picture, 608, "ZeRO-3", WHOLE_WHILE_COMPUTING, GRADIENTS_REDUCED, ALWAYS_OWN, gather)
    explain_timeline(picture)


def fsdp_units(picture: Picture) -> None:
    """One step of DDP and FSDP on one GPU: when each block is whole

    Three blocks, each a shard unit. DDP: weights and optimizer always whole, gradients whole until the update. With
    FSDP a GPU has its own part of the optimizer only. FULL_SHARD: a block's weights are whole only while it computes,
    once in the forward and once in the backward pass. SHARD_GRAD_OP: they stay whole from the forward to the backward
    pass.
    """
    all_reduce = "After each B: all-reduce of the gradients.\nEvery GPU updates everything."
    twice = (
        "All-gather before F and before B, freed\n"
        "after; reduce-scatter of gradients after B.\n"
        "Update: each GPU its own part."
    )
    once = (
        "All-gather before F only: half as many,\nand more memory between F and B.\nGradients and update as FULL_SHARD."
    )
    timeline(picture, 24, "DDP", ALWAYS_WHOLE, GRADIENTS_STAY, ALWAYS_WHOLE, all_reduce)
    timeline(picture, 316, "FULL_SHARD", WHOLE_WHILE_COMPUTING, GRADIENTS_REDUCED, ALWAYS_OWN, twice)
    timeline(picture, 608, "SHARD_GRAD_OP", WHOLE_FROM_F_TO_B, GRADIENTS_REDUCED, ALWAYS_OWN, once)
    explain_timeline(picture)


def offload(picture: Picture) -> None:
    """Offload: what lies in GPU memory and what in CPU memory

    ZeRO-1 with offload: weights and gradients on the GPU, optimizer in CPU memory. ZeRO-2: gradients go to CPU memory
    too. ZeRO-3: weights as well; a layer's weights come to the GPU when it computes. The CPU updates the weights in
    every stage.
    """
    states = {"weights": WEIGHTS, "gradients": GRADIENTS, "optimizer": OPTIMIZER}
    columns = (  # title, how many of the states lie on the GPU, what goes down and up
        ("ZeRO-1 + offload", 2, "gradients", "new weights"),
        ("ZeRO-2 + offload", 1, "gradients, in buckets", "new weights"),
        ("ZeRO-3 + offload", 0, "gradients", "one layer's weights"),
    )
    for number, (title, on_gpu, down, up) in enumerate(columns):
        x = 24 + number * 292
        picture.words(x + 134, 30, title, 15, "middle", bold=True)
        memories = ((44, "GPU memory", [*states][:on_gpu]), (216, "CPU memory, where Adam runs", [*states][on_gpu:]))
        for y, name, holds in memories:
            picture.box(x, y, 268, 92)
            picture.words(x + 10, y + 18, name, 12)
            for place, part in enumerate(holds):
                picture.box(x + 10 + place * 84, y + 30, 80, 26, states[part])
                picture.words(x + 50 + place * 84, y + 48, part, 12, "middle", ink=WHITE, bold=True)
        if not on_gpu:
            picture.box(x + 10, 74, 140, 26, "none", WEIGHTS, dashed=True)
            picture.words(x + 80, 92, "one layer's weights", 12, "middle")
        picture.words(x + 10, 122, "activations, logits", 12)
        picture.arrow(x + 60, 138, x + 60, 212)
        picture.words(x + 70, 166, down, 12)
        picture.arrow(x + 206, 212, x + 206, 138)
        picture.words(x + 196, 198, up, 12, "end")


def hybrid_shard(picture: Picture) -> None:
    """FULL_SHARD and HYBRID_SHARD on two nodes of two GPUs

    FULL_SHARD: each of four GPUs holds a quarter; every gathering crosses the network between the nodes. HYBRID_SHARD:
    each node holds the whole model, each of its GPUs a half; gathering stays inside the node, only gradients cross.
    """
    for left, title, parts in ((24, "FULL_SHARD", 4), (464, "HYBRID_SHARD, 2 copies x 2 shards", 2)):
        picture.words(left + 206, 30, title, 15, "middle", bold=True)
        for node in range(2):
            x = left + node * 216
            picture.box(x, 48, 196, 150)
            picture.words(x + 10, 66, f"node {node}", 12)
            for gpu, top in ((node * 2, 78), (node * 2 + 1, 150)):
                picture.words(x + 10, top + 20, f"GPU {gpu}", 12)
                width = 128 / parts
                for part in range(parts):
                    kept = part == gpu % parts
                    picture.box(x + 56 + part * width, top, width, 32, WEIGHTS if kept else "none", dashed=not kept)
            if parts == 2:
                picture.arrow(x + 120, 112, x + 120, 148, both=True)
        if parts == 4:
            picture.arrow(left + 190, 130, left + 222, 130, both=True)
            for x in (left + 100, left + 316):
                picture.arrow(x, 114, x, 146, both=True)
            picture.words(left, 230, "Each GPU holds a quarter. Every gathering of a unit", 13)
            picture.words(left, 248, "crosses the network, twice per micro-batch.", 13)
        else:
            for top in (94, 166):
                picture.arrow(left + 190, top, left + 222, top, both=True)
            picture.words(left, 230, "Gathering stays inside a node. Between the nodes", 13)
            picture.words(left, 248, "only gradients are added up: an all-reduce per step.", 13)
    picture.legend(24, 282, {"the part that a GPU holds": WEIGHTS})


def communication(picture: Picture) -> None:
    """What each rank communicates in one step

    DDP: an all-reduce of the gradients after the backward pass. ZeRO-1 and 2: a reduce-scatter of the gradients, and
    after the update an all-gather of the weights. ZeRO-3 and FULL_SHARD: an all-gather of the weights for the forward
    pass and one for the backward pass, and a reduce-scatter of the gradients.
    """
    reduce, scatter = ("all-reduce", "gradients", GRADIENTS), ("reduce-scatter", "gradients", GRADIENTS)
    gather = ("all-gather", "weights", WEIGHTS)
    for y, title, parts in (
        (24, "DDP", ("forward", "backward", reduce, "update")),
        (90, "ZeRO-1, ZeRO-2", ("forward", "backward", scatter, "update", gather)),
        (156, "ZeRO-3, FULL_SHARD", (gather, "forward", gather, "backward", scatter, "update")),
    ):
        x = 186
        picture.words(176, y + 29, title, 13, "end", bold=True)
        for part in parts:
            if isinstance(part, str):
                picture.box(x, y, 78, 46)
                picture.words(x + 39, y + 28, part, 12, "middle")
                x += 84
            else:
                name, sent, fill = part
                picture.box(x, y, 108, 46, fill)
                picture.words(x + 54, y + 20, name, 12, "middle", ink=WHITE, bold=True)
                picture.words(x + 54, y + 37, sent, 12, "middle", ink=WHITE, bold=True)
                x += 114
