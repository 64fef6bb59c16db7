"""How much memory the GPUs have that a plan can be made for, MiB: nvidia-smi's memory.total.

Sources: of the H200, gpu_memory.csv of every run in logs/reference; of the others NVIDIA's data sheets (80, 40, 32 GB,
each of 1,024 MiB), of which a driver may keep a few hundred MiB: a run that needs all of it counts as close.
"""

MEMORY_MIB = {"h200": 143_771, "h100-80gb": 81_920, "a100-80gb": 81_920, "a100-40gb": 40_960, "v100-32gb": 32_768}
CLOSE_MIB = 1_024


def verdict(gpu: str, allocated_mib: float, beside_mib: float, highest_mib: float) -> str:
    """Whether a run fits: what it must have (tensors, and CUDA's context beside them) against what it may come to use.

    PyTorch returns what it only holds in reserve before it fails, so that alone makes a run close, not impossible.
    """
    total = MEMORY_MIB[gpu]
    if allocated_mib + beside_mib > total:
        return "does not fit"
    return "fits" if highest_mib <= total - CLOSE_MIB else "close"
