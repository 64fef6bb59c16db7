"""Deprecations that nobody who trains can mend are not shown; any other warning is."""

from tests.launching import run
from workshop.launch.checks import for_libraries

# Made as Transformers 5.23, DeepSpeed on PyTorch 2.13 and 2.14, and another library make them.
WARNINGS = """
import warnings
import workshop
for name in ("gradient_checkpointing", "gradient_checkpointing_enable", "is_gradient_checkpointing"):
    text = f"`{name}` is deprecated and will be removed in v6. Use `activation_checkpointing` instead."
    warnings.warn_explicit(text, FutureWarning, "modeling_utils.py", 1, "transformers.modeling_utils")
renamed = "`torch.distributed.all_gather_into_tensor` is deprecated. Please use `all_gather_single` instead."
warnings.warn_explicit(renamed, FutureWarning, "c10d_logger.py", 83, "torch.distributed.c10d_logger")
for module in ("deepspeed.comm.torch", "accelerate.state"):
    warnings.warn_explicit("`all_gather_into_tensor` is deprecated", FutureWarning, "x.py", 1, module)
    warnings.warn_explicit("of another kind", UserWarning, "x.py", 1, module)
"""


def test_deprecations_in_libraries_are_silent_and_every_other_warning_is_shown() -> None:
    own = for_libraries({"HF_HUB_OFFLINE": "1", "EXPERIMENT_NAME": "baseline"})  # as a launcher's job
    shown = run("python", "-c", WARNINGS, **own).stderr
    assert "`gradient_checkpointing" not in shown and "`is_gradient_checkpointing` is deprecated" in shown
    assert "all_gather_single" not in shown
    assert shown.count("`all_gather_into_tensor` is deprecated") == 1 and shown.count("of another kind") == 2
