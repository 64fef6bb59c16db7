import pytest

from workshop.run_folder import causes

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


def test_real_oom_followed_by_an_nccl_timeout(sample_logs):
    found = causes.cause(sample_logs / "oom-then-nccl-watchdog-timeout.out")
    assert (found.state, found.line) == ("oom", 892)


# What PyTorch, NCCL, cuBLAS, C++, the kernel and SLURM print when memory ends a run.
GPU_MEMORY = [
    "torch._inductor.exc.InductorError: OutOfMemoryError: CUDA out of memory. Tried to allocate 1.91 GiB.",
    "RuntimeError: CUDA error: out of memory",
    "[rank1]: RuntimeError: CUDA driver error: out of memory",
    "  what():  [Rank 1] NCCL watchdog thread terminated with exception: CUDA error: out of memory",
    "Cuda failure 2 'out of memory'",
    "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "node3: torch.OutOfMemoryError: CUDA out of memory.",  # as pdsh shows another node's output
    "  3%|3         | 30/1000 [00:12<06:40,  2.42it/s]torch.OutOfMemoryError: CUDA out of memory.",
]
HOST_MEMORY = [
    "RuntimeError: [enforce fail at CPUAllocator.cpp:64] . DefaultCPUAllocator: can't allocate memory: you tried to",
    "error: /tmp/run/steps.csv: [Errno 12] Cannot allocate memory",
    "RuntimeError: unable to mmap 1029 bytes from file </torch_2219_1>: Cannot allocate memory (12)",
    "bash: fork: Cannot allocate memory",
    "terminate called after throwing an instance of 'std::bad_alloc'",
    "[rank0]: MemoryError",
    "numpy.core._exceptions.MemoryError: Unable to allocate 7.45 GiB for an array with shape (1000000000,)",
    "slurmstepd-falkor7: error: Step 1141810.0 exceeded memory limit (52917772 > 20971520), being killed",
    "srun: error: sdumont6156: task 0: Out Of Memory",
    "Memory cgroup out of memory: Killed process 4711 (python) total-vm:31457280kB",
]


@pytest.mark.parametrize(
    ("name", "message"), [*(("", one) for one in GPU_MEMORY), *(("host memory", one) for one in HOST_MEMORY)]
)
def test_every_way_to_run_out_of_memory_is_an_oom_whatever_it_brings_down(tmp_path, name, message):
    found = cause(tmp_path, f"start\n{message}\n{TASK_1}\n[rank0]: RuntimeError: Connection closed by peer\n{NCCL}\n")
    assert (found.state, found.name, found.text) == ("oom", name, message.strip())


VALUE_ERROR = "ValueError: batch_size=3 is not a multiple of 2"
# Lines that stand before the real cause and only mention another one.
NO_CAUSE = [
    "UserWarning: CUDA out of memory is likely with this batch size; set a smaller one",
    "WARNING:accelerate:CUDA out of memory. Tried to allocate 20 MiB: halving the batch",
    "warning: psrecord did not start: [Errno 28] No space left on device",
    "    raise RuntimeError('CUDA error: out of memory')",
    "node3:17:88 [0] transport/nvls.cc:244 NCCL WARN Cuda failure 2 'out of memory'",
    "a job ends DUE TO TIME LIMIT after 12 h, or DUE TO PREEMPTION before",
]


@pytest.mark.parametrize("line", NO_CAUSE)
def test_line_that_only_mentions_a_cause_is_none(tmp_path, line):
    found = cause(tmp_path, f"{line}\nTraceback (most recent call last):\n{VALUE_ERROR}\n")
    assert (found.state, found.text) == ("failed", VALUE_ERROR)


