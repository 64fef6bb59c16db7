"""Operations of a training. Source: PaLM, arXiv:2204.02311, appendix B."""


def flops_per_token(parameters: int, layers: int, attention_size: int, row_length: float) -> float:
    """Forward and backward, per position of a row of `row_length` positions; `parameters` of matrix products."""
    return 6 * parameters + 12 * layers * attention_size * row_length
