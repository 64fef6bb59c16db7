"""Operations of a training. Source: PaLM, arXiv:2204.02311, appendix B."""

from workshop.record.schema import Model


def multiplied_parameters(model: Model) -> int:
    """Those of a token's matrix products: an embedding that is not the head is looked up, and few experts are met."""
    looked_up = model.embedding_parameters if model.untied_embedding else 0
    return model.parameters - looked_up - (model.idle_parameters or 0)


def flops_per_token(model: Model, row_length: float) -> float:
    """Forward and backward, per position of a row of `row_length` positions."""
    attention_size = model.attention_size or model.hidden_size
    return 6 * multiplied_parameters(model) + 12 * model.layers * attention_size * row_length
