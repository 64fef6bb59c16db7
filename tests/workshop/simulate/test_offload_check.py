"""What exercise 4 says of its configuration."""

from types import SimpleNamespace

import pytest

from workshop.simulate.offload_check import banner


def test_null_in_the_configuration_is_no_offload_and_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    zero = {"stage": 3, "offload_param": None, "offload_optimizer": None}
    banner(SimpleNamespace(deepspeed={"zero_optimization": zero}, process_index=0, world_size=1, device="cpu"))
    assert capsys.readouterr().out.count("offload   none") == 2
