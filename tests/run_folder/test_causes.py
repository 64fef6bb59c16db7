import mmap
import subprocess
import traceback
from pathlib import Path

import numpy
import pytest
import torch

from run_folder import causes

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 7.90 GiB."
NCCL = "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=17)"
RANK_1 = "[rank1]: error (rank 1): tokenizer 'tiny': cannot load it"
TASK_1 = "srun: error: node4: task 1: Exited with exit code 1"
TERMINATING = "srun: launch/slurm: _step_signal: Terminating StepId=2.0"
STEP = "slurmstepd-node3: error: *** STEP 2.0 ON node3 CANCELLED AT 2026-11-21T15:50:55 ***"
JOB = "slurmstepd-node3: error: *** JOB 2 ON node3 CANCELLED AT 2026-11-21T15:50:55 ***"


def cause(tmp_path, text):
    (tmp_path / "train.out").write_bytes(text.encode())
    return causes.cause(tmp_path / "train.out")


def test_error_of_another_rank_printed_first_does_not_hide_the_oom(tmp_path):
    found = cause(tmp_path, f"RuntimeError: connection closed by peer\n{NCCL}\n{OOM}\n")
    assert (found.state, found.line) == ("oom", 3)


def test_line_number_is_that_of_an_editor_despite_progress_bars(tmp_path):
    found = cause(tmp_path, f"start\n 1%|\r 2%|\r 3%|{OOM}\n")
    assert (found.line, found.text) == (2, f"3%|{OOM}")


def test_exception_is_named_when_nothing_stronger_is(tmp_path):
    found = cause(tmp_path, f"Traceback (most recent call last):\n[rank0]: ValueError: bad batch\n{NCCL}\n")
    assert (found.state, found.text) == ("failed", "[rank0]: ValueError: bad batch")


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


# What PyTorch prints of an error of NCCL, and after it what NCCL says of it.
NCCL_OOM = """\
[rank3]: torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:317
[rank3]: ncclUnhandledCudaError: Call to CUDA function failed.
[rank3]: Last error:
[rank3]: Cuda failure 2 'out of memory'
"""


def test_nccl_s_own_name_for_its_error_does_not_hide_that_memory_ran_out(tmp_path):
    found = cause(tmp_path, NCCL_OOM)
    assert (found.state, found.line) == ("oom", 4)
    other = cause(tmp_path, NCCL_OOM.replace("2 'out of memory'", "700 'an illegal memory access'"))
    assert (other.state, other.name, other.line) == ("failed", "NCCL error", 1)


def test_preemption_is_seen_without_the_daemon_s_name_before_it(tmp_path):
    ends = "error: *** JOB 11509447 ON nodeau01 CANCELLED AT 2026-11-21T10:00:00 DUE TO PREEMPTION ***"
    raised = "torch.distributed.elastic.multiprocessing.api.SignalException: Process 3 got signal: 15"
    found = cause(tmp_path, f"{ends}\n{raised}\n")
    assert (found.state, found.text) == ("preempted", ends)
    assert cause(tmp_path, f"to see a preemption grep for: {ends}\n{VALUE_ERROR}").text == VALUE_ERROR


@pytest.mark.parametrize(
    "abort",
    [
        "srun: error: node4: task 1: Aborted (core dumped)",
        "srun: error: node4: task 1: Segmentation fault",
    ],
)
def test_rank_that_crashes_is_not_called_cancelled_in_whatever_order_slurm_says_it(tmp_path, abort):
    for lines in ([abort, STEP], [STEP, abort]):
        found = cause(tmp_path, "\n".join([*lines, TASK_1]))
        assert (found.state, found.text) == ("failed", abort), lines
    assert cause(tmp_path, f"{VALUE_ERROR}\n{abort}\n{STEP}\n").text == VALUE_ERROR


def test_srun_s_word_for_a_node_that_failed_names_the_cause(tmp_path):
    text = "srun: error: Node failure on node4"
    found = cause(tmp_path, f"{text}\n{TERMINATING}\n[rank0]: RuntimeError: Connection reset by peer\n")
    assert (found.state, found.name, found.text) == ("failed", "node failure", text)


def test_only_what_may_tell_something_of_a_line_of_carriage_returns_is_looked_at(tmp_path):
    (tmp_path / "train.out").write_text("\r" * 1000 + "ValueError: bad batch" + "\r" * 1000)
    assert list(causes._lines(tmp_path / "train.out")) == [(1, "ValueError: bad batch")]


def test_real_oom_followed_by_an_nccl_timeout(sample_logs):
    found = causes.cause(sample_logs / "oom-then-nccl-watchdog-timeout.out")
    assert (found.state, found.line) == ("oom", 892)


