"""Model FLOPs utilisation: the operations a model needs, over those the GPUs could have done in the time.

A token needs 6 operations per parameter (2 forward, 4 backward) and 12 x layers x hidden size x row length for its
attention scores. Source: PaLM, arXiv:2204.02311, appendix B. By this convention a tied embedding counts once, as the
head; causal attention counts in full although half of it is masked; recomputed activations do not count.
"""

from __future__ import annotations

from tools.errors import UnavailableError
from tools.logs.runs import Run
from tools.tables.gpu_peaks import PEAK_TFLOPS


def flops_per_token(parameters: int, layers: int, hidden_size: int, row_length: float) -> float:
    """Forward and backward, per position of a row of `row_length` positions."""
    return 6 * parameters + 12 * layers * hidden_size * row_length


def utilisation(run: Run, head_only_where_needed: bool) -> float:
    """Share of the peak (0 to 1), warm-up left out.

    With `head_only_where_needed` the head counts only at the positions whose logits were computed (LOGITS=labelled):
    what the GPU really did. Without, the head counts everywhere: what the usual way would have had to do in this time.

    Raises:
        UnavailableError: something it depends on is not recorded.
    """
    names = set(run.record.get("gpu_names") or [])
    if not names:
        raise UnavailableError("no GPU")
    precision = run.record.get("precision")
    peaks = {PEAK_TFLOPS.get(name, {}).get(precision) for name in names}
    if None in peaks:
        raise UnavailableError(f"no peak of {', '.join(sorted(names))} in {precision}")
    model, summary, settings = run.record.get("model") or {}, run.summary or {}, run.record.get("settings") or {}
    rates = [summary.get(f"train/{name}_per_second") for name in ("tokens", "samples", "logit_positions")]
    shape = [model.get(key) for key in ("parameters", "embedding_parameters", "layers", "hidden_size")]
    if None in (*rates, *shape):
        raise UnavailableError("no shapes" if None in shape else "no step times")
    tokens, samples, logit_positions = rates
    parameters, head, layers, hidden_size = shape
    row_length = settings["max_length"] if settings.get("packing") else tokens / samples
    flops = tokens * flops_per_token(parameters, layers, hidden_size, row_length)
    if head_only_where_needed:
        flops -= 6 * head * (tokens - logit_positions)
    return flops / (run.facts["world_size"] * min(peaks) * 1e12)
