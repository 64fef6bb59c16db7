"""Compute a model's training faster: the same function of the same parameters.

use_fast_forward    the model takes packed rows and labelled positions; alone it is as fast as the library's
use_attention       sdpa, flex, documents or cudnn: one kernel          attention.py, documents.py; auto: settings
use_loss            chunked or liger: never all logits at once          loss.py
use_residual_dtype  bf16 between the blocks, as DeepSpeed and FSDP2 have it
compile_blocks      torch.compile, block by block                       compilation.py
pack                several examples in a row                           packing.py
LabelledOnly        logits only where there is a target                 packing.py
use_graph           a micro-batch's kernels launched by one call        graph.py
difference          whether a changed decoder is the library's function exactness.py

One is not the same function, but close:

use_float8          matrix products of the blocks in 8 bits             float8.py
"""

from workshop.kernels.fast_models.compilation import compile_blocks
from workshop.kernels.fast_models.exactness import difference, packed_with
from workshop.kernels.fast_models.float8 import use_float8
from workshop.kernels.fast_models.graph import use_graph
from workshop.kernels.fast_models.model import FAMILIES, use_attention, use_fast_forward, use_loss, use_residual_dtype
from workshop.kernels.fast_models.packing import LabelledOnly, pack
