"""How long each kernel of ATTENTION takes, forward and backward of one layer, by the rows (speed-ladder/RESULTS.md).

    python -m workshop.kernels.attention_times      # on a GPU, half a minute

A line per kind of rows: milliseconds, medians of ten, bf16. cuDNN's is causal over the whole row: another function
where a row has several documents.
"""

from collections.abc import Callable
from itertools import pairwise

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import flex_attention
from torch.nn.functional import scaled_dot_product_attention

from workshop.kernels.fast_models.attention import packed_blocks
from workshop.kernels.fast_models.documents import attend, bounds

# Rows, tokens of a row, heads, heads of keys, head size, tokens of a document.
ROWS = (
    *((64, 512, 32, 8, 64, 170), (64, 512, 16, 8, 128, 170), (16, 2048, 32, 8, 64, 500), (4, 8192, 32, 8, 128, 900)),
    *((64, 512, 32, 8, 64, 512), (16, 1024, 16, 8, 128, 1024), (4, 8192, 32, 8, 128, 8192)),
)


def main() -> None:
    compiled = torch.compile(flex_attention, dynamic=False)
    for rows, length, heads, key_heads, size, tokens in ROWS:
        device = torch.device("cuda")
        documents = (torch.arange(length, device=device) // tokens).expand(rows, length) + 1
        blocks, ends = packed_blocks(documents, length, device), bounds(documents, length, device)
        inputs = [
            torch.randn(rows, length, number, size, device=device, dtype=torch.bfloat16)
            .transpose(1, 2)
            .requires_grad_()
            for number in (heads, key_heads, key_heads)
        ]
        kernels = {
            "flex": lambda q, k, v, blocks=blocks: compiled(q, k, v, block_mask=blocks, enable_gqa=True),
            "documents": lambda q, k, v, ends=ends, size=size: attend(q, k, v, ends, None, size**-0.5)[0],
            "cudnn": _cudnn,
        }
        times = " ".join(f"{name} {_time_ms(kernel, inputs):.2f}" for name, kernel in kernels.items())
        print(f"{rows} x {length}, {heads} heads, {key_heads} of keys, size {size}, documents of {tokens}: {times}")


def _cudnn(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    with sdpa_kernel([SDPBackend.CUDNN_ATTENTION]):
        return scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)


def _time_ms(kernel: Callable[..., torch.Tensor], inputs: list[torch.Tensor]) -> float:
    """The median of ten, after three that are not timed."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(14)]
    upstream = torch.ones_like(kernel(*inputs))
    for event in events:
        event.record()
        torch.autograd.grad(kernel(*inputs), inputs, upstream)
    torch.cuda.synchronize()
    times = [begin.elapsed_time(end) for begin, end in pairwise(events[3:])]
    return sorted(times)[len(times) // 2]


if __name__ == "__main__":
    main()
