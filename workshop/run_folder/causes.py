"""Why a job failed, read from its output (train.out), by the launcher at its end and by the tools later.

One failure prints many errors: when a rank runs out of memory, the others report an NCCL timeout half an hour later.
So the kinds are ranked by what can cause what, and within a kind the first in the file counts. Only an error's form at
the start of its line counts: a warning may mention `CUDA out of memory` or `scancel` and nothing is wrong.
"""

from __future__ import annotations

import itertools
import os
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from workshop.run_folder.printable import one_line
from workshop.run_folder.safe_open import open_plain

# Prefixes of an error: a progress bar; the rank or the node as PyTorch, srun, pdsh, mpirun and Ray write it:
# `[rank0]: `, `[trainer0|0]:`, `[1,3]<stderr>:`, `3: `, `10.0.0.4: `, `node3: `, `(Worker pid=8) `; or a time.
_BAR = r"^(?:[^|%]*\d%\|(?:[^|]*\|[^\]]*\])?\s*)?"
_PREFIX = (
    r"(?:\[[\w.,|-]+\](?:<std(?:err|out)>)?: ?|\d[\d.]*: |(?!slurm)(?=[a-z][\w.-]{,63}: )[^\d:]+\d[\w.-]*: "
    r"|[\w.-]{1,63} \[std(?:err|out)\] |\(\w{1,63} pid=\d+[^)]{,63}\) |\d{4}-\d\d-\d\d[T ][\d:.,]+Z? )"
)
_START = rf"{_BAR}{_PREFIX}{{,3}}"
# The last line of a traceback; a data loader's worker repeats its own below.
_EXCEPTION = r"[\w.]*(?:Error|Exception)(?:: (?!Caught \w+ in )|\s*$)"
_OWN_ERROR = r"(?:[\w-]+\.py: )?error(?: \(rank \d+\))?: "  # an InputError of the workshop, or argparse's
# The libraries' messages when the GPU or the CPU has no memory left.
_NO_MEMORY = (
    r"(?:CUDA out of memory"
    r"|CUDA(?: driver)? error: (?:out of memory|\w+_ALLOC_FAILED)"
    r"|cu\w+ error: \w+_ALLOC_FAILED|Triton Error \[CUDA\]: out of memory"
    r"|(?:\[[^\]]*\][^:]*)?DefaultCPUAllocator: "
    r"|std::bad_alloc"
    r"|unable to m?map .*Cannot allocate memory)"
)
_OUT_OF_MEMORY = _START + (
    # Some exceptions wrap another.
    rf"(?:(?:[\w.]+(?:Error|Exception|Failed): ){{,3}}(?:[\w.]*(?:Memory|OutOfMemory)Error(?::|\s*$)|{_NO_MEMORY})"
    rf"|(?:{_EXCEPTION}|{_OWN_ERROR}).*\[Errno 12\] Cannot allocate memory"
    r"|[\w./-]+: (?:line \d+: )?fork: (?:retry: )?Cannot allocate memory"
    # How C++ ends a process, and PyTorch's watchdog of NCCL.
    r"|terminate called after throwing an instance of '(?:std::bad_alloc|c10::\w*OutOfMemoryError)'"
    rf"|(?:\s*what\(\):\s+|\[[EF]\d)(?:.*terminated with exception: )?{_NO_MEMORY}"
    # PyTorch ends its message about NCCL with NCCL's own words.
    r"|Cuda failure (?:\d+ )?'out of memory')"
)
_TASK = r"srun: error: [^:]*: tasks? [^:]*: "  # how srun begins its report of a task that did not end well
# Messages of SLURM and the kernel when they end a process.
_KILLED_FOR_MEMORY = (
    r"slurmstepd.{,99}(?:oom[-_ ]kill|exceeded memory limit .{,99}being killed)"
    rf"|{_TASK}Out Of Memory|\b[Oo]ut of memory: Kill(?:ed)? process \d"
)
_SLURM_ENDS = rf"(?:slurm(?:step)?d[^*]{{,99}}|{_START}error: )\*\*\* (?:JOB|STEP)\b[^*]*CANCELLED AT"
_NODE_FAILED = _SLURM_ENDS + "[^*]*DUE TO NODE FAILURE|srun: error: Node failure on "
# A task ended by TERM has not failed: tasks of a cancelled step end so, and srun may report it before SLURM says why.
_TASK_FAILED = _TASK + r"(?!Terminated|Exited with exit code 143)"
# SLURM's signals cause none of these; after one SLURM ends the other tasks, and may report that first.
_CRASH = "(?:Segmentation fault|Bus error|Illegal instruction|Floating point exception)"
_CRASHED = rf"{_TASK}(?:Aborted|{_CRASH})"
# A rank reports that it lost the others or was ended with them, or names NCCL's error for the exception above.
_LOST = (
    r"(?:nccl[A-Z]\w+Error:|[\w.]*(?:Dist(?:Backend|Network|Store)Error|SignalException|ChildFailedError|CalledProcessError|BrokenPipeError"
    r"|Connection\w*Error)\b|[\w.]+: .*(?:[Cc]onnection (?:closed|reset|refused)|[Bb]roken pipe|[Tt]imed out|NCCL))"
)
# PyTorch writes `[rank0]: ` before the exception that ends a rank; one without it may have been caught.
_ENDED = rf"{_BAR}{_PREFIX}{{,2}}(?:\[rank\d+\]: ?(?!{_LOST}){_EXCEPTION}|{_OWN_ERROR})"
_HANDLED = "During handling of the above exception"  # so that one had not ended the rank


