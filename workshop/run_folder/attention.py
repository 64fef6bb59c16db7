"""What ATTENTION means (speed-ladder/): the workshop trains with these kernels, and the planner predicts them."""

OWN = ("flex", "documents", "cudnn")  # need a GPU to train
HEAD_SIZES = (16, 32, 64, 128, 256)  # sizes of a head that the kernel `documents` has
SHORT_ROW = 512  # tokens of a row of one document, up to which `documents` is faster than cuDNN


def fastest_kernel(kind: str, head_size: int, packed: bool, length: int) -> str:
    """The kernel of ATTENTION=auto, which trains fastest on a GPU (further/speed-ladder/RESULTS.md has the times).

    Args:
        kind: the decoder's model_type.
        packed: whether a row holds several documents.
        length: tokens of a row.
    """
    if kind == "gpt2":  # of the library's kernels it takes this one
        return "sdpa"
    if head_size in HEAD_SIZES and (packed or length <= SHORT_ROW):
        return "documents"
    return "flex" if packed or kind == "bloom" else "cudnn"  # which we call without a mask
