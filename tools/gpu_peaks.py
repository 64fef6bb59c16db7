"""What a GPU could do at most, from its maker's datasheet: the 100 % of model FLOPs utilisation (MFU).

Dense matrix products, without sparsity. fp16 and bf16 run on the tensor cores; fp32 is the plain rate, because PyTorch
does not use TF32 for matrix products unless told to.
"""

import re

# First match counts. The name as PyTorch gives it; TFLOP/s in fp16 or bf16, and in fp32. V100 and T4 have no bf16.
_PEAKS_TFLOPS: list[tuple[str, float, float]] = [
    (r"H200|H100 80GB HBM3|H100 SXM", 989.4, 66.9),
    (r"H100 NVL", 835.0, 60.0),
    (r"H100 PCIe", 756.0, 51.0),
    (r"A100", 312.0, 19.5),
    (r"V100-SXM", 125.0, 15.7),
    (r"V100-PCIE", 112.0, 14.0),
    (r"L40S", 362.0, 91.6),
    (r"L4$", 121.0, 30.3),
    (r"A10$", 125.0, 31.2),
    (r"T4$", 65.0, 8.1),
]


def peak_flops(gpu_name: str, precision: str) -> float | None:
    """FLOP/s of one GPU in `precision` (fp32, fp16 or bf16); None for a GPU that is not in the list."""
    for pattern, half, single in _PEAKS_TFLOPS:
        if re.search(pattern, gpu_name):
            no_bf16 = precision == "bf16" and pattern.startswith(("V100", "T4"))
            return None if no_bf16 else 1e12 * (single if precision == "fp32" else half)
    return None
