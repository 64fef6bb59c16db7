"""The settings of the workshop, and what this chapter adds to them: the model's sizes, FSDP and the fabric check."""

from dataclasses import dataclass

from workshop.record.errors import InputError
from workshop.settings.settings import Format, Settings, boolean, positive, real, setting

MODEL_NAME = "simple-gpt"


def _model_name(text: str) -> str:
    if text not in (MODEL_NAME, "tiny"):  # tiny.env names the other chapters' small model
        raise ValueError(text)
    return MODEL_NAME


@dataclass(frozen=True, kw_only=True)
class GPTSettings(Settings):
    """The settings of a run of the custom model: the workshop's and its sizes."""

    vocab_size: int = setting(positive)
    hidden_size: int = setting(positive)
    num_layers: int = setting(positive)
    num_heads: int = setting(positive)
    ff_dim: int = setting(positive)
    seq_length: int = setting(positive)  # positions the model knows; MAX_LENGTH tokens of them are used

    own_model = MODEL_NAME

    def check(self) -> None:
        super().check()
        if self.hidden_size % self.num_heads:
            raise InputError(
                f"HIDDEN_SIZE={self.hidden_size} cannot be shared among NUM_HEADS={self.num_heads}: expected a multiple"
            )
        if self.model_name == MODEL_NAME and self.max_length > self.seq_length:
            raise InputError(
                f"MAX_LENGTH={self.max_length}: the model has only SEQ_LENGTH={self.seq_length} positions, "
                "expected at most as many"
            )


@dataclass(frozen=True, kw_only=True)
class CustomSettings(GPTSettings):
    """Settings of this chapter's runs: FSDP or not, and the fabric check."""

    model_name: str = setting(Format(_model_name, f"{MODEL_NAME}, with its sizes in VOCAB_SIZE, …"), MODEL_NAME)
    use_fsdp: bool = setting(boolean)

    fabric_min_gb_per_s: float = setting(real)  # all-reduce bus bandwidth below which a job does not start
    fabric_max_mib: int = setting(positive)
    fabric_iterations: int = setting(positive)
    fabric_warmup: int = setting(positive)