# What PyTorch, NCCL, cuBLAS, C++, the kernel and SLURM print when memory ends a run.
NO_MEMORY = [
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.22 GiB. GPU 0 has a total capacity of 15.69 GiB",
    "[rank3]: torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.",
    "torch._inductor.exc.InductorError: OutOfMemoryError: CUDA out of memory. Tried to allocate 1.91 GiB.",
    "RuntimeError: CUDA error: out of memory",
    "[rank1]: RuntimeError: CUDA driver error: out of memory",
    "  what():  [Rank 1] NCCL watchdog thread terminated with exception: CUDA error: out of memory",
    "Cuda failure 2 'out of memory'",
    "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "RuntimeError: [enforce fail at CPUAllocator.cpp:64] . DefaultCPUAllocator: can't allocate memory: you tried to",
    "OSError: [Errno 12] Cannot allocate memory",
    "error: /tmp/run/steps.csv: [Errno 12] Cannot allocate memory",
    "RuntimeError: unable to mmap 1029 bytes from file </torch_2219_1>: Cannot allocate memory (12)",
    "bash: fork: Cannot allocate memory",
    "terminate called after throwing an instance of 'std::bad_alloc'",
    "  what():  std::bad_alloc",
    "[rank0]: MemoryError",
    "numpy.core._exceptions.MemoryError: Unable to allocate 7.45 GiB for an array with shape (1000000000,)",
    "node3: torch.OutOfMemoryError: CUDA out of memory.",  # as pdsh shows another node's output
    "  3%|3         | 30/1000 [00:12<06:40,  2.42it/s]torch.OutOfMemoryError: CUDA out of memory.",
    "slurmstepd: error: Detected 1 oom_kill event in StepId=11300781.0. Some of the step tasks have been OOM Killed.",
    "slurmstepd-falkor7: error: Step 1141810.0 exceeded memory limit (52917772 > 20971520), being killed",
    "srun: error: sdumont6156: task 0: Out Of Memory",
    "Memory cgroup out of memory: Killed process 4711 (python) total-vm:31457280kB",
]


@pytest.mark.parametrize("message", NO_MEMORY)
def test_every_way_to_run_out_of_memory_is_an_oom_whatever_it_brings_down(tmp_path, message):
    found = cause(tmp_path, f"start\n{message}\n{TASK_1}\n[rank0]: RuntimeError: Connection closed by peer\n{NCCL}\n")
    assert (found.state, found.text) == ("oom", message.strip())


@pytest.mark.parametrize(
    "allocate", [lambda: torch.empty(1 << 50), lambda: numpy.empty(1 << 50), lambda: mmap.mmap(-1, 1 << 62)]
)
def test_real_traceback_of_memory_that_there_is_not(tmp_path, allocate):
    with pytest.raises((RuntimeError, MemoryError, OSError)) as raised:
        allocate()
    assert cause(tmp_path, "".join(traceback.format_exception(raised.value))).state == "oom"


VALUE_ERROR = "ValueError: batch_size=3 is not a multiple of 2"
# Lines that stand before the real cause and only mention another one.
NO_CAUSE = [
    "UserWarning: CUDA out of memory is likely with this batch size; set a smaller one",
    "/site-packages/trainer.py:12: UserWarning: torch.OutOfMemoryError: CUDA out of memory. Trying half the batch",
    "WARNING:accelerate:CUDA out of memory. Tried to allocate 20 MiB: halving the batch",
    "hint: a MemoryError or an oom-kill means too little --mem; `scancel 4711` ends the job",
    "to stop: scancel 4711 (slurmstepd then says CANCELLED AT …)",
    "warning: psrecord did not start: [Errno 12] Cannot allocate memory",
    "    raise RuntimeError('CUDA error: out of memory')",
    "node3:17:88 [0] transport/nvls.cc:244 NCCL WARN Cuda failure 2 'out of memory'",
    "a job ends DUE TO TIME LIMIT after 12 h, or DUE TO PREEMPTION before",
]


@pytest.mark.parametrize("line", NO_CAUSE)
def test_line_that_only_mentions_a_cause_is_none(tmp_path, line):
    found = cause(tmp_path, f"{line}\nTraceback (most recent call last):\n{VALUE_ERROR}\n")
    assert (found.state, found.text) == ("failed", VALUE_ERROR)


OTHERS = [
    ("failed", "triton.runtime.errors.OutOfResources: out of resource: shared memory\nRuntimeError: no valid config"),
    (
        "failed",
        "slurmstepd: error: *** STEP 9.0 ON n1 CANCELLED AT 2026-11-21T10:00:00 DUE TO NODE FAILURE, SEE SLURMCTLD",
    ),
    ("preempted", "slurmstepd: error: *** JOB 9 ON n1 CANCELLED AT 2026-11-21T10:00:00 DUE TO PREEMPTION ***"),
    ("cancelled", "slurmstepd: error: *** JOB 9 ON n1 CANCELLED AT 2026-11-21T10:00:00 ***"),
]


