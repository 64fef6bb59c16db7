"""What each rank holds and sends if several ranks share a row: tensor, context, pipeline parallelism."""

from itertools import pairwise

from pictures.svg import GRADIENTS, GREY, OPTIMIZER, TOKENS, WEIGHTS, WHITE, Picture

Work = tuple[str, int, int]  # a pass, F or B; its chunk of the rank's layers; its micro-batch, from 1


def halves(picture: Picture, x: float, y: float, fill: str, kept: tuple[int, ...], beside: bool = False) -> None:
    """A tensor of 60 x 56 in two halves, one above the other or beside it; a GPU holds those that are `kept`."""
    width, height = (30, 56) if beside else (60, 28)
    for half in range(2):
        left, top = (x + half * width, y) if beside else (x, y + half * height)
        picture.box(left, top, width, height, fill if half in kept else "none", dashed=half not in kept)


def exchange(picture: Picture, x: float, y: float, name: str) -> None:
    """A collective of both GPUs on hidden states."""
    picture.box(x, y, 100, 134, TOKENS)
    picture.words(x + 50, y + 62, name, 11, "middle", ink=WHITE, bold=True)
    picture.words(x + 50, y + 80, "hidden states", 12, "middle", ink=WHITE, bold=True)


def tensor_parallel(picture: Picture) -> None:
    """Two matrices in a row, shared by two GPUs

    Tensor parallel: both GPUs have the hidden states of all positions. Each has half of the first matrix's columns and
    half of the second's rows. Each computes half of the heads or of the feed-forward network, and its part of a sum
    over all positions. An all-reduce adds up the two parts. By position: between the matrices each GPU has the hidden
    states of half of the positions. An all-gather comes before the first matrix, a reduce-scatter after the second.
    """
    heads = ((205, "first matrix"), (305, "own heads"), (405, "second matrix"), (505, "part of a sum"))
    for top, title, shared in ((24, "Tensor parallel", True), (228, "By position", False)):
        picture.words(24, top + 10, title, 14, bold=True)
        for x, name in heads:
            picture.words(x + 30, top + 32, name, 11, "middle")
        for rank in range(2):
            y = top + 40 + rank * 78
            outside = (0, 1) if shared else (rank,)
            picture.words(24, y + 32, f"GPU {rank}", 12)
            halves(picture, 76, y, TOKENS, outside)
            for start, end in ((265, 303), (365, 403), (465, 503), (565, 603), (705, 743)):
                picture.arrow(start + 3, y + 28, end, y + 28)
            halves(picture, 205, y, WEIGHTS, (rank,), beside=True)
            halves(picture, 305, y, TOKENS, (rank,), beside=True)
            halves(picture, 405, y, WEIGHTS, (rank,))
            picture.box(505, y, 60, 56, GREY)
            halves(picture, 745, y, TOKENS, outside)
            if shared:
                picture.arrow(139, y + 28, 203, y + 28)
        if not shared:
            picture.box(148, top + 40, 46, 134, TOKENS)
            picture.words(171, top + 104, "all-", 12, "middle", ink=WHITE, bold=True)
            picture.words(171, top + 120, "gather", 12, "middle", ink=WHITE, bold=True)
        exchange(picture, 605, top + 40, "all-reduce" if shared else "reduce-scatter")
        picture.words(775, top + 32, "next input", 11, "middle")
    picture.words(24, 428, "A layer has two such pairs: attention, and the feed-forward network.", 12)
    picture.words(24, 446, "In the backward pass each pair adds up the gradients of its input: 4 sums per layer.", 12)
    picture.legend(24, 472, {"weights": WEIGHTS, "hidden states": TOKENS}, 110)
    picture.words(876, 472, "dashed: the other GPU has it", 12, "end")


