"""nccl-tests logs: a real one of eight GPUs, the torch measurement's, and what must not pass for a measurement."""

from pathlib import Path

import pytest

from run_folder import nccl_log
from tools.errors import LogError

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
# Two processes that know nothing of each other: what srun starts without MPI.
TWO_WORLDS = """\
#   Rank  0 Pid 4001 on node1 device  0 [0x00] A100-SXM4-40GB
#   Rank  0 Pid 4002 on node2 device  0 [0x00] A100-SXM4-40GB
  4194304       1048576   float     sum    10.0   419.43    0.00    N/A    10.0   419.43    0.00    N/A
"""


def read(tmp_path: Path, text: str) -> nccl_log.FabricLog:
    path = tmp_path / "nccl.log"
    path.write_text(text)
    return nccl_log.read(path)


def test_real_log_of_nccl_tests(sample_logs: Path) -> None:
    log = nccl_log.read(sample_logs / "nccl-allreduce-8xA100.log")
    assert (log.world_size, log.hosts, list(log.collectives)) == (8, {"localhost"}, ["all_reduce"])
    rows = {row.size_bytes: row for row in log.collectives["all_reduce"]}
    assert rows[1048576] == nccl_log.Bandwidth(1048576, 74.78, 14.02, 24.54)
    assert log.allreduce_gb_per_s == rows[max(rows)].busbw_gb_per_s > 200
    assert rows[8388608].busbw_gb_per_s == pytest.approx(rows[8388608].algbw_gb_per_s * 2 * 7 / 8, rel=0.01)


def test_log_of_torch_has_several_collectives(tmp_path: Path) -> None:
    log = read(tmp_path, OURS)
    assert (log.world_size, log.hosts, log.allreduce_gb_per_s) == (2, {"node1", "node2"}, 0.442)
    assert log.collectives["all_gather"] == [nccl_log.Bandwidth(1048576, 2545.88, 0.412, 0.206)]


def test_K12_processes_that_are_each_a_world_are_not_taken_for_one(tmp_path: Path) -> None:
    assert read(tmp_path, TWO_WORLDS).world_size == 1


def test_indented_log_is_the_same_log(tmp_path: Path) -> None:
    indented = read(tmp_path, OURS.replace("\n", "\n   ")[:-3])
    assert indented == read(tmp_path, OURS) and indented.world_size == 2


def test_labels_of_srun_are_no_part_of_a_line(tmp_path: Path) -> None:
    labelled = "".join(f"{rank}: {line}\n" for rank in (" 0", "10") for line in OURS.splitlines()[rank == "10" :])
    assert read(tmp_path, labelled).collectives["all_gather"][0].time_us == 2545.88
    assert read(tmp_path, labelled).ranks == {0, 1}


def test_row_of_unknown_ranks_that_does_not_name_its_test_is_not_called_an_all_reduce(tmp_path: Path) -> None:
    row = "  134217728  33554432  float  sum  -1  1992.0  67.38  58.96  0  2003.4  66.99  58.6  0\n"
    assert list(read(tmp_path, row).collectives) == ["all_reduce or reduce_scatter"]


@pytest.mark.parametrize("root", ["-1", "0", "3"])
def test_row_that_lost_its_last_cell_is_no_measurement(tmp_path: Path, root: str) -> None:
    row = f"  134217728  33554432  float  sum  {root}  1992.0  67.38  117.9  0  2003.4  66.99  117.2\n"
    with pytest.raises(LogError, match=r"nccl\.log:1: found '134217728 "):
        read(tmp_path, row)


def test_cut_off_log_has_what_is_complete(tmp_path: Path) -> None:
    log = read(tmp_path, OURS[:-30])
    assert log.allreduce_gb_per_s == 0.442
    assert "all_gather" not in log.collectives
    assert read(tmp_path, "").allreduce_gb_per_s is None