ERROR = f"[rank1]: {VALUE_ERROR}"
CONNECTION = "[rank0]: RuntimeError: [1] is setting up NCCL communicator: Connection reset by peer"
SEGFAULT = "srun: error: node4: task 1: Segmentation fault"
TERMINATED = "srun: error: node4: task 1: Terminated"
KILLED = "srun: error: node4: task 1: Killed"
LIMIT, PREEMPTION, NODE = (
    f"{STEP.removesuffix('***')}DUE TO {why} ***" for why in ("TIME LIMIT", "PREEMPTION", "NODE FAILURE, SEE SLURMCTLD")
)
# PyTorch's words for an error of NCCL, and after them NCCL's own.
NCCL_ERROR = "[rank3]: torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:317"
NCCL_S_OWN = ["[rank3]: ncclUnhandledCudaError: Call to CUDA function failed.", "[rank3]: Last error:"]
NCCL_MESSAGE = ["ncclUnhandledCudaError: Call to CUDA function failed.", "Last error:"]
NCCL_MESSAGE += ["Cuda failure 700 'an illegal memory access'"]
NCCL_OOM = "[rank3]: Cuda failure 2 'out of memory'"
USAGE = "train.py: error: argument --steps: expected one argument"
TORCHRUN = "E1127 19:16:41.6 30356 elastic/multiprocessing/api.py:1002] failed (exitcode: 2) local_rank: 0 (pid: 9)"
# Lines in which one failure brings down others; the state, and the line that tells it.
ONE_OF_MANY = [
    ([CONNECTION, NCCL, OOM], "oom", OOM),
    ([NCCL_ERROR, *NCCL_S_OWN, NCCL_OOM], "oom", NCCL_OOM),
    ([NCCL_ERROR, *NCCL_S_OWN, "[rank3]: Cuda failure 700 'an illegal memory access'"], "failed", NCCL_ERROR),
    ([ERROR, NCCL], "failed", ERROR),
    ([f"[rank0]: {OOM}", ERROR], "oom", f"[rank0]: {OOM}"),
    ([CONNECTION, ERROR], "failed", ERROR),
    (["[rank0]: KeyError: 'cache'", "[rank0]: During handling of the above exception, another …", OOM], "oom", OOM),
    (["ImportError: no flash_attn, going on without", OOM], "oom", OOM),
    ([RANK_1, TASK_1, TERMINATING, STEP, "srun: error: node3: task 0: Exited with exit code 143"], "failed", RANK_1),
    ([SEGFAULT, TERMINATING, STEP, TERMINATED], "failed", SEGFAULT),
    ([STEP, SEGFAULT, TASK_1], "failed", SEGFAULT),
    ([STEP, JOB, TERMINATED, TERMINATING, KILLED], "cancelled", STEP),
    ([TERMINATED, JOB, TERMINATING, KILLED], "cancelled", JOB),
    ([STEP, KILLED, TERMINATED, TERMINATING], "cancelled", STEP),
    ([CONNECTION, KILLED, TERMINATING, STEP], "failed", KILLED),
    ([RANK_1, TASK_1, TERMINATING, LIMIT], "timeout", LIMIT),
    ([RANK_1, TASK_1, TERMINATING, PREEMPTION], "preempted", PREEMPTION),
    ([RANK_1, TASK_1, "srun: error: node3: task 0: Out Of Memory"], "oom", "srun: error: node3: task 0: Out Of Memory"),
    (["srun: error: Node failure on node4", CONNECTION], "failed", "srun: error: Node failure on node4"),
    (["usage: train.py [-h] [--steps MAX_STEPS]", USAGE, TORCHRUN], "failed", USAGE),
    (["triton.runtime.errors.OutOfResources: out of resource", VALUE_ERROR], "failed", VALUE_ERROR),
]


@pytest.mark.parametrize(("lines", "state", "text"), ONE_OF_MANY)
def test_what_brought_down_the_others_is_the_cause(tmp_path, lines, state, text):
    found = cause(tmp_path, "\n".join(["start", *lines, ""]))
    assert (found.state, found.text.removesuffix(" ".join(["", *NCCL_MESSAGE]))) == (state, text)


def test_line_of_a_megabyte_is_read_in_no_time(tmp_path):
    for text in ("slurmstepd ", "NCCL WARN ", "a: ", "\rslurmstepd "):
        assert cause(tmp_path, text * (1_000_000 // len(text)) + f"\n{VALUE_ERROR}").text == VALUE_ERROR
