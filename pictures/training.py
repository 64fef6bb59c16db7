"""What a row, a step and its measurement are made of."""

from custom_model.flops import Shapes
from pictures.svg import GRADIENTS, GREY, INK, OPTIMIZER, TOKENS, WEIGHTS, WHITE, Picture


def labels(picture: Picture) -> None:
    """One row of the training data: input and labels

    The input is question, context, answer, end of sequence and padding up to 512 tokens. The labels are -100 for
    everything but the answer and the end of sequence, so the loss is computed on those only.
    """
    widths = {"Question: … ": 120, "Context: …": 330, "Answer:": 76, "Normandy": 90, "</s>": 46, "<pad> …": 150}
    for name, y in (("input", 26), ("labels", 78)):
        x = 74
        picture.words(64, y + 24, name, 13, "end", bold=True)
        for text, width in widths.items():
            target = text in ("Normandy", "</s>")
            fill, ink, shown = "none", INK, text
            if name == "labels":
                fill, ink, shown = (TOKENS, WHITE, text) if target else (GREY, INK, "-100")
            picture.box(x, y, width, 36, fill)
            picture.words(x + width / 2, y + 23, shown, 13, "middle", ink=ink)
            x += width
    picture.words(74, 136, "512 positions. Only the coloured ones count for the loss.", 12)


def packing(picture: Picture) -> None:
    """Packing: several examples in a row, each sees itself only

    Left: four examples in four rows of 512 positions, the rest of each row is padding. Middle: the same examples in
    two rows. Right: in a packed row each token sees the tokens before it of its own example only: three triangles
    along the diagonal.
    """
    examples = ((0.42, TOKENS), (0.24, OPTIMIZER), (0.30, WEIGHTS), (0.52, GRADIENTS))
    picture.words(24, 34, "Padded: one example per row", 14, bold=True)
    for row, (share, fill) in enumerate(examples):
        picture.box(24, 52 + row * 34, 260, 24, GREY)
        picture.box(24, 52 + row * 34, 260 * share, 24, fill)
        picture.words(276, 68 + row * 34, "padding", 12, "end")
    picture.words(320, 34, "Packed: the same examples", 14, bold=True)
    for y, members in ((52, examples[:3]), (86, examples[3:])):
        x = 320.0
        picture.box(320, y, 260, 24, GREY)
        for share, fill in members:
            picture.box(x, y, 260 * share, 24, fill)
            x += 260 * share
    picture.words(572, 102, "next ones", 12, "end")
    picture.words(620, 34, "Attention of the first packed row", 14, bold=True)
    picture.box(640, 52, 200, 200)
    start = 0.0
    for share, fill in examples[:3]:
        picture.triangle(640 + start * 200, 52 + start * 200, share * 200, fill)
        start += share
    picture.words(640, 274, "keys: the tokens that are seen", 12)
    picture.words(320, 160, "Every example keeps its own loss:", 12)
    picture.words(320, 178, "its tokens see no other example,", 12)
    picture.words(320, 196, "and its first token is nobody's target.", 12)


def weak_scaling(picture: Picture) -> None:
    """The published rule of weak scaling: the work of each GPU falls

    Bars of TFLOP per GPU and step on 2, 4, 8 and 16 GPUs. The blocks' part stays the same, the head's part halves each
    time, because the batch halves and there is only one head.
    """
    picture.words(24, 34, "Work of one GPU in a step, published rule (TFLOP)", 14, bold=True)
    shapes = Shapes(2048, 8192, 50_000, 512)
    for number, (gpus, batch, layers) in enumerate(((2, 8, 3), (4, 4, 6), (8, 2, 12), (16, 1, 24))):
        y = 56 + number * 46
        head, total = (shapes.flops_per_step(count, batch) / 1e12 for count in (0, layers))
        picture.words(150, y + 22, f"{gpus} GPUs, {layers} layers", 13, "end")
        picture.box(162, y, (total - head) * 100, 32, WEIGHTS)
        picture.box(162 + (total - head) * 100, y, head * 100, 32, GRADIENTS)
        picture.words(172 + total * 100, y + 22, f"{total:.2f}", 13)
    picture.legend(162, 262, {"blocks: layers x batch stays": WEIGHTS, "head: halves with the batch": GRADIENTS}, 220)