def context_parallel(picture: Picture) -> None:
    """Four GPUs share a row: who has which positions, and the ring

    A row is cut into eight chunks. GPU 0 has chunks 1 and 8, GPU 1 has 2 and 7, GPU 2 has 3 and 6, GPU 3 has 4 and 5.
    Left: in causal attention a chunk of queries sees itself and the chunks before it; each GPU has as much to compute.
    Right: queries stay; keys and values go from each GPU to the next, until all have been everywhere.
    """
    fills = (TOKENS, WEIGHTS, OPTIMIZER, GRADIENTS)
    picture.words(24, 34, "Attention: which chunks a GPU computes", 14, bold=True)
    for chunk in range(8):
        y, fill = 62 + chunk * 24, fills[min(chunk, 7 - chunk)]
        picture.words(50, y + 17, f"{chunk + 1}", 12, "end")
        picture.words(70 + chunk * 24, 56, f"{chunk + 1}", 12, "middle")
        for key in range(chunk):
            picture.box(58 + key * 24, y, 24, 24, fill)
        picture.triangle(58 + chunk * 24, y, 24, fill)
    picture.words(58, 274, "down: chunks of queries; across: chunks of keys", 12)
    picture.words(58, 292, "per GPU: 7 squares and 2 half ones", 12)
    picture.words(400, 34, "The ring: keys and values go on, queries stay", 14, bold=True)
    corners = ((400, 62), (660, 62), (660, 190), (400, 190))  # clockwise
    for rank, ((x, y), fill) in enumerate(zip(corners, fills, strict=True)):
        picture.box(x, y, 190, 76)
        picture.words(x + 10, y + 18, f"GPU {rank}", 12)
        for place, (name, dashed) in enumerate((("queries", False), ("keys, values", True))):
            picture.words(x + 10 + place * 90, y + 36, name, 11)
            for number, chunk in enumerate((rank + 1, 8 - rank)):
                left = x + 10 + place * 90 + number * 36
                picture.box(left, y + 43, 32, 24, "none" if dashed else fill, fill, dashed)
                ink = {} if dashed else {"ink": WHITE}
                picture.words(left + 16, y + 60, f"{chunk}", 12, "middle", bold=True, **ink)
    picture.arrow(594, 100, 656, 100)
    picture.arrow(755, 142, 755, 186)
    picture.arrow(656, 228, 594, 228)
    picture.arrow(495, 186, 495, 142)
    picture.words(400, 292, "dashed: in the next step another GPU's. Backward: their gradients follow them.", 12)


def orders(ranks: int, micro_batches: int) -> dict[str, list[list[Work]]]:
    """What each rank computes, one after the other, by schedule."""

    def passes(name: str, chunks: list[int]) -> list[Work]:
        """Interleaved, as many micro-batches as there are ranks go through a chunk before the next chunk begins."""
        firsts = range(1, micro_batches + 1, ranks)
        return [(name, chunk, first + i) for first in firsts for chunk in chunks for i in range(ranks)]

    def alternate(forward: list[Work], backward: list[Work], ahead: int) -> list[Work]:
        """`ahead` forward passes, then a forward and a backward pass in turn, then the other backward passes."""
        ahead = min(ahead, len(forward))
        turns = [work for pair in zip(forward[ahead:], backward, strict=False) for work in pair]
        return forward[:ahead] + turns + backward[len(forward) - ahead :]

    plain, two = (passes("F", [0]), passes("B", [0])), (passes("F", [0, 1]), passes("B", [1, 0]))
    return {
        "GPipe": [plain[0] + plain[1]] * ranks,
        "1F1B": [alternate(*plain, ranks - 1 - rank) for rank in range(ranks)],
        "interleaved": [alternate(*two, ranks + 2 * (ranks - 1 - rank)) for rank in range(ranks)],
    }