@dataclass(frozen=True)
class Kind:
    """Lines that tell a state; `not_after`: lines after which they are a consequence."""

    state: str
    pattern: str
    not_after: str | None = None


# torchrun and deepspeed report the first rank that ended, {} its exit code; they end the others themselves.
_ENDED_BY = r"failed \(exitcode: {0}\) local_rank: \d+|exits with return code = {0}\s*$|^\s*exitcode\s*: {0} \(pid"
_SHELL = r"^\S+: line \d+:\s+"  # how bash begins its lines
_RANK_KILLED = Kind("failed", rf"{_ENDED_BY.format(-9)}|{_SHELL}\d+ Killed\b")
# Somebody cancelled it, unless a task had failed before: then srun itself ends the step (--kill-on-bad-exit) with the
# same words. Nor if a task crashed, before or after.
_CANCELLED = Kind("cancelled", _SLURM_ENDS, not_after=_TASK_FAILED)
_HANG = r"[Ww]atchdog (?:caught collective|hang|got stuck)|Timed out waiting \d+ms for|failed to pass monitoredBarrier"
# Messages for a full disk of Python, shell commands, safetensors, and torch.save, whose file is too short.
_FULL = (
    r"(?:No space left on device|Disk quota exceeded|\[Errno (?:28|122)\]|basic_ios::clear: iostream error"
    r"|inline_container\.cc:\d+\] \. (?:unexpected pos|PytorchStreamWriter failed writing))"
)
_FATAL = r"Fatal Python error: "
_SSH = r"(?:ssh: |Host key verification failed|\S+: Permission denied \()"
# Ranked: a kind is never the consequence of one further down.
_KINDS = [
    Kind("oom", _KILLED_FOR_MEMORY),
    Kind("oom", _OUT_OF_MEMORY, not_after=_ENDED),
    Kind("timeout", _SLURM_ENDS + "[^*]*DUE TO TIME LIMIT"),
    Kind("preempted", _SLURM_ENDS + "[^*]*DUE TO (?:PREEMPTION|JOB REQUEUE)"),
    Kind("failed", _NODE_FAILED),
    _CANCELLED,
    Kind("failed", _TASK + r"(?:Killed|Exited with exit code 137)", not_after=_TASK_FAILED),
    _RANK_KILLED,
    Kind("failed", rf"{_START}(?!\w*[Ww]arning|INFO)[\w./+-]+: .{{,300}}{_FULL}"),
    Kind(
        "failed",
        rf"{_START}(?:{_OWN_ERROR}|(?!{_LOST}){_EXCEPTION}|(?:\s*what\(\):|\[[EF]\d).*\bCUDA (?:driver )?error)",
    ),
    # A crash makes the others wait. Not an abort (-6): so NCCL's watchdog ends a rank that waited.
    Kind("failed", rf"{_ENDED_BY.format('-(?:4|7|8|11)')}|{_FATAL}(?!Aborted)|(?:{_TASK}|{_SHELL}\d+ ){_CRASH}"),
    Kind("failed", _HANG),
    Kind("failed", rf"^\s*what\(\):\s+(?!.*(?:{_LOST}|NCCL|[Cc]onnection|[Bb]roken pipe))\S"),
    Kind("failed", rf"{_ENDED_BY.format(-6)}|{_FATAL}|(?:{_TASK}|{_SHELL}\d+ )Aborted"),
    Kind("failed", rf"{_START}[\w.]*Rendezvous\w*Error: "),
    Kind("failed", rf"{_START}(?![\w.]*ChildFailedError){_EXCEPTION}"),
    Kind("failed", rf"{_START}[\w.]+\.(?:errors|exc)\.(?!ChildFailedError)\w+: "),  # torch._dynamo.exc.Unsupported
    Kind("failed", r"^\s*what\(\):\s+\S"),
    Kind("failed", _TASK_FAILED),
    Kind("failed", rf"{_SHELL}.*: (?:command not found|No such file|Permission denied|cannot execute)|{_START}{_SSH}"),
    Kind("failed", r"^srun: (?:error|fatal): (?!\S+ tasks? )"),
    Kind("failed", _ENDED_BY.format(r"-?\d+")),
]
# Every pattern above needs one of these; most lines of a training have none.
_HINT = re.compile(
    r"rror|xception|emory|alloc|ALLOC|slurm|srun|failure|failed|exits with|Watchdog|No space|quota|what\(|goes on"
    r"|exitcode|: line |denied|ssh: |Host key|watchdog|\.exc\."
)
GOES_ON = "the run goes on from "  # begins the line between two attempts; errors above it belong to earlier attempts


