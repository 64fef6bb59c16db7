"""The settings of the five scripts, checked without torch: by-hand's, and how the ranks are laid out."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from by_hand_settings import ByHandSettings

from custom_model.settings import MODEL_NAME
from workshop.record.errors import InputError
from workshop.record.exercises import Start
from workshop.record.printable import counted
from workshop.settings.dimensions import why_not
from workshop.settings.model_file import model_file
from workshop.settings.settings import Format, boolean, choice, count, setting

# Settings that one script reads; first the number of ranks that share something.
SETTINGS_OF = {
    "tp": ("tp_size", "sequence_parallel"),
    "cp": ("cp_size",),
    "ulysses": ("sp_size",),
    "pp": ("pp_size", "schedule"),
    "ep": ("ep_size",),
}


def _model_name(text: str) -> str:
    return MODEL_NAME if text == "tiny" else text  # tiny.env names the other chapters' small model


@dataclass(frozen=True, kw_only=True)
class DimensionSettings(ByHandSettings):
    """The settings of by-hand, and the sizes of the dimensions; a size of 0 takes all ranks."""

    model_name: str = setting(Format(_model_name), MODEL_NAME)
    tp_size: int = setting(count, 0)  # ranks that share each layer's matrices
    sequence_parallel: bool = setting(boolean, False)  # they also share the positions between the matrices
    cp_size: int = setting(count, 0)  # ranks that share each row's positions
    sp_size: int = setting(count, 0)  # the same, of Ulysses
    pp_size: int = setting(count, 0)  # ranks that share the layers; GRAD_ACC is the number of micro-batches
    ep_size: int = setting(count, 0)  # ranks that share the experts, each with rows of its own
    schedule: str = setting(choice("gpipe", "1f1b", "interleaved"), "1f1b")
    loss_chunk: int = setting(count, 0)  # positions per row whose logits exist at a time; 0: all

    optimizers = ("adamw_torch_fused", "adamw_torch")
    not_shown = ("resume_from",)

    @classmethod
    def of(cls, dimension: str) -> Self:
        """The settings of one of the scripts, from its process's environment."""
        return cls.from_environment(start=replace(Start.of(os.environ), script=f"{dimension}.py"))

    @property
    def dimension(self) -> str:
        """The script that runs, without its ending."""
        return self.start.script.removesuffix(".py")

    def check_start(self) -> None:
        for dimension, names in SETTINGS_OF.items():
            for name in names:
                if dimension != self.dimension and (value := getattr(self, name)) != getattr(type(self), name):
                    raise InputError(
                        f"{name.upper()}={value}: only {dimension}.py reads it; "
                        f"expected it to be left out of {self.dimension}.py's runs"
                    )
        model = model_file(self.model_name)
        # It has what the scripts know of a Llama. For ep.py the launcher takes another model in a tiny run.
        if self.model_name == MODEL_NAME and self.dimension != "ep":
            model = {"model_type": "llama", "num_attention_heads": self.num_heads, "num_hidden_layers": self.num_layers}
        self.check_model(model)
        _, size = self.layout(self.start.processes)
        if self.sequence_parallel and (self.padding != "max_length" or self.max_length % size):
            found = f"MAX_LENGTH={self.max_length} PADDING={self.padding}"
            expected = f"expected rows of one length (max_length), a multiple of {counted(size, 'rank')}"
            raise InputError(f"SEQUENCE_PARALLEL=true: found {found}; {expected}")

    def check_model(self, model: Mapping[str, Any]) -> None:
        """Raises InputError for the content of a config.json that these ranks cannot train; {} is not known yet."""
        parts = self.layout(self.start.processes)[1] * (2 if self.schedule == "interleaved" else 1)
        if model and (reason := why_not(self.dimension, model, self.max_length, parts)):
            raise InputError(f"MODEL_NAME={self.model_name}: {reason}")

    def layout(self, ranks: int) -> tuple[int, int]:
        """Return the mesh: groups of ranks with rows of their own (dp_size), ranks in each (the dimension's size).

        Raises InputError for ranks that cannot be split so, or rows that they cannot share.
        """
        name = SETTINGS_OF[self.dimension][0]
        size = getattr(self, name) or ranks
        if ranks % size:
            raise InputError(f"{name.upper()}={size} on {counted(ranks, 'GPU')}: expected a divisor of their number")
        if self.dimension not in ("tp", "ep") and self.padding != "max_length":
            raise InputError(f"PADDING={self.padding}: the ranks share rows of one length; expected max_length")
        parts = {"cp": 2 * size, "ulysses": size}.get(self.dimension, 1)
        if self.max_length % parts:
            expected = f"expected a multiple of {parts}: a rank has {parts // size} of so many parts of a row"
            raise InputError(f"MAX_LENGTH={self.max_length} on {counted(size, 'rank')} per row: {expected}")
        if self.dimension == "pp" and self.schedule != "gpipe" and self.grad_acc % size:
            expected = f"expected a multiple of {size}: they follow each other through so many ranks"
            raise InputError(f"GRAD_ACC={self.grad_acc} micro-batches with SCHEDULE={self.schedule}: {expected}")
        if self.dimension == "pp" and self.schedule == "interleaved" and size == 1:
            raise InputError("SCHEDULE=interleaved on 1 rank: expected 2 or more")
        return ranks // size, size
