"""Checkpoints that are whole or not there: a manifest says what is in each, and is looked at before the next use.

A checkpoint is written in FOLDER/unfinished, where nobody looks for one, and renamed when its manifest is in it. So a
process that is killed and a disk that is full leave the checkpoints before as they were. Nothing is forced onto the
disk (fsync): what a power cut takes with it, the manifest shows.

A manifest protects against damage, not against malice. Weights are safetensors. PyTorch's and the Trainer's own files
are loaded without unpickling objects (weights_only). Two are unpickled by their library, so use checkpoints that you
made yourself: DeepSpeed's `*_states.pt` and `.metadata` of PyTorch's distributed checkpoints (FSDP's sharded state).

Needs nothing but the standard library: the supervisor asks before it starts anything.
"""

import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from run_folder.plural import counted
from workshop.errors import WorkshopError

MANIFEST = "manifest.json"
UNFINISHED = "unfinished"
BLOCK_BYTES = 64 << 20


def digest(file: Path, progress: Callable[[], None] = lambda: None) -> str:
    """SHA-256 of the SHA-256 of each 64 MiB: so that one large file, too, is read by several threads.

    Args: progress: called after each, from any thread.
    """
    starts = range(0, max(file.stat().st_size, 1), BLOCK_BYTES)

    def block(start: int) -> bytes:
        with file.open("rb") as stream:
            stream.seek(start)
            found = hashlib.sha256(stream.read(BLOCK_BYTES)).digest()
        progress()
        return found

    with ThreadPoolExecutor(min(len(starts), os.cpu_count() or 1)) as threads:
        return hashlib.sha256(b"".join(threads.map(block, starts))).hexdigest()


def finish(folder: Path, goal: Path, progress: Callable[[], None] = lambda: None, **facts: Any) -> int:
    """Write the manifest of `folder` with `facts` (step, world_size, …), then rename it to `goal`; its bytes."""
    names = sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())
    files = {name: [(folder / name).stat().st_size, digest(folder / name, progress)] for name in names}
    (folder / MANIFEST).write_text(json.dumps(facts | {"files": files}, indent=1) + "\n")
    if goal.exists():  # of an attempt that had gone further and was not whole
        shutil.rmtree(goal)
    folder.rename(goal)
    return sum(size for size, _ in files.values())


def manifest(folder: Path) -> dict[str, Any]:
    """Raises OSError or ValueError where there is none that can be read."""
    return json.loads((folder / MANIFEST).read_text())


def fault(folder: Path) -> str:
    """Why a checkpoint is not whole, naming the file; empty if it is."""
    try:
        files = manifest(folder)["files"].items()
    except FileNotFoundError:
        return f"it has no {MANIFEST}, so nothing says that it was finished"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"its {MANIFEST} cannot be read ({error})"
    for name, (size, expected) in files:
        file = folder / name
        if not file.is_file():
            return f"{name} is missing"
        if (found := file.stat().st_size) != size:
            return f"{name} has {found:,} bytes, its manifest says {size:,}"
        if digest(file) != expected:
            return f"{name} has not the content that its manifest says (SHA-256)"
    return ""


def checkpoints(output: Path) -> Iterator[Path]:
    """The newest first, whole or not."""
    found = [(int(match[1]), path) for path in output.glob("checkpoint-*") if (match := _STEP.fullmatch(path.name))]
    return (path for _, path in sorted(found, reverse=True))


_STEP = re.compile(r"checkpoint-(\d+)")


def step_of(checkpoint: str | Path) -> int:
    """30 of …/checkpoint-30; 0 of anything else."""
    match = _STEP.fullmatch(Path(checkpoint).name)
    return int(match[1]) if match else 0


def is_of(checkpoint: str, output: Path) -> bool:
    """Whether it lies in that folder; the launcher names it without the links that may lead there."""
    return bool(checkpoint) and Path(checkpoint).resolve().parent == output.resolve()


def newest(output: Path, say: Callable[[str], None] = print) -> Path | None:
    """The newest whole checkpoint; of newer ones that are not, a line says why."""
    for folder in checkpoints(output):
        if not (reason := fault(folder)):
            return folder
        say(f"warning: {folder.name} is skipped: {reason}")
    return None


def keep_newest(output: Path, limit: int) -> None:
    """Delete all but the newest `limit` checkpoints; 0: keep all."""
    for folder in list(checkpoints(output))[limit:] if limit else []:
        shutil.rmtree(folder)


def remove_unfinished(output: Path) -> None:
    """What a training left that died while it saved; on a full disk it makes room for the run's evidence."""
    shutil.rmtree(output / UNFINISHED, ignore_errors=True)


def complaint(folder: Path, world_size: int) -> str:
    """Why `world_size` processes cannot go on from a whole checkpoint; empty if they can."""
    saved = manifest(folder)
    if saved.get("fixed_world_size") and saved["world_size"] != world_size:
        processes = counted(saved["world_size"], "process", "processes")
        return (
            f"{folder}: saved by {processes}, and DeepSpeed's ZeRO loads its optimizer on as many "
            f"only; found {world_size}, expected {saved['world_size']} (FSDP and plain DDP take another number)"
        )
    return ""


def check(folder: Path, world_size: int) -> None:
    """Raises WorkshopError where `world_size` processes cannot go on from this checkpoint."""
    if not (folder / MANIFEST).exists():
        print(f"warning: {folder} has no {MANIFEST}: used without a look at its files", file=sys.stderr)
    elif reason := fault(folder):
        raise WorkshopError(f"{folder}: {reason}; expected a checkpoint that is whole")
    elif reason := complaint(folder, world_size):
        raise WorkshopError(reason)
