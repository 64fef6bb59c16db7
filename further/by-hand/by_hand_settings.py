"""The settings of the three scripts, checked without torch."""

from dataclasses import dataclass

from custom_model.settings import MODEL_NAME, GPTSettings
from workshop.record.errors import InputError
from workshop.settings.dimensions import why_not
from workshop.settings.model_file import model_file
from workshop.settings.settings import count, setting


@dataclass(frozen=True, kw_only=True)
class ByHandSettings(GPTSettings):
    """The settings of the custom model; MODEL_NAME may also be a BLOOM, as in the other chapters."""

    model_name: str = setting(default=MODEL_NAME)
    generate_size: int = setting(count, 0)  # the scripts have no questions answered

    optimizers = ("adamw_torch_fused", "adamw_torch", "muon")
    not_shown = ("gradient_checkpointing", "resume_from")

    def check(self) -> None:
        super().check()
        if self.fp16:
            raise InputError("FP16=true: fp16 needs a gradient scaler, which is not shown here; expected BF16=true")
        for name in self.not_shown:
            if value := getattr(self, name):
                raise InputError(f"{name.upper()}={value}: the scripts do not show it; expected it to be left out")

    def check_start(self) -> None:
        script = self.start.script.removesuffix(".py")
        if reason := why_not(script, model_file(self.model_name), self.max_length):
            raise InputError(f"MODEL_NAME={self.model_name}: {reason}")
