"""Runs participants' code for the holes on gloo ranks: `python -m workshop.holes.grade FOLDER...`, a JSON line each.

This process imports PyTorch once; each hole's ranks are forks of it. A rank loads the code first. Then this process
draws the inputs, and compares what the ranks send back: the code cannot know the inputs, nor change the verdict.
"""

import gc
import json
import os
import resource
import select
import signal
import socket
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

import torch
import torch._dynamo  # here, not in every rank
import torch.distributed as dist

from workshop.holes.checks import HOLES, Hole
from workshop.holes.isolation import end_with_parent, isolate, isolation_allowed
from workshop.measure.collectives import CollectiveCounter

LIMIT_S = 10  # for a hole; a right one takes a fifth of a second
MEMORY_BYTES = 2**30  # for a rank, beside what it begins with
_LINK = 0  # a rank's file descriptor that leads to the process that grades


class _Problem(Exception):  # noqa: N818
    """Why a hole cannot be compared; None for a stub, or no file."""


def main() -> None:
    torch.set_num_threads(1)  # a fork would have none of the others
    gc.freeze()
    isolated, quiet = isolation_allowed(), len(sys.argv) > 2
    for folder in map(Path, sys.argv[1:]):
        found = [(hole.name, _wrong(hole, folder, isolated, quiet)) for hole in HOLES if folder.is_dir()]
        print(json.dumps({"isolated": isolated, "holes": found}), flush=True)


def _wrong(hole: Hole, folder: Path, isolated: bool, quiet: bool) -> str | None:
    """What is wrong with the code, "" for nothing, None for a stub or no file. quiet: do not show what it prints."""
    links = [tuple(end.detach() for end in socket.socketpair()) for _ in range(hole.ranks)]
    ours, theirs = zip(*links, strict=True)
    with TemporaryDirectory() as root:
        if not (child := os.fork()):
            _hold_ranks(hole, folder, Path(root), theirs, isolated, quiet)
        for end in theirs:
            os.close(end)
        try:
            until = time.monotonic() + LIMIT_S
            _answers(ours, until)  # the code is loaded
            torch.seed()  # which no process forked before can know
            inputs = hole.draw()
            for end, own in zip(ours, inputs, strict=True):
                os.write(end, json.dumps([tensor.tolist() for tensor in own]).encode() + b"\n")
            return hole.judge(inputs, _answers(ours, until))
        except _Problem as problem:
            return problem.args[0]
        except Exception as error:  # an answer of another form than _run_rank's
            return f"cannot be compared: {error}"
        finally:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            for end in ours:
                os.close(end)


def _answers(ends: tuple[int, ...], until: float) -> list[dict[str, Any]]:
    """What the ranks say next, in their order; raises _Problem if one failed, ended or took too long."""
    texts, answers = dict.fromkeys(ends, b""), {}
    while waiting := [end for end in ends if end not in answers]:
        readable, _, _ = select.select(waiting, [], [], max(0, until - time.monotonic()))
        if not readable:
            raise _Problem(f"no end after {LIMIT_S} s: a loop, or a rank waits for what no other sends")
        for end in readable:
            part = os.read(end, 2**16)
            texts[end] += part
            if not part or len(texts[end]) > 2**20:
                raise _Problem("a rank gave too long an answer" if part else "a rank ended before its answer")
            if texts[end].endswith(b"\n"):
                answers[end] = json.loads(texts[end])
                if "problem" in answers[end]:
                    raise _Problem(answers[end]["problem"])
    return [answers[end] for end in ends]


def _hold_ranks(hole: Hole, folder: Path, root: Path, links: tuple[int, ...], isolated: bool, quiet: bool) -> NoReturn:
    """Starts the ranks, isolated where that is allowed, in a process group of their own, which is killed later."""
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_WRONLY) if quiet else 2, 2)
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + MEMORY_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        os.chdir(root)
        if isolated:
            isolate(folder, root)
        end_with_parent()
        for rank, link in enumerate(links):
            if not os.fork():
                _run_rank(hole, folder, rank, link)
        os.closerange(3, 2**16)
        signal.pause()
    finally:
        os._exit(1)


def _run_rank(hole: Hole, folder: Path, rank: int, link: int) -> NoReturn:
    """A rank: it runs the participant's code, answers, and waits for its end."""
    end_with_parent()
    os.dup2(link, _LINK)
    os.dup2(2, 1)
    os.closerange(3, 2**16)
    os.environ.clear()  # of keys
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(folder))
    try:
        meeting = f"file://{Path.cwd() / 'meeting'}"
        dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=hole.ranks)
        if not (folder / f"{hole.name}.py").exists():
            raise NotImplementedError
        function = getattr(import_module(hole.name), hole.name)
        os.write(_LINK, b"{}\n")
        with os.fdopen(_LINK, closefd=False) as lines:
            inputs = [torch.tensor(one) for one in json.loads(lines.readline())]
        with CollectiveCounter() as counter:
            found = hole.call(function, inputs)
        if any(tensor is None for tensor in found):
            raise TypeError(f"{hole.name} returns or leaves None, expected a tensor")
        sent = [[call.collective, call.bytes, number] for call, number in counter.calls.items()]
        answer = {"found": [tensor.tolist() for tensor in found], "sent": sent}
    except NotImplementedError:
        answer = {"problem": None}
    except BaseException as error:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).parent == folder]
        place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
        answer = {"problem": f"{type(error).__name__}: {str(error).partition(chr(10))[0][:200]}{place}"}
    os.write(_LINK, json.dumps(answer).encode() + b"\n")
    while True:  # the others may not have read yet what this one sent
        signal.pause()


if __name__ == "__main__":
    main()