@pytest.mark.parametrize("damage", [("9491.78", "fast"), ("  0.442  0.442", ""), ("9491.78  0.442", "N/A  0.442")])
def test_damaged_line_is_named(tmp_path: Path, damage: tuple[str, str]) -> None:
    with pytest.raises(LogError, match=r"nccl.log:9: found '4194304 .* expected size, count, type"):
        read(tmp_path, OURS.replace(*damage))


# As mpirun and NCCL_DEBUG=INFO leave it (rows of nccl-tests issue 294's form): NCCL's lines cut a row in two.
TAGGED = """\
[1,0]<stdout>:# nThread 1 nGpus 1 minBytes 1024 maxBytes 2048 step: 2(factor) warmup iters: 5 iters: 20 validation: 1
[1,0]<stdout>:#  Rank  0 Group  0 Pid     21 on worker-0 device  0 [0x35] Tesla T4
[1,0]<stdout>:#  Rank  1 Group  0 Pid     21 on worker-1 device  0 [0xf5] Tesla T4
[1,0]<stdout>:        1024           256     float     sum      -1worker-0:18075:18075 [0] NCCL INFO Launch mode
[1,1]<stdout>:worker-1:21:31 [0] NCCL INFO Connected all rings
[1,0]<stdout>:    75.18    0.01    0.01      0    78.30    0.01    0.01      0
[1,0]<stdout>:        2048           512     float     sum      -1    79.54    0.03    0.03      0worker-0:21:21 [0] \
misc/socket.cc:58 NCCL WARN Message truncated
[1,0]<stdout>:    83.55    0.02    0.04      0
[1,0]<stdout>:worker-0:21:21 [0] NCCL INFO comm 0x7f rank 0 nranks 2 - Destroy COMPLETE
"""


def test_tags_of_mpirun_and_lines_of_nccl_are_no_part_of_a_row(tmp_path: Path) -> None:
    log = read(tmp_path, TAGGED)
    assert (log.world_size, log.hosts) == (2, {"worker-0", "worker-1"})
    assert log.collectives["all_reduce"] == [
        nccl_log.Bandwidth(1024, 75.18, 0.01, 0.01),
        nccl_log.Bandwidth(2048, 79.54, 0.03, 0.03),
    ]


@pytest.mark.parametrize(
    ("row", "name"),
    [
        ("float 16059 8.36 7.31 0e+00 16111 8.33 7.29 0e+00", "all_gather or alltoall"),  # nccl issue 644
        ("float none -1 16059 8.36 7.31 0 16111 8.33 7.29 0", "all_gather or alltoall"),
        ("float sum 1992.0 67.38 117.9 0e+00 2003.4 66.99 117.2 0e+00", "all_reduce"),
        ("float sum -1 1992.0 67.38 117.9 0 2003.4 66.99 117.2 0", "all_reduce"),
        ("float sum -1 1992.0 67.38 58.96 0 2003.4 66.99 58.6 0", "reduce_scatter"),
        ("float sum 0 1992.0 67.38 67.38 0 2003.4 66.99 66.99 0", "reduce"),
        ("float none 3 1992.0 67.38 67.38 0 2003.4 66.99 66.99 0", "broadcast, gather or scatter"),
        ("float 0 1992.0 67.38 67.38 0 2003.4 66.99 66.99 0", "broadcast, gather or scatter"),
    ],
)
def test_test_that_does_not_name_itself_is_not_taken_for_an_all_reduce(tmp_path: Path, row: str, name: str) -> None:
    ranks = "".join(f"#   Rank  {rank} Pid 400{rank} on node1 device  {rank} [0x00] V100\n" for rank in range(8))
    log = read(tmp_path, f"# nThread 1 nGpus 8\n{ranks}  134217728  33554432 {row}\n")
    assert list(log.collectives) == [name]


def test_rank_with_a_number_of_5000_digits_is_none(tmp_path: Path) -> None:
    assert read(tmp_path, f"#  Rank {'9' * 5000} Group 0 Pid 1 on n1 device 0\n").world_size == 0