@pytest.mark.parametrize(("state", "text"), OTHERS)
def test_kinds_that_read_alike_are_told_apart(tmp_path, state, text):
    assert cause(tmp_path, text).state == state


def test_rank_that_ended_first_is_the_cause_not_the_memory_of_another_after_it(tmp_path):
    ended = f"[rank1]: {VALUE_ERROR}"
    assert cause(tmp_path, f"{ended}\n[rank0]: {OOM}\n").text == ended
    assert cause(tmp_path, f"[rank0]: {OOM}\n{ended}\n").state == "oom"


def test_exception_that_was_handled_does_not_hide_the_oom_after_it(tmp_path):
    handled = "During handling of the above exception, another exception occurred:"
    assert cause(tmp_path, f"[rank0]: KeyError: 'cache'\n[rank0]: {handled}\n[rank0]: {OOM}\n").state == "oom"
    assert cause(tmp_path, f"ImportError: no flash_attn, going on without\n{OOM}\n").state == "oom"


def test_rank_that_lost_the_others_does_not_hide_why_they_ended(tmp_path):
    lost = "[rank0]: RuntimeError: [1] is setting up NCCL communicator: Connection reset by peer"
    assert cause(tmp_path, f"{lost}\n[rank1]: {VALUE_ERROR}\n").text == f"[rank1]: {VALUE_ERROR}"


# As libraries print them; sources of those that no CPU can provoke: GitHub issues.
NAMED = [
    ("CUDA error", "RuntimeError: CUDA error: uncorrectable ECC error encountered"),  # tloen/alpaca-lora 123
    ("CUDA error", "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx(handle)`"),
    (
        "NCCL error",  # hkproj/pytorch-transformer-distributed 1
        "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1333, "
        "unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.18.6",
    ),
    (
        "hang",  # hiyouga/LlamaFactory 6269
        "[rank0]:[E1206 18:44:12.715298746 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum=7753, OpType=_REDUCE_SCATTER_BASE, Timeout(ms)=600000) ran for 600061 milliseconds",
    ),
    (
        "hang",
        "[rank0]: RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting "
        "1800000ms for recv operation to complete",
    ),
    ("node failure", f"{STEP.removesuffix('***')}DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***"),
    ("disk full", 'safetensors_rust.SafetensorError: IoError(Os { code: 28, message: "No space left on device" })'),
]


LOST = "[rank0]: RuntimeError: [1] is setting up NCCL communicator: Connection reset by peer"


@pytest.mark.parametrize(("name", "message"), NAMED)
def test_cause_with_a_name_is_named_whatever_it_brings_down(tmp_path, name, message):
    child = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: "
    found = cause(tmp_path, f"{{'loss': 0.5}}\n{message}\n{LOST}\nterminate called\n{child}\n{TASK_1}\n")
    assert (found.state, found.name, found.text) == ("failed", name, message.strip())


@pytest.mark.parametrize(
    "write",
    [
        lambda: Path("/dev/full").write_text("x" * 100_000),
        lambda: torch.save(torch.ones(100_000), "/dev/full"),
        lambda: subprocess.run(["bash", "-c", "echo loss > /dev/full"], check=True),
    ],
    ids=["Python", "torch.save", "the shell"],
)
def test_real_message_of_a_disk_that_is_full(tmp_path, capfd, write):
    with pytest.raises((OSError, RuntimeError, subprocess.CalledProcessError)) as raised:
        write()
    text = capfd.readouterr().err + "".join(traceback.format_exception(raised.value))
    assert cause(tmp_path, text).name == "disk full", text


def test_full_disk_that_a_warning_mentions_is_none(tmp_path):
    text = f"warning: psrecord did not start: [Errno 28] No space left on device\n{VALUE_ERROR}\n"
    assert cause(tmp_path, text).text == VALUE_ERROR


@pytest.mark.parametrize("text", ["CUDA out of memory.", "MemoryError", "DefaultCPUAllocator: can't allocate memory"])
def test_memory_of_the_host_is_told_from_the_gpus(tmp_path, text):
    assert cause(tmp_path, f"RuntimeError: {text}\n").name == ("" if "CUDA" in text else "host memory")


def test_line_of_a_megabyte_is_read_in_no_time(tmp_path):
    for text in ("slurmstepd ", "NCCL WARN ", "a: ", "\rslurmstepd "):
        assert cause(tmp_path, text * (1_000_000 // len(text)) + f"\n{VALUE_ERROR}").text == VALUE_ERROR


def test_terminal_controls_of_a_log_do_not_reach_the_reader(tmp_path):
    found = cause(tmp_path, "\x1b[31mValueError: \x1b]0;title\x07 \x1b[2J\u202e bad\x1b[0m\n")
    assert found.text == r"ValueError: \x1b]0;title\x07 \x1b[2J\u202e bad"
