"""Two deprecations that nobody who trains can mend are not shown; any other warning is."""

from tests.launching import run
from workshop.launch.__main__ import comforts

# Made as Transformers 5.23, DeepSpeed on PyTorch 2.14 and another library make them.
WARNINGS = """
import warnings
import workshop
for name in ("gradient_checkpointing", "gradient_checkpointing_enable", "is_gradient_checkpointing"):
    text = f"`{name}` is deprecated and will be removed in v6. Use `activation_checkpointing` instead."
    warnings.warn_explicit(text, FutureWarning, "modeling_utils.py", 1, "transformers.modeling_utils")
for module in ("deepspeed.comm.torch", "accelerate.state"):
    warnings.warn_explicit("`all_gather_into_tensor` is deprecated", FutureWarning, "x.py", 1, module)
    warnings.warn_explicit("of another kind", UserWarning, "x.py", 1, module)
"""


def test_two_deprecations_are_silent_and_every_other_warning_is_shown() -> None:
    shown = run("python", "-c", WARNINGS, **comforts({"HF_HUB_OFFLINE": "1"})).stderr  # as a launcher's job
    assert "`gradient_checkpointing" not in shown and "`is_gradient_checkpointing` is deprecated" in shown
    assert shown.count("`all_gather_into_tensor` is deprecated") == 1 and shown.count("of another kind") == 2
