"""What a GPU could do at most, by its data sheet: the denominator of model FLOPs utilisation."""

# 10^12 floating-point operations per second of dense matrix products; fp32 without TF32, the default here. Names are
# the driver's. Sources: NVIDIA's data sheets of the V100, A100, H100 and H200, SXM versions unless the name says
# otherwise; those of the H100 and H200 print the tensor cores' rates for sparse matrices, which are twice these. The
# SXM rows were compared with pages that quote the sheets on 2026-11-22: 125 and 15.7 (V100), 312 and 19.5 (A100),
# 989.4, sparse 1,978.9, and 66.9 (H100 and H200). In 8 bits the sheets print twice bf16's rate.
PEAK_TFLOPS: dict[str, dict[str, float]] = {
    "Tesla V100-SXM2-16GB": {"fp16": 125, "fp32": 15.7},
    "Tesla V100-SXM2-32GB": {"fp16": 125, "fp32": 15.7},
    "NVIDIA A100-SXM4-40GB": {"bf16": 312, "fp16": 312, "fp32": 19.5},
    "NVIDIA A100-SXM4-80GB": {"bf16": 312, "fp16": 312, "fp32": 19.5},
    "NVIDIA H100 PCIe": {"fp8": 1513, "bf16": 756, "fp16": 756, "fp32": 51},
    "NVIDIA H100 NVL": {"fp8": 1671, "bf16": 835, "fp16": 835, "fp32": 60},
    "NVIDIA H100 80GB HBM3": {"fp8": 1979, "bf16": 989, "fp16": 989, "fp32": 67},
    "NVIDIA H200": {"fp8": 1979, "bf16": 989, "fp16": 989, "fp32": 67},
}
