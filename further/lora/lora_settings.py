"""The speed ladder's settings, and the method: full fine-tuning, LoRA or QLoRA."""

from dataclasses import dataclass
from typing import Any

from ladder_settings import LadderSettings
from workshop.record.errors import InputError
from workshop.settings.configuration import Configuration
from workshop.settings.settings import choice, positive, real, setting


@dataclass(frozen=True, kw_only=True)
class LoraSettings(LadderSettings):
    method: str = setting(choice("full", "lora", "qlora"), "lora")
    lora_rank: int = setting(positive, 8)
    lora_alpha: float = setting(real, 16.0)  # the adapters' result is multiplied by LORA_ALPHA / LORA_RANK
    lora_dropout: float = setting(real, 0.0)
    lora_targets: str = setting(default="")  # layers' names, with commas; empty: all linear ones but the head

    def check(self) -> None:
        super().check()
        if self.method == "qlora" and self.float8 != "none":
            raise InputError(f"METHOD=qlora and FLOAT8={self.float8}: the weights have 4 bits; expected FLOAT8=none")

    def check_with(self, configuration: Configuration) -> None:
        super().check_with(configuration)
        if configuration.is_deepspeed and self.method != "full" and not self.bf16:
            raise InputError(
                f"METHOD={self.method} and BF16=false: {self.config} is DeepSpeed's, which would change the type of "
                "the frozen weights; expected BF16=true FP16=false"
            )

    def targets_in(self, model: Any) -> list[str]:
        """Return LORA_TARGETS. Raises InputError for a name that no layer has: peft would leave it out silently."""
        names = self.lora_targets.replace(",", " ").split()
        layers = [f".{name}" for name, layer in model.named_modules() if hasattr(layer, "weight")]
        for name in names:
            if not any(layer.endswith(f".{name}") for layer in layers):
                expected = ", ".join(sorted({layer.rpartition(".")[2] for layer in layers}))
                found = f"LORA_TARGETS={self.lora_targets}: no layer is called {name}"
                raise InputError(f"{found}; expected out of {expected}")
        return names
