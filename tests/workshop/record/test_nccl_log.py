"""nccl-tests logs: a real one of eight GPUs, the torch measurement's, and what must not pass for a measurement."""

from pathlib import Path

import pytest

from tools.errors import LogError
from workshop.record import nccl_log

OURS = """\
# nThread 1 nGpus 1 minBytes 1048576 maxBytes 4194304 step: 4(factor) warmup iters: 2 iters: 5 validation: 0
# Using devices
#  Rank  0 Group  0 Pid  29547 on node1 device  0 NVIDIA H200
#  Rank  1 Group  0 Pid  29546 on node2 device  0 NVIDIA H200
#  size  count  type  redop  root  time  algbw  busbw  #wrong  time  algbw  busbw  #wrong
# Collective test starting: all_reduce_perf
  1048576  262144  float  sum  -1  N/A  N/A  N/A  N/A  4464.92  0.235  0.235  N/A
node1:29547:29601 [0] NCCL INFO Launch mode Parallel
  4194304  1048576  float  sum  -1  N/A  N/A  N/A  N/A  9491.78  0.442  0.442  N/A
# Collective test starting: all_gather_perf
  1048576  262144  float  none  -1  2545.88  0.412  0.206  N/A  N/A  N/A  N/A  N/A
"""


def read(tmp_path: Path, text: str) -> nccl_log.FabricLog:
    path = tmp_path / "nccl.log"
    path.write_text(text)
    return nccl_log.read(path)


def test_real_log_of_nccl_tests(sample_logs: Path, tmp_path: Path) -> None:
    """A version that does not name its test; the fabric check does."""
    text = (sample_logs / "nccl-allreduce-8xA100.log").read_text()
    with pytest.raises(LogError, match=r"nccl.log:\d+: found '0 .* expected a line `# Collective test starting"):
        read(tmp_path, text)
    log = read(tmp_path, f"# Collective test starting: all_reduce_perf\n{text}")
    assert (log.world_size, log.bandwidths[1048576]) == (8, 24.54)
    assert log.allreduce_gb_per_s == log.bandwidths[max(log.bandwidths)] > 200


def test_other_collectives_and_a_cut_off_line_are_not_taken_for_an_all_reduce(tmp_path: Path) -> None:
    log, cut = read(tmp_path, OURS), read(tmp_path, OURS[: OURS.index("9491.78")])
    assert (log.world_size, log.bandwidths) == (2, {1048576: 0.235, 4194304: 0.442})
    assert cut.allreduce_gb_per_s == 0.235
    assert read(tmp_path, "").allreduce_gb_per_s is None


@pytest.mark.parametrize("damage", [("9491.78", "fast"), ("  0.442  0.442", ""), ("9491.78  0.442", "N/A  0.442")])
def test_damaged_line_is_named(tmp_path: Path, damage: tuple[str, str]) -> None:
    with pytest.raises(LogError, match=r"nccl.log:9: found '4194304 .* expected size, count, type"):
        read(tmp_path, OURS.replace(*damage))
