from tools import failure

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 7.90 GiB."
NCCL = "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=17)"


def cause(tmp_path, text):
    (tmp_path / "train.out").write_bytes(text.encode())
    return failure.cause(tmp_path / "train.out")


def test_nccl_timeout_does_not_hide_the_oom_before_it(tmp_path):
    assert cause(tmp_path, f"{OOM}\n{NCCL}\n").state == "oom"


def test_error_of_another_rank_printed_first_does_not_hide_the_oom(tmp_path):
    found = cause(tmp_path, f"RuntimeError: connection closed by peer\n{NCCL}\n{OOM}\n")
    assert (found.state, found.line) == ("oom", 3)


def test_line_number_is_that_of_an_editor_despite_progress_bars(tmp_path):
    found = cause(tmp_path, f"start\n 1%|\r 2%|\r 3%|{OOM}\n")
    assert (found.line, found.text) == (2, f"3%|{OOM}")


def test_exception_is_named_when_nothing_stronger_is(tmp_path):
    found = cause(tmp_path, f"Traceback (most recent call last):\n[rank0]: ValueError: bad batch\n{NCCL}\n")
    assert (found.state, found.text) == ("failed", "[rank0]: ValueError: bad batch")


def test_time_limit_is_a_timeout(tmp_path):
    text = "slurmstepd: error: *** JOB 4711 ON node1 CANCELLED AT 2026-11-21T10:00:00 DUE TO TIME LIMIT ***\n"
    assert cause(tmp_path, text).state == "timeout"


def test_output_without_an_error_has_no_cause(tmp_path):
    assert cause(tmp_path, "UserWarning: nothing is wrong\n{'loss': 0.5}\n") is None


def test_real_oom_followed_by_an_nccl_timeout(sample_logs):
    found = failure.cause(sample_logs / "oom-then-nccl-watchdog-timeout.out")
    assert (found.state, found.line) == ("oom", 892)