CRASHES = (4, 6, 7, 8, 11)  # signals
# Names for the line that decided. The first that fits counts: NCCL's errors mention CUDA, too.
_NAMES = [
    ("hang", re.compile(_HANG)),
    ("disk full", re.compile(_FULL)),
    ("node failure", re.compile(_NODE_FAILED)),
    ("NCCL error", re.compile(r"NCCL error|\bnccl[A-Z]\w+Error\b")),
    ("rendezvous lost", re.compile(r"^\S*Rendezvous\w*Error: ")),
    ("CUDA error", re.compile(r"CUDA (?:driver )?error|\bcu(?:BLAS|DNN) error|CU(?:BLAS|DNN)_STATUS_|Cuda failure")),
]
_OF_GPU = re.compile(r"CUDA|Cuda|OutOfMemoryError|\bcu\w+ error")
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_LONGEST = 4096  # characters of a line that are searched
_LONGEST_MESSAGE = 20  # lines
# Beginnings of lines that do not continue an exception's message: another message, logger, launcher or rank.
_NOT_OF_MESSAGE = (
    rf"{_PREFIX}|(?!nccl){_EXCEPTION}|{_OWN_ERROR}|Traceback|During handling|The above exception|frame #|File \""
    r"|terminate |Exception raised|\[?\d{4}-\d\d-\d\d|\[?[EFIW]\d{4} |[A-Z]{4,}: ?\w|\[Rank \d|srun: |slurm|={5}|-{5}"
    r"|\{'|pdsh@|the run goes on|warning: |Fatal Python|[^|]*\d%\||.*Watchdog caught"
)


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
    first: dict[Kind, tuple[int, str]] = {}  # number and text of a kind's first line
    seen: set[str] = set()  # endings on a line above
    ignored = False
    for number, line in _lines(path):
        if ignored and re.search(_START + _EXCEPTION, line):
            ignored = False
            continue
        ignored |= "Exception ignored in" in line  # Python's words for one in a destructor, with its traceback
        if line.startswith(GOES_ON):
            first, seen = {}, set()
        for kind in _KINDS:
            if kind.not_after not in seen and re.search(kind.pattern, line):
                first.setdefault(kind, (number, line))
                break
        if _HANDLED in line:
            seen.discard(_ENDED)
        seen |= {pattern for pattern in (_TASK_FAILED, _ENDED, _CRASHED) if re.search(pattern, line)}
    if _CRASHED in seen:
        first.pop(_CANCELLED, None)
    kind = next((kind for kind in _KINDS if kind in first), None)
    if not kind:
        return None
    number, text = first[kind]
    message = one_line(_message(path, number, text.strip())[:500])
    return Cause(
        kind.state, _name(kind.state, text.strip()), number, message, _TASK_FAILED in seen, kind == _RANK_KILLED
    )


def _lines(path: Path | str) -> Iterator[tuple[int, str]]:
    """Give number and text of the lines with a hint; a progress bar's carriage returns part lines of one number."""
    # newline="\n": carriage returns are no line ends to grep -n or an editor.
    with os.fdopen(open_plain(path), encoding="utf-8", errors="replace", newline="\n") as lines:
        number = 1
        while line := lines.readline(_LONGEST * 16):  # a file may be a single line
            if _HINT.search(line):
                for part in filter(_HINT.search, line.split("\r")):
                    yield number, _COLOUR.sub("", part[:_LONGEST])
            number += line.endswith("\n")


def _message(path: Path | str, number: int, first: str) -> str:
    """Return the message that begins with this text in this line, with the lines of the same rank that continue it."""
    start = re.match(_START, first)[0]
    if not re.match(rf"{_EXCEPTION}|what\(\):", first[len(start) :]):
        return first
    rank, found = start[len(re.match(_BAR, start)[0]) :], [first]
    with os.fdopen(open_plain(path), encoding="utf-8", errors="replace", newline="\n") as lines:
        for line in itertools.islice(lines, number, number + _LONGEST_MESSAGE):
            line = _COLOUR.sub("", line[:_LONGEST])
            inner = line[len(rank) :].lstrip()
            if not line.startswith(rank) or not inner or re.match(_NOT_OF_MESSAGE, inner):
                break
            found.append(inner.rstrip())
    return " ".join(found)


def signal_name(number: int) -> str:
    """Such as "Segmentation fault (SIGSEGV)"."""
    return f"{signal.strsignal(number)} ({signal.Signals(number).name})"


def _name(state: str, text: str) -> str:
    if state == "oom":
        return "" if _OF_GPU.search(text) else "host memory"
    if ended := re.search(_ENDED_BY.format(f"-({'|'.join(map(str, CRASHES))})"), text):
        return signal_name(int(next(filter(None, ended.groups()))))
    return next((name for name, words in _NAMES if state == "failed" and words.search(text)), "")
