from tools import failure

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 7.90 GiB."
NCCL = "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=17)"
RANK_1 = "[rank1]: error (rank 1): tokenizer 'tiny': cannot load it"
TASK_1 = "srun: error: node4: task 1: Exited with exit code 1"
TERMINATING = "srun: launch/slurm: _step_signal: Terminating StepId=2.0"
STEP = "slurmstepd-node3: error: *** STEP 2.0 ON node3 CANCELLED AT 2026-11-21T15:50:55 ***"
JOB = "slurmstepd-node3: error: *** JOB 2 ON node3 CANCELLED AT 2026-11-21T15:50:55 ***"


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


def test_step_that_srun_ends_after_a_failed_task_is_not_cancelled(tmp_path):
    killing = "[2026-11-21 15:50:53,845] [INFO] [launch.py:253:sigkill_handler] Killing subprocess 66"
    task_0 = "srun: error: node3: task 0: Exited with exit code 143"
    found = cause(tmp_path, "\n".join([RANK_1, killing, TASK_1, TERMINATING, STEP, task_0]))
    assert (found.state, found.text) == ("failed", RANK_1)


def test_failed_task_without_an_error_message_is_not_cancelled(tmp_path):
    crash = "srun: error: node4: task 1: Segmentation fault"
    found = cause(tmp_path, "\n".join([crash, TERMINATING, STEP, "srun: error: node3: task 0: Terminated"]))
    assert (found.state, found.text) == ("failed", crash)


def test_person_who_cancels_is_not_hidden_by_the_tasks_that_end(tmp_path):
    ends = ["srun: error: node4: task 1: Terminated", TERMINATING, "srun: error: node3: task 0: Killed"]
    for lines in ([STEP, JOB, *ends], [JOB, *ends], [ends[0], STEP, JOB, *ends[1:]], [STEP, ends[2], *ends[:2]]):
        assert cause(tmp_path, "\n".join(lines)).state == "cancelled", lines


def test_killed_task_is_named_not_the_connection_it_broke_nor_a_cancelled_step(tmp_path):
    for killed in ("srun: error: node4: task 1: Killed", TASK_1.replace("code 1", "code 137")):
        lost = "[rank0]: RuntimeError: Connection closed by peer"
        found = cause(tmp_path, "\n".join([lost, killed, TERMINATING, STEP]))
        assert (found.state, found.text) == ("failed", killed)


def test_failed_task_does_not_hide_what_causes_more(tmp_path):
    for text, state in (
        (f"{STEP.removesuffix('***')}DUE TO TIME LIMIT ***", "timeout"),
        (f"{STEP.removesuffix('***')}DUE TO PREEMPTION ***", "preempted"),
        ("srun: error: node3: task 0: Out Of Memory", "oom"),
    ):
        assert cause(tmp_path, "\n".join([RANK_1, TASK_1, TERMINATING, text])).state == state


def test_output_without_an_error_has_no_cause(tmp_path):
    assert cause(tmp_path, "UserWarning: nothing is wrong\n{'loss': 0.5}\n") is None


def test_real_oom_followed_by_an_nccl_timeout(sample_logs):
    found = failure.cause(sample_logs / "oom-then-nccl-watchdog-timeout.out")
    assert (found.state, found.line) == ("oom", 892)
