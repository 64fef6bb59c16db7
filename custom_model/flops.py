"""FLOPs of a training step, from the model's shapes alone; without torch, so that a launcher can ask, too.

A multiplication of an (m, k) by a (k, n) matrix is 2·m·k·n floating-point operations (FLOPs). The backward pass needs
two such products for every one of the forward pass: by the input and by the weight. Additions, norms and softmax are
not counted: on a GPU they cost time, but no time on the matrix units.
Source: Kaplan et al. 2020, arXiv:2001.08361, table 1, here with the attention over all S positions and with the head.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Shapes:
    """Sizes of a SimpleGPTModel: hidden h, feed-forward f, vocabulary V, sequence length S (tokens)."""

    hidden_size: int
    ff_dim: int
    vocab_size: int
    seq_length: int

    @property
    def block_flops(self) -> int:
        """Forward FLOPs per token of one block: q, k, v and output 8h², scores and values 4Sh, feed-forward 4hf."""
        h, f, s = self.hidden_size, self.ff_dim, self.seq_length
        return 8 * h * h + 4 * s * h + 4 * h * f

    @property
    def head_flops(self) -> int:
        """Forward FLOPs per token of the tied head, 2hV. Looking a token up in the embedding costs none."""
        return 2 * self.hidden_size * self.vocab_size

    def flops_per_token(self, layers: int) -> int:
        """Forward and backward, which is twice as much again."""
        return 3 * (layers * self.block_flops + self.head_flops)

    def flops_per_step(self, layers: int, sequences: int) -> int:
        """The operations of one GPU in a step of `sequences` sequences."""
        return self.flops_per_token(layers) * self.seq_length * sequences