def times(order: list[list[Work]]) -> dict[tuple[int, Work], tuple[float, float]]:
    """Begin and end of each rank's passes; a micro-batch's forward pass through a rank takes 1, its backward pass 2."""
    ranks, chunks = len(order), 1 + max(chunk for work in order for _, chunk, _ in work)
    stages = [(rank, chunk) for chunk in range(chunks) for rank in range(ranks)]
    after: dict[tuple[int, Work], tuple[int, Work]] = {}
    for micro_batch in {number for _, _, number in order[0]}:
        route = [(rank, ("F", chunk, micro_batch)) for rank, chunk in stages]
        route += [(rank, ("B", chunk, micro_batch)) for rank, chunk in reversed(stages)]
        after |= {later: earlier for earlier, later in pairwise(route)}
    found: dict[tuple[int, Work], tuple[float, float]] = {}
    clocks, waiting = [0.0] * ranks, [list(work) for work in order]
    while any(waiting):
        for rank, work in enumerate(waiting):
            while work and ((rank, work[0]) not in after or after[rank, work[0]] in found):
                done = (rank, work.pop(0))
                begin = max(clocks[rank], found[after[done]][1] if done in after else 0)
                clocks[rank] = begin + (2 if done[1][0] == "B" else 1) / chunks
                found[done] = (begin, clocks[rank])
    return found


def pipeline_parallel(picture: Picture) -> None:
    """Two GPUs share eight layers: four micro-batches, by three schedules

    GPU 0 has the embedding and layers 1 to 4, GPU 1 layers 5 to 8 and the head. Hidden states go on, their gradients
    come back. GPipe: all forward passes, then all backward passes. 1F1B: the first backward pass as soon as it can
    begin; it waits as long and keeps fewer activations. Interleaved: GPU 0 has layers 1, 2, 5, 6, GPU 1 the others;
    each wait is half as long.
    """
    for x, name, holds in ((104, "GPU 0", "embedding, layers 1 to 4"), (504, "GPU 1", "layers 5 to 8, head")):
        picture.words(x + (0 if name == "GPU 0" else 256), 44, name, 12, bold=True)
        picture.box(x + 46, 24, 200, 32, WEIGHTS)
        picture.words(x + 146, 45, holds, 12, "middle", ink=WHITE, bold=True)
    picture.arrow(356, 34, 544, 34)
    picture.words(450, 28, "hidden states", 12, "middle")
    picture.arrow(544, 46, 356, 46)
    picture.words(450, 62, "their gradients", 12, "middle")
    unit = 44
    for number, (name, order) in enumerate(orders(2, 4).items()):
        found, y = times(order), 92 + number * 86
        end = max(finish for _, finish in found.values())
        picture.words(24, y + 16, name, 13, bold=True)
        picture.words(24, y + 34, f"{1 - 12 / end:.1%} bubble", 12)
        for rank in range(2):
            picture.box(112, y + rank * 30, end * unit, 26, GREY)
        for (rank, (kind, chunk, micro_batch)), (begin, finish) in found.items():
            fill = {"F": TOKENS, "B": GRADIENTS}[kind]
            picture.box(112 + begin * unit, y + rank * 30, (finish - begin) * unit, 26, fill)
            label = f"{micro_batch}{'*' * chunk}"
            place = 112 + (begin + finish) / 2 * unit
            picture.words(place, y + rank * 30 + 18, label, 12, "middle", ink=WHITE, bold=True)
        kept, most = 0, 0
        for kind, _, _ in order[0]:
            kept += 1 if kind == "F" else -1
            most = max(most, kept)
        chunks = 2 if name == "interleaved" else 1
        picture.words(788, y + 16, "GPU 0 keeps", 12)
        picture.words(788, y + 34, f"{most / chunks:g} at most", 12)
    legend = {"forward pass of a micro-batch": TOKENS, "backward pass": GRADIENTS, "bubble: the GPU waits": GREY}
    picture.legend(112, 366, legend, 210)
    picture.words(112, 342, "Interleaved, GPU 0 has layers 1, 2, 5 and 6. *: a pass through layers 5 to 8.", 12)
