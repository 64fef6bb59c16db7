"""BLOOM's training computed faster: the same function of the same parameters. Knows nothing of the workshop's settings.

use_fast_forward    the model takes packed rows and labelled positions; alone it is as fast as the library's
use_attention       sdpa or flex: one kernel                            attention.py
use_loss            chunked or liger: never all logits at once          loss.py
use_residual_dtype  bf16: what blocks pass on, as DeepSpeed and FSDP2 have it
compile_blocks      torch.compile, block by block                       compilation.py
pack                several examples in a row                           packing.py
LabelledOnly        logits only where there is a target                 targets.py
"""

from workshop.fast_bloom.compilation import compile_blocks
from workshop.fast_bloom.model import use_attention, use_fast_forward, use_loss, use_residual_dtype
from workshop.fast_bloom.packing import pack
from workshop.fast_bloom.targets import LabelledOnly

__all__ = [
    "LabelledOnly",
    "compile_blocks",
    "pack",
    "use_attention",
    "use_fast_forward",
    "use_loss",
    "use_residual_dtype",
]
