"""Model FLOPs utilisation: the operations a model needs, over those the GPUs could have done in the time.

A token needs 6 operations per parameter (2 forward, 4 backward) and 12 x layers x attention size x row length for its
attention scores; the attention size is heads x the size of a head, in most models the hidden size. Source: PaLM,
arXiv:2204.02311, appendix B. By this convention a tied embedding counts once, as the head, and one that is not tied
does not: it is looked up. Of the experts those count that a token meets. Causal attention counts in full although half
of it is masked, and so does what a packed row masks; recomputed activations do not count.

A frozen parameter has no gradient, so a token needs 4 operations per parameter: 2 forward, and 2 backward for the
gradient of its input, which the adapters before it wait for; also of the head. Before the first adapter nothing
waits: the first block's queries, keys and values need 2 less, hidden size x (attention size + 2 x key size) of them.
"""

from collections.abc import Mapping

from tools.errors import UnavailableError
from tools.logs.run import Run
from workshop.record.schema import Model

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


def _multiplied_parameters(model: Model) -> int:
    """Parameters in a token's matrix products: without a looked-up embedding and experts that it does not meet."""
    looked_up = model.embedding_parameters if model.untied_embedding else 0
    return model.parameters - looked_up - (model.idle_parameters or 0)


def _frozen_flops(model: Model) -> float:
    """FLOPs that a token saves in matrix products if only adapters are trained."""
    trained = model.trained_parameters or model.parameters
    if trained == model.parameters:
        return 0
    query_size = model.attention_size or model.hidden_size
    first = model.hidden_size * (query_size + 2 * (model.key_value_size or query_size))
    return 2 * (_multiplied_parameters(model) - trained + first)


def utilisation(run: Run, summary: Mapping[str, float]) -> dict[str, float]:
    """Shares of the peak (%), warm-up left out.

    `mfu_percent` counts the head only at the positions whose logits were computed (LOGITS=labelled): what the GPU did.
    `mfu_by_convention_percent` counts it everywhere: what the usual way would have had to do in this time.

    Args: summary: summary.json.

    Raises:
        UnavailableError: something it depends on is not recorded.
    """
    names, model, settings = set(run.record.gpu_names), run.record.model, run.settings
    if not names:
        raise UnavailableError("no GPU")
    precision = run.record.precision
    if settings.get("method") == "qlora":  # a 4-bit layer gives back its input's type, whatever it computes in
        precision = "bf16" if settings.get("bf16") else "fp32"
    if settings.get("float8", "none") != "none":  # although the head and what is added up stay in bf16
        precision = "fp8"
    peaks = {PEAK_TFLOPS.get(name, {}).get(precision) for name in names}
    if None in peaks:
        raise UnavailableError(f"no peak of {', '.join(sorted(names))} in {precision}")
    tokens, samples, logit_positions = (
        summary.get(f"train/{name}_per_second") for name in ("tokens", "samples", "logit_positions")
    )
    shape = [model.parameters, model.embedding_parameters, model.layers, model.hidden_size]
    if None in (*shape, tokens, logit_positions) or not (samples and run.world_size):
        raise UnavailableError("no shapes" if None in shape else "no step times")
    row_length = (settings.get("max_length") if settings.get("packing") else None) or tokens / samples
    saved = _frozen_flops(model)
    scores = 12 * model.layers * (model.attention_size or model.hidden_size) * row_length
    flops = tokens * (6 * _multiplied_parameters(model) + scores - saved)
    done = flops - (4 if saved else 6) * model.embedding_parameters * (tokens - logit_positions)
    peak = run.world_size * min(peaks) * 1e12
    return {"mfu_percent": done / peak * 100, "mfu_by_convention_percent": flops / peak * 100}