def attempts(picture: Picture) -> None:
    """A training that is killed and goes on

    A training saves a checkpoint after steps 10 and 20 and is killed after step 25. A second attempt goes on to step
    40. The picture leaves open with which step it begins.
    """
    left, step = 120, 18
    for title, y, first, last in (("attempt 1", 50, 1, 25), ("attempt 2", 120, 30, 40)):
        picture.words(24, y + 19, title, 14, bold=True)
        for number in range(1, last + 1):
            done = number >= first
            picture.box(left + (number - 1) * step, y, step - 3, 28, WEIGHTS if done else "none", dashed=not done)
            if number % 10 == 0 and done:
                picture.words(left + number * step - 2, y - 6, f"checkpoint-{number}", 11, "end")
    picture.words(left + 25 * step + 6, 69, "SIGKILL", 12)
    picture.words(left, 112, "with which step does it begin?", 12)
    for number in (1, 10, 20, 30, 40):
        picture.words(left + number * step - step / 2, 172, f"{number}", 12, "middle")
    picture.words(24, 172, "step", 12)
    picture.words(24, 198, "The second attempt's losses are those of a training that nobody killed.", 12)


def timer(picture: Picture) -> None:
    """Ten equal steps by two timers

    Left: a timer that is reset every tenth step but read at every step shows the time of 1, 2, 3 up to 10 steps; its
    mean is 5.5 steps. Right: a timer that is reset at every step shows one step each time.
    """
    for left, title, fill, shown in (
        (24, "Reset every 10th step, read at every step", GRADIENTS, range(1, 11)),
        (474, "Reset at every step", WEIGHTS, [1] * 10),
    ):
        picture.words(left, 34, title, 14, bold=True)
        for step, time in enumerate(shown):
            x = left + step * 40
            picture.box(x, 220 - time * 16, 32, time * 16, fill)
            picture.words(x + 16, 212 - time * 16, f"{time}", 12, "middle")
            picture.words(x + 16, 236, f"{step + 1}", 12, "middle")
        picture.words(left, 258, f"step; mean of the ten readings: {sum(shown) / 10:g} x the step time", 12)


def adapters(picture: Picture) -> None:
    """Full fine-tuning, LoRA and QLoRA: what is frozen, and what has gradients and states

    One linear layer; areas are bytes. Full: the matrix W in fp32 has a gradient and two moments of its size. LoRA: W is
    frozen in bf16, half as large, and two narrow matrices A and B beside it have gradients and moments. QLoRA: the
    same with a frozen W of 4 bits, an eighth of the size.
    """
    states = (WEIGHTS, GRADIENTS, OPTIMIZER, OPTIMIZER)
    picture.words(24, 34, "Full: all is trained", 14, bold=True)
    for number, part in enumerate(states):
        picture.box(24 + number * 82, 52, 76, 76, part)
    picture.words(24, 148, "W in fp32, and as much of each other state", 12)
    for left, title, side, note in (
        (384, "LoRA: W is frozen", 54, "W in bf16; A and B in fp32"),
        (644, "QLoRA: W has 4 bits", 27, "W in 4 bits; A and B in fp32"),
    ):
        picture.words(left, 34, title, 14, bold=True)
        picture.box(left, 52, side, side, GREY)
        for number, part in enumerate(states):
            picture.box(left + 70 + number * 24, 52, 7, 76, part)
            picture.box(left + 80 + number * 24, 52, 7, 76, part)
        picture.words(left, 148, note, 12)
    names = {"frozen": GREY, "trained weights": WEIGHTS, "gradients": GRADIENTS, "Adam's two moments": OPTIMIZER}
    picture.legend(24, 186, names, 160)
