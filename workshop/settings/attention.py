"""The kernels of ATTENTION (further/speed-ladder/), for the training and the planner."""

GPU_KERNELS = ("flex", "documents", "cudnn")  # need a GPU to train
HEAD_SIZES = (16, 32, 64, 128, 256)  # that the kernel `documents` supports
SHORT_ROW = 512  # tokens of a row of one document, up to which `documents` is faster than cuDNN


def fastest_kernel(kind: str, head_size: int, packed: bool, length: int) -> str:
    """Return the kernel of ATTENTION=auto, the fastest on an H100 (rungs 11 and 12 in further/speed-ladder/RESULTS.md).

    Args:
        kind: the decoder's model_type.
        packed: whether a row holds several documents.
        length: tokens of a row.
    """
    if kind == "gpt2":  # the library's GPT-2 supports no other
        return "sdpa"
    if head_size in HEAD_SIZES and (packed or length <= SHORT_ROW):
        return "documents"
    return "flex" if packed or kind == "bloom" else "cudnn"  # cuDNN supports neither packed rows nor ALiBi here
