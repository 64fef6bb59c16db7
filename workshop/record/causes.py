"""Why a job failed, read from its output (train.out), by the launcher at its end and by the tools later.

One failure prints many errors: when a rank runs out of memory, the others report an NCCL timeout half an hour later.
So symptoms are ranked by what can cause what, and of each the first in the file counts. Only an error's form at
the start of its line counts: a warning may mention `CUDA out of memory` or `scancel` and nothing is wrong.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from pathlib import Path

from workshop.record.printable import one_line
from workshop.record.tracebacks import BAR, EXCEPTION, OWN_ERROR, PREFIX, RAISED, START, Line, lines_of, message_of

# The libraries' messages when the GPU or the CPU has no memory left.
_NO_MEMORY = (
    r"(?:CUDA out of memory"
    r"|CUDA(?: driver)? error: (?:out of memory|\w+_ALLOC_FAILED)"
    r"|cu\w+ error: \w+_ALLOC_FAILED|Triton Error \[CUDA\]: out of memory"
    r"|(?:\[[^\]]*\][^:]*)?DefaultCPUAllocator: |std::bad_alloc|unable to m?map .*Cannot allocate memory)"
)
_OUT_OF_MEMORY = START + (
    # Some exceptions wrap another.
    rf"(?:(?:[\w.]+(?:Error|Exception|Failed): ){{,3}}(?:[\w.]*(?:Memory|OutOfMemory)Error(?::|\s*$)|{_NO_MEMORY})"
    rf"|(?:{EXCEPTION}|{OWN_ERROR}).*\[Errno 12\] Cannot allocate memory"
    r"|[\w./-]+: (?:line \d+: )?fork: (?:retry: )?Cannot allocate memory"
    # How C++ ends a process, and PyTorch's watchdog of NCCL.
    r"|terminate called after throwing an instance of '(?:std::bad_alloc|c10::\w*OutOfMemoryError)'"
    rf"|(?:\s*what\(\):\s+|\[[EF]\d)(?:.*terminated with exception: )?{_NO_MEMORY}"
    # PyTorch ends its message about NCCL with NCCL's own words.
    r"|Cuda failure (?:\d+ )?'out of memory')"
)
_TASK = r"srun: error: [^:]*: tasks? [^:]*: "  # how srun begins its report of a task that did not end well
# Messages of SLURM, PBS and the kernel when they end a process.
_KILLED_FOR_MEMORY = (
    r"slurmstepd.{,99}(?:oom[-_ ]kill|exceeded memory limit .{,99}being killed)"
    rf"|{_TASK}Out Of Memory|\b[Oo]ut of memory: Kill(?:ed)? process \d|=>> PBS: job killed: v?mem "
)
_SLURM_ENDS = rf"(?:slurm(?:step)?d[^*]{{,99}}|{START}error: )\*\*\* (?:JOB|STEP)\b[^*]*CANCELLED AT"
_NODE_FAILED = _SLURM_ENDS + "[^*]*DUE TO NODE FAILURE|srun: error: Node failure on "
# A task ended by TERM has not failed: tasks of a cancelled step end so, and srun may report it before SLURM says why.
_TASK_FAILED = _TASK + r"(?!Terminated|Exited with exit code 143)"
# SLURM's signals cause none of these; after a crash SLURM ends the other tasks, and may report that first.
_CRASH = "(?:Segmentation fault|Bus error|Illegal instruction|Floating point exception)"
_CRASHED = rf"{_TASK}(?:Aborted|{_CRASH})"
# SIGTERM's and SIGINT's own exceptions, and torchrun's report on its ranks.
_SIGNALLED = r"[\w.]*(?:KeyboardInterrupt|SignalException)\b"
# A rank reports that it lost the others or was ended with them, or names NCCL's error for the exception above.
_LOST = (
    rf"(?:{_SIGNALLED}|nccl[A-Z]\w+Error:"
    r"|[\w.]*(?:Dist(?:Backend|Network|Store)Error|(?:ChildFailed|CalledProcess|BrokenPipe|Connection\w*)Error)\b"
    r"|[\w.]+: .*(?:[Cc]onnection (?:closed|reset|refused)|[Bb]roken pipe|[Tt]imed out|NCCL))"
)
# PyTorch writes `[rank0]: ` before the exception that ends a rank; others may have been caught.
_ENDED = rf"{BAR}{PREFIX}{{,2}}(?:\[rank\d+\]: ?(?:[\s|]*{RAISED})?(?!{_LOST}){EXCEPTION}|{OWN_ERROR})"


@dataclass(frozen=True)
class Symptom:
    """Lines that tell a state; `not_after`: lines after which they are a consequence."""

    state: str
    pattern: str
    not_after: str | None = None


# torchrun and deepspeed report the first rank that ended, {} its exit code; they end the others themselves.
_ENDED_BY = r"failed \(exitcode: {0}\) local_rank: \d+|exits with return code = {0}\s*$|^\s*exitcode\s*: {0} \(pid"
_SHELL = r"^\S+: line \d+:\s+"  # how bash begins its lines
_RANK_KILLED = Symptom("failed", rf"{_ENDED_BY.format(-9)}|{_SHELL}\d+ Killed\b")
_TASK_ENDED = Symptom("failed", _TASK_FAILED)
# SLURM could not start a task (`execve(): `), or a plugin of it could not (`container_p_join: `).
_NOT_STARTED = Symptom("failed", r"^slurm(?:step)?d\b[^:*]{,99}: error: \w+(?:\(\d*\))?: ")
# Somebody cancelled it, unless a task had failed before: then srun itself ends the step (--kill-on-bad-exit) with the
# same words. Nor if a task crashed, before or after.
_CANCELLED = Symptom("cancelled", _SLURM_ENDS, not_after=_TASK_FAILED)
_HANG = r"[Ww]atchdog (?:caught collective|hang|got stuck)|Timed out waiting \d+ms for|failed to pass monitoredBarrier"
# Messages for a full disk of Python, shell commands, safetensors, and torch.save, whose file is too short.
_FULL = (
    r"(?:No space left on device|Disk quota exceeded|\[Errno (?:28|122)\]|basic_ios::clear: iostream error"
    r"|inline_container\.cc:\d+\] \. (?:unexpected pos|PytorchStreamWriter failed writing))"
)
_FATAL = r"Fatal Python error: "
# glibc, before it aborts a process whose memory is damaged.
_DAMAGED = rf"{START}(?:(?:free|munmap_chunk|\w*alloc\w*)\(\): [a-z]|double free or |corrupted (?:size vs|double-))"
# Ranked: a symptom is never the consequence of those below it.
_SYMPTOMS = [
    Symptom("oom", _KILLED_FOR_MEMORY),
    Symptom("oom", _OUT_OF_MEMORY, not_after=_ENDED),
    Symptom("timeout", _SLURM_ENDS + "[^*]*DUE TO TIME LIMIT|=>> PBS: job killed: walltime "),
    Symptom("preempted", _SLURM_ENDS + "[^*]*DUE TO (?:PREEMPTION|JOB REQUEUE)"),
    Symptom("failed", _NODE_FAILED),
    _CANCELLED,
    Symptom("failed", _TASK + r"(?:Killed|Exited with exit code 137)", not_after=_TASK_FAILED),
    _RANK_KILLED,
    Symptom("failed", rf"{START}(?!\w*[Ww]arning|INFO)[\w./+-]+: .{{,300}}{_FULL}"),
    Symptom("failed", rf"{_ENDED}|{START}(?:\s*what\(\):|\[[EF]\d).*\bCUDA (?:driver )?error"),
    Symptom("failed", rf"{START}(?!{_LOST}){EXCEPTION}"),
    # A crash makes the others wait. Not an abort (-6): so NCCL's watchdog ends a rank that waited.
    Symptom("failed", rf"{_ENDED_BY.format('-(?:4|7|8|11)')}|{_FATAL}(?!Aborted)|(?:{_TASK}|{_SHELL}\d+ ){_CRASH}"),
    Symptom("failed", _HANG),
    Symptom("failed", rf"^\s*what\(\):\s+(?!.*(?:{_LOST}|NCCL|[Cc]onnection|[Bb]roken pipe))\S"),
    Symptom("failed", rf"{_ENDED_BY.format(-6)}|{_DAMAGED}|{_FATAL}|(?:{_TASK}|{_SHELL}\d+ )Aborted"),
    Symptom("failed", rf"{START}[\w.]*Rendezvous\w*Error: "),
    Symptom("failed", rf"{START}(?![\w.]*ChildFailedError|{_SIGNALLED}){EXCEPTION}"),
    # C++, Python that finds no script or module, a record whose level is fatal; a site's module that is not there.
    Symptom("failed", rf"^\s*what\(\):\s+\S|{START}(?:\S*python[\d.]*: \w|FATAL: |F\d{{4}} \d\d:)"),
    Symptom("failed", rf"{START}(?:Lmod has detected the following|\s*\S*ERROR:\S* Unable to locate a modulefile)"),
    _TASK_ENDED,
    Symptom("failed", rf"{_SHELL}.*: (?:command not found|No such file|Permission denied|cannot execute)"),
    Symptom("failed", rf"{START}(?:ssh: |Host key verification failed|\S+: Permission denied \()"),
    Symptom("failed", r"^srun: (?:error|fatal): (?!\S+ tasks? )"),
    Symptom("failed", _ENDED_BY.format(r"-?\d+")),
    Symptom("failed", rf"{START}{_SIGNALLED}"),
    _NOT_STARTED,
]
_EXCEPTIONS = [symptom for symptom in _SYMPTOMS if symptom.state == "failed" and EXCEPTION in symptom.pattern]
# Every pattern above has one of these words; most lines of a training have none.
_HINT = re.compile(
    r"rror|xception|emory|alloc|ALLOC|slurm|srun|fail|exits with|atchdog|No space|quota|what\(|goes on"
    r"|exitcode|: line |denied|ssh: |Host key|Traceback|\+-\+-|python[\d.]*: |FATAL|F\d{4} |PBS|corrupt|\(\): |Unable"
)
GOES_ON = "the run goes on from "  # begins the line between two attempts; errors above it belong to earlier attempts
CRASHES = (4, 6, 7, 8, 11)  # signals
# Names for the line that decided. The first that fits counts: NCCL's errors mention CUDA, too.
_NAMES = [
    ("hang", re.compile(_HANG)),
    ("disk full", re.compile(_FULL)),
    ("node failure", re.compile(_NODE_FAILED)),
    ("Aborted (SIGABRT)", re.compile(_DAMAGED)),
    ("NCCL error", re.compile(r"NCCL error|\bnccl[A-Z]\w+Error\b")),
    ("rendezvous lost", re.compile(r"^\S*Rendezvous\w*Error: ")),
    ("CUDA error", re.compile(r"CUDA (?:driver )?error|\bcu(?:BLAS|DNN) error|CU(?:BLAS|DNN)_STATUS_|Cuda failure")),
]
_OF_GPU = re.compile(r"CUDA|Cuda|OutOfMemoryError|\bcu\w+ error")


@dataclass(frozen=True)
class Cause:
    """The line that decides.

    Attributes: state: a state of logs/README.md; name: of the cause, or ""; line: counted from 1; text: the line and
        the lines that continue its message; task_failed: srun reports, on any line, that a task failed; rank_killed:
        the line says that a rank was killed (SIGKILL).
    """

    state: str
    name: str
    line: int
    text: str
    task_failed: bool
    rank_killed: bool


def cause(path: Path | str) -> Cause | None:
    """Return the first cause of a failure; None if the output names none. For a resumed run, of its last attempt."""
    first: dict[Symptom, Line] = {}  # a symptom's first line
    logged: dict[Symptom, Line] = {}  # those that a logger wrote
    seen: set[str] = set()  # endings on a line above
    for line in list(lines_of(path, _HINT)):  # a list: what follows tells what was handled
        if line.text.startswith(GOES_ON):
            first, logged, seen = {}, {}, set()
        if "During handling of" in line.text:
            seen.discard(_ENDED)
        for symptom in _SYMPTOMS:
            if symptom.not_after not in seen and re.search(symptom.pattern, line.text):
                if not (line.handled and symptom in _EXCEPTIONS and not re.match(_SIGNALLED, line.last)):
                    (logged if line.logged else first).setdefault(symptom, line)
                break
        if not line.last:  # else it had not ended the rank
            seen |= {pattern for pattern in (_TASK_FAILED, _ENDED, _CRASHED) if re.search(pattern, line.text)}
    if _CRASHED in seen:
        first.pop(_CANCELLED, None)
    if first.keys().isdisjoint(_EXCEPTIONS):
        first = logged | first
    if not (symptom := next((symptom for symptom in _SYMPTOMS if symptom in first), None)):
        return None
    line = first[symptom]
    message = message_of(path, line)
    if symptom == _TASK_ENDED and _NOT_STARTED in first:
        line = first[_NOT_STARTED]
        message = f"{line.shown}; {message}"
    name, text = _name(symptom.state, line.shown), one_line(message[:500])
    return Cause(symptom.state, name, line.number, text, _TASK_FAILED in seen, symptom == _RANK_KILLED)


def signal_name(number: int) -> str:
    """Such as "Segmentation fault (SIGSEGV)"; "" if there is no such signal."""
    return f"{signal.strsignal(number)} ({signal.Signals(number).name})" if number in set(signal.Signals) else ""


def _name(state: str, text: str) -> str:
    if state == "oom":
        return "" if _OF_GPU.search(text) else "host memory"
    if ended := re.search(_ENDED_BY.format(f"-({'|'.join(map(str, CRASHES))})"), text):
        return signal_name(int(next(filter(None, ended.groups()))))
    return next((name for name, words in _NAMES if state == "failed" and words.search(text)), "")
