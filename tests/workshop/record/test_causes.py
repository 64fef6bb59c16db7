"""The cause of a failed job is what a person reads in its output; tests/foreign/logs: shortened from public issues."""

import json
import signal
from pathlib import Path

import pytest

from workshop.record.causes import cause

LOGS = Path(__file__).parents[2] / "foreign/logs"
# State, name of the cause, and a part of the reason.
VERDICTS = {
    "a01-ecc-rank": ("failed", "CUDA error", "[rank1]: RuntimeError: CUDA error: uncorrectable ECC error encountered"),
    "a03-loss-scale-interleaved": ("failed", "", "Exception: Current loss scale already at minimum"),
    "a05-pdsh-ip-ninja": ("failed", "", "RuntimeError: Ninja is required to load C++ extensions"),
    "a06-ninja-build-rank": ("failed", "", "RuntimeError: Error building extension 'fused_adam'"),
    "a08-rich-box": ("failed", "", "train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * "
                     "world_size 64 != 4 * 8 * 1"),
    "a09-ssh-255": ("failed", "", "host=node-0011 was not reachable via ssh"),
    "a10-pdsh-permission": ("failed", "", "Permission denied (publickey,password)"),
    "a11-no-interface": ("failed", "NCCL error", "Last error: Bootstrap : no socket interface found"),
    "a12-torchx-prefix": ("failed", "NCCL error", "ncclSocketInit: connecting to address  with family 59936"),
    "a15-illegal-instruction": ("failed", "Illegal instruction (SIGILL)", "exits with return code = -4"),
    "a17-quota-122": ("failed", "disk full", "[Errno 122] Disk quota exceeded"),
    "a20-rdzv-brokenpipe-otherjob": ("failed", "rendezvous lost", "The connection to the C10d store has failed"),
    "a21-stderr-prefix": ("oom", "", "[rank3]: torch.OutOfMemoryError: CUDA out of memory"),
    "a23-ray-prefix": ("oom", "", "pid=2809, ip=10.0.0.4) torch.cuda.OutOfMemoryError"),
    "a24-time-limit-bypass": ("timeout", "", "DUE TO TIME LIMIT"),
    "b02-nvlink-deepspeed": ("failed", "CUDA error", "CUDA error: uncorrectable NVLink error"),
    "b04-segfault-torchrun": ("failed", "Segmentation fault (SIGSEGV)", "failed (exitcode: -11) local_rank: 1"),
    "b06-mpirun-tag": ("oom", "", "[1,3]<stderr>:torch.OutOfMemoryError"),
    "b09-bash-killed": ("failed", "", "line 40: 12345 Killed"),
    "b10-bash-segv-coredump": ("failed", "", "Segmentation fault"),
    "b11-conda-not-found": ("failed", "", "line 12: conda: command not found"),
    "b16-caught-optional-import": ("cancelled", "", "*** JOB 9 ON n1 CANCELLED AT"),
    "b17-exec-format": ("failed", "", "execve(): /home/user/run.sh: Permission denied; srun: error: n1: task 0: "),
    "b18-launch-task-mem-limit": ("oom", "host memory", "Detected 3 oom_kill events"),
    "b21-deepspeed-rank-killed-by-earlyoom": ("failed", "", "exits with return code = -9"),
    "c01-real-torchrun-abort": ("failed", "CUDA error", "CUDA error: an illegal memory access was encountered"),
    "n04-arrowinvalid": ("failed", "", "pyarrow.lib.ArrowInvalid: JSON parse error: Column(/conversations/[]/value) "
                         "changed from string to number in row 812; datasets.exceptions.DatasetGenerationError: An"),
    "n16-execve-denied": ("failed", "", "slurmstepd: error: execve(): deepspeed: Permission denied"),
    "n20-record-summary-only": ("oom", "", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 14.00 GiB"),
    "s03-timeoutexpired": ("failed", "", "[rank1]: subprocess.TimeoutExpired: Command 'nvidia-smi -L' timed out"),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(path.stem for path in LOGS.iterdir()))
def test_reason_is_what_a_person_reads_there(name: str) -> None:
    found, (state, named, part) = cause(LOGS / f"{name}.out"), VERDICTS[name]
    assert (found.state, found.name) == (state, named)
    assert part in found.text
    assert len(found.text) <= 500


HANG = "[rank0]:[E1126 10:30:00.0 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation timeout: Work"
CHILD = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: "
LOST = "[rank0]: RuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.0.4]:1200"
TORCHRUN = "E1126 10:00:03.0 1 elastic/multiprocessing/api.py:874] failed (exitcode: {}) local_rank: 1 (pid: 11)"
DEEPSPEED = "[2026-11-26 07:59:25,967] [ERROR] [launch.py:259] ['python', '-u', 'train.py'] exits with return code = {}"
CRASHES = {4: "Illegal instruction (SIGILL)", 7: "Bus error (SIGBUS)", 11: "Segmentation fault (SIGSEGV)"}


def of_lines(folder: Path, *lines: str):
    (folder / "train.out").write_text("\n".join([*lines, ""]))
    return cause(folder / "train.out")


@pytest.mark.parametrize("launcher", [TORCHRUN, DEEPSPEED], ids=["torchrun", "deepspeed"])
@pytest.mark.parametrize(("number", "name"), CRASHES.items())
def test_crash_is_the_cause_of_the_others_hang(tmp_path: Path, launcher: str, number: int, name: str) -> None:
    line = launcher.format(-number)
    for lines in ([HANG, LOST, line, CHILD], [LOST, line], [line, CHILD, HANG]):
        found = of_lines(tmp_path, *lines)
        assert (found.state, found.name, found.text) == ("failed", name, line)


@pytest.mark.parametrize("launcher", [TORCHRUN, DEEPSPEED], ids=["torchrun", "deepspeed"])
def test_abort_is_named_where_nothing_says_why_and_else_what_made_it(tmp_path: Path, launcher: str) -> None:
    line = launcher.format(-signal.SIGABRT)
    assert of_lines(tmp_path, LOST, line, CHILD).name == "Aborted (SIGABRT)"
    for glibc in (
        "double free or corruption (!prev)",
        "[default3]:free(): invalid pointer",
        "corrupted size vs. prev_size",
    ):
        found = of_lines(tmp_path, LOST, glibc, line, CHILD)
        assert (found.name, found.text) == ("Aborted (SIGABRT)", glibc)
    for hang in (HANG, "[rank1]:[F1126 ProcessGroupNCCL.cpp:1557] Terminating the process, due to … watchdog hang."):
        assert of_lines(tmp_path, hang, line, CHILD).name == "hang", "NCCL's watchdog aborts the rank that waited"
    thrown = "  what():  unexpected header length"
    assert of_lines(tmp_path, "terminate called after throwing", thrown, line, CHILD).text == thrown.strip()


@pytest.mark.parametrize(
    "warning",
    [
        "huggingface/tokenizers: The current process just got forked, after parallelism has already been used. "
        "Disabling parallelism to avoid deadlocks...",
        "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768",
        "[2026-11-26 07:59:25,967] [INFO] [loss_scaler.py:190] [deepspeed] OVERFLOW! Rank 1 Skipping step.",
        "UserWarning: Error detected in AddmmBackward0. Traceback of forward call that caused the error: ",
        "Exception ignored in: <function _MultiProcessingDataLoaderIter.__del__ at 0x7f>\n"
        "Traceback (most recent call last):\nAssertionError: can only test a child process",
        "W1126 10:00:02.0 1 elastic/multiprocessing/api.py:900] Sending process 10 closing signal SIGTERM",
    ],
)
def test_warning_is_no_cause(tmp_path: Path, warning: str) -> None:
    assert of_lines(tmp_path, warning, "{'loss': 0.5}") is None
    assert of_lines(tmp_path, warning, "ValueError: no rows").text == "ValueError: no rows"


OTHERS = ["", "{'loss': 0.5}", "[rank0]: Traceback (most recent call last):", "warning: psrecord ended", CHILD]
OTHERS += ["  5%|▌| 1/20 [00:01<00:19]", DEEPSPEED.format(1)]


@pytest.mark.parametrize("after", OTHERS)
def test_message_ends_where_somebody_else_speaks(tmp_path: Path, after: str) -> None:
    lines = ["ValueError: the keys are not the model's:", "  lm_head.weight", "  transformer.wte", after, "and so on"]
    found = of_lines(tmp_path, *lines)
    assert found.text == "ValueError: the keys are not the model's: lm_head.weight transformer.wte"


def test_message_of_a_rank_goes_on_in_its_own_lines_only(tmp_path: Path) -> None:
    lines = ["[rank1]: ValueError: two lines,", "[rank1]: both shown", "[rank0]: not this", "nor this"]
    assert of_lines(tmp_path, *lines).text == "[rank1]: ValueError: two lines, both shown"


OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 7.90 GiB."
NCCL = "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=17)"
RANK_1 = "[rank1]: error (rank 1): tokenizer 'tiny': cannot load it"
TASK_1 = "srun: error: node4: task 1: Exited with exit code 1"
TERMINATING = "srun: launch/slurm: _step_signal: Terminating StepId=2.0"
STEP = "slurmstepd-node3: error: *** STEP 2.0 ON node3 CANCELLED AT 2026-11-21T15:50:55 ***"
JOB = "slurmstepd-node3: error: *** JOB 2 ON node3 CANCELLED AT 2026-11-21T15:50:55 ***"


def test_real_oom_followed_by_an_nccl_timeout(sample_logs):
    found = cause(sample_logs / "oom-then-nccl-watchdog-timeout.out")
    assert (found.state, found.line) == ("oom", 892)


# What PyTorch, NCCL, cuBLAS, C++, the kernel and SLURM print when memory ends a run.
GPU_MEMORY = [
    "torch._inductor.exc.InductorError: OutOfMemoryError: CUDA out of memory. Tried to allocate 1.91 GiB.",
    "  what():  [Rank 1] NCCL watchdog thread terminated with exception: CUDA error: out of memory",
    "Cuda failure 2 'out of memory'",
    "RuntimeError: Triton Error [CUDA]: out of memory",
    "2026-11-26T10:00:00.123Z torch.OutOfMemoryError: CUDA out of memory.",
    "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "  3%|3         | 30/1000 [00:12<06:40,  2.42it/s]torch.OutOfMemoryError: CUDA out of memory.",
]
HOST_MEMORY = [
    "RuntimeError: [enforce fail at CPUAllocator.cpp:64] . DefaultCPUAllocator: can't allocate memory: you tried to",
    "error: /tmp/run/steps.csv: [Errno 12] Cannot allocate memory",
    "RuntimeError: unable to mmap 1029 bytes from file </torch_2219_1>: Cannot allocate memory (12)",
    "bash: fork: Cannot allocate memory",
    "terminate called after throwing an instance of 'std::bad_alloc'",
    "numpy.core._exceptions.MemoryError: Unable to allocate 7.45 GiB for an array with shape (1000000000,)",
    "slurmstepd-falkor7: error: Step 1141810.0 exceeded memory limit (52917772 > 20971520), being killed",
    "srun: error: sdumont6156: task 0: Out Of Memory",
    "Memory cgroup out of memory: Killed process 4711 (python) total-vm:31457280kB",
]


@pytest.mark.parametrize(
    ("name", "message"), [*(("", one) for one in GPU_MEMORY), *(("host memory", one) for one in HOST_MEMORY)]
)
def test_every_way_to_run_out_of_memory_is_an_oom_whatever_it_brings_down(tmp_path, name, message):
    found = of_lines(tmp_path, "start", message, TASK_1, "[rank0]: RuntimeError: Connection closed by peer", NCCL)
    assert (found.state, found.name, found.text) == ("oom", name, message.strip())


VALUE_ERROR = "ValueError: batch_size=3 is not a multiple of 2"
# Lines that stand before the real cause and only mention another one.
NO_CAUSE = [
    "UserWarning: CUDA out of memory is likely with this batch size; set a smaller one",
    "warning: psrecord did not start: [Errno 28] No space left on device",
    "a job ends DUE TO TIME LIMIT after 12 h, or DUE TO PREEMPTION before",
]


@pytest.mark.parametrize("line", NO_CAUSE)
def test_line_that_only_mentions_a_cause_is_none(tmp_path, line):
    found = of_lines(tmp_path, line, "Traceback (most recent call last):", VALUE_ERROR)
    assert (found.state, found.text) == ("failed", VALUE_ERROR)


CONNECTION = "[rank0]: RuntimeError: [1] is setting up NCCL communicator: Connection reset by peer"
SEGFAULT = "srun: error: node4: task 1: Segmentation fault"
TERMINATED = "srun: error: node4: task 1: Terminated"
KILLED = "srun: error: node4: task 1: Killed"
PREEMPTION, REQUEUE = (f"{STEP.removesuffix('***')}DUE TO {why} ***" for why in ("PREEMPTION", "JOB REQUEUE"))
# PyTorch's words for an error of NCCL, and after them NCCL's own.
NCCL_ERROR = "[rank3]: torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:317"
NCCL_S_OWN = ["[rank3]: ncclUnhandledCudaError: Call to CUDA function failed.", "[rank3]: Last error:"]
NCCL_OOM = "[rank3]: Cuda failure 2 'out of memory'"
SHELL = "/var/spool/slurmd/job99/slurm_script: line 12: torchrun: command not found"
# Lines in which one failure brings down others; the state, and the line that tells it.
ONE_OF_MANY = [
    ([CONNECTION, NCCL, OOM], "oom", OOM),
    ([NCCL_ERROR, *NCCL_S_OWN, NCCL_OOM], "oom", NCCL_OOM),
    (["[rank0]: KeyError: 'cache'", "[rank0]: During handling of the above exception, another …", OOM], "oom", OOM),
    ([RANK_1, TASK_1, TERMINATING, STEP, "srun: error: node3: task 0: Exited with exit code 143"], "failed", RANK_1),
    ([SEGFAULT, TERMINATING, STEP, TERMINATED], "failed", SEGFAULT),
    ([STEP, SEGFAULT, TASK_1], "failed", SEGFAULT),
    ([STEP, JOB, TERMINATED, TERMINATING, KILLED], "cancelled", STEP),
    ([CONNECTION, KILLED, TERMINATING, STEP], "failed", KILLED),
    ([RANK_1, TASK_1, TERMINATING, PREEMPTION], "preempted", PREEMPTION),
    (["srun: error: Node failure on node4", CONNECTION], "failed", "srun: error: Node failure on node4"),
    ([REQUEUE, KILLED], "preempted", REQUEUE),
    ([SSH := "node2: ssh: connect to host node2 port 22: Connection refused", "pdsh@node1: 255"], "failed", SSH),
    ([IMAGE := "FATAL:   While making image from oci registry: 429 Too Many Requests", TASK_1], "failed", IMAGE),
    ([PYTHON := "/env/bin/python: can't open file '/work/trian.py': [Errno 2] No such file", TASK_1], "failed", PYTHON),
    ([HOST := "node2: Host key verification failed."], "failed", HOST),
    (
        [
            LMOD := "Lmod has detected the following error:  The following module(s) are unknown:",
            '"cuda/13"',
            "",
            SHELL,
        ],
        "failed",
        f'{LMOD} "cuda/13"',
    ),
    (
        [
            "Resetting modules",
            MODULE := "ModuleCmd_Load.c(213):ERROR:105: Unable to locate a modulefile for 'cuda/13'",
            SHELL,
        ],
        "failed",
        MODULE,
    ),
    ([PBS := "=>> PBS: job killed: walltime 3612 exceeded limit 3600", TERMINATED], "timeout", PBS),
    ([PBS_MEMORY := "=>> PBS: job killed: mem 33816576kb exceeded limit 33554432kb"], "oom", PBS_MEMORY),
    ([SRUN := "srun: error: Unable to create step for job 2: Requested node"], "failed", SRUN),
]


@pytest.mark.parametrize(("lines", "state", "text"), ONE_OF_MANY)
def test_what_brought_down_the_others_is_the_cause(tmp_path, lines, state, text):
    found = of_lines(tmp_path, "start", *lines)
    assert found.state == state and found.text.startswith(text)


def test_lines_of_dockers_json_are_read_as_what_was_printed(tmp_path: Path) -> None:
    lines = ["Traceback (most recent call last):", '  File "train.py", line 3, in <module>', "pkg.Stop: no rows"]
    logged = [json.dumps({"log": f"{text}\n", "stream": "stderr", "time": "2026-11-26T10:00:00.1Z"}) for text in lines]
    assert of_lines(tmp_path, *logged).text == "pkg.Stop: no rows"
    assert of_lines(tmp_path, '{"log": 3}', '{"log": "cut off', "{'loss': 1}") is None


def test_line_of_a_megabyte_is_read_in_no_time(tmp_path):
    for text in ("slurmstepd ", "NCCL WARN ", "a: ", "\rslurmstepd "):
        assert of_lines(tmp_path, text * (1_000_000 // len(text)), VALUE_ERROR).text == VALUE_ERROR
