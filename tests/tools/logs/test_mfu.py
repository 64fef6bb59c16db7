"""The peaks that a share of the peak is of."""

import pytest

from tools.logs.mfu import PEAK_TFLOPS


# get_peak_flops of torchtitan, bf16 without sparsity: a second source beside the data sheets.
@pytest.mark.parametrize(
    ("words", "peak"), [("A100", 312), ("H100 NVL", 835), ("H100 PCIe", 756), ("H100 80GB", 989), ("H200", 989)]
)
def test_peak_is_that_of_a_second_source(words: str, peak: float) -> None:
    found = [peaks for name, peaks in PEAK_TFLOPS.items() if words in name]
    assert found and {peaks["bf16"] for peaks in found} == {peaks["fp16"] for peaks in found} == {peak}
    assert all(peaks.get("fp8", 2 * peak) == pytest.approx(2 * peak, abs=1) for peaks in found)
