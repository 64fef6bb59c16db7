"""Checkpoints that are whole or absent: each has a manifest of its files, which is checked before it is used.

A checkpoint is written in FOLDER/unfinished and renamed when it has its manifest. So a killed process and a full disk
leave earlier checkpoints unchanged. Files are not forced onto the disk (fsync): the manifest shows what a power cut
has lost.

A manifest protects against damage, not against malice. Weights are safetensors. PyTorch's and the Trainer's own files
are loaded without unpickling objects (weights_only). Two are unpickled by their library, so use checkpoints that you
made yourself: DeepSpeed's `*_states.pt` and `.metadata` of PyTorch's distributed checkpoints (FSDP's sharded state).

Only the standard library is needed: the supervisor asks before it starts anything.
"""

import json
import re
import shutil
import sys
from collections.abc import Callable, Container, Sequence
from pathlib import Path
from typing import Any

from workshop.record.errors import InputError
from workshop.record.printable import counted

MANIFEST = "manifest.json"
UNFINISHED = "unfinished"
UNIVERSAL = "latest_universal"  # in a ZeRO checkpoint that further/resilience/convert.py has converted
Digests = dict[str, tuple[int, str]]  # size and SHA-256 of a file, by its path in the checkpoint


def digest(file: Path) -> str:
    """SHA-256."""
    import hashlib  # here and below: the tools, which digest nothing, import this module and start sooner

    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def digests(folder: Path, rank: int = 0, ranks: int = 1, known: Container[str] = ()) -> Digests:
    """Return the digests of this rank's share of the files: the ranks take turns, the largest first.

    Args: known: files that are not read.
    """
    from concurrent.futures import ThreadPoolExecutor

    files = (file for file in folder.rglob("*") if file.is_file() and str(file.relative_to(folder)) not in known)
    sizes = {file: file.stat().st_size for file in files}
    files = sorted(sizes, key=lambda file: (-sizes[file], file))[rank::ranks]
    with ThreadPoolExecutor() as threads:
        hashes = threads.map(digest, files)
    return {str(file.relative_to(folder)): (sizes[file], next(hashes)) for file in files}


def finish(folder: Path, goal: Path, shares: Sequence[Digests] = (), **facts: Any) -> int:
    """Write the manifest of `folder` with `facts` (step, world_size, …), then rename it to `goal`; return its bytes.

    Args: shares: the digests of all ranks. A file whose size another node saw differently is read again.
    """
    known, listed = {name: entry for share in shares for name, entry in share.items()}, Digests()
    for file in sorted(file for file in folder.rglob("*") if file.is_file()):
        name, size = str(file.relative_to(folder)), file.stat().st_size
        listed[name] = known[name] if known.get(name, (None,))[0] == size else (size, digest(file))
    (folder / MANIFEST).write_text(json.dumps(facts | {"files": listed}, indent=1) + "\n")
    if goal.exists():  # of an earlier attempt that had come further, and not whole
        shutil.rmtree(goal)
    folder.rename(goal)
    return sum(size for size, _ in listed.values())


def add_to_manifest(folder: Path) -> None:
    """List the files that were added to a whole checkpoint; the manifest is replaced at once."""
    saved, new = manifest(folder), folder / f"{MANIFEST}.new"
    added = digests(folder, known={*saved["files"], MANIFEST, new.name})
    new.write_text(json.dumps(saved | {"files": saved["files"] | added}, indent=1) + "\n")
    new.replace(folder / MANIFEST)


def manifest(folder: Path) -> dict[str, Any]:
    """Raises OSError or ValueError where there is none that can be read."""
    return json.loads((folder / MANIFEST).read_text())


def fault(folder: Path) -> str:
    """Return why a checkpoint is not whole, naming the file; "" if it is."""
    try:
        files = [(name, int(size), expected) for name, (size, expected) in manifest(folder)["files"].items()]
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        return f"its {MANIFEST} cannot be read ({error}), so nothing says that it was finished"
    for name, size, expected in files:
        file = folder / name
        try:
            if not file.is_file():
                return f"{name} is missing"
            if (present := file.stat().st_size) != size:
                return f"{name} has {present:,} bytes, its manifest says {size:,}"
            if digest(file) != expected:
                return f"{name} has not the content that its manifest says (SHA-256)"
        except OSError as error:
            return f"{name}: {error.strerror}"
    return ""


def checkpoints(output: Path) -> list[Path]:
    """Return the checkpoints, the newest first, whole or not."""
    return sorted(filter(step_of, output.glob("checkpoint-*")), key=step_of, reverse=True)


def step_of(checkpoint: str | Path) -> int:
    """30 of …/checkpoint-30; 0 of anything else."""
    match = re.fullmatch(r"checkpoint-(\d+)", Path(checkpoint).name)
    return int(match[1]) if match else 0


def is_of(checkpoint: str, output: Path) -> bool:
    """Return whether the checkpoint lies in that folder, also where links lead there."""
    return bool(checkpoint) and Path(checkpoint).resolve().parent == output.resolve()


def newest(output: Path, say: Callable[[str], None] = print) -> Path | None:
    """Return the newest whole checkpoint; `say` why newer ones are skipped."""
    for folder in checkpoints(output):
        if not (reason := fault(folder)):
            return folder
        say(f"warning: {folder.name} is skipped: {reason}")
    return None


def remove_unfinished(output: Path) -> None:
    """Remove an unfinished checkpoint; on a full disk this makes room for the run's evidence."""
    shutil.rmtree(output / UNFINISHED, ignore_errors=True)


def takes_any_number(saved: dict[str, Any]) -> bool:
    """Return whether any number of processes can load the checkpoint with this manifest."""
    return not saved.get("fixed_world_size") or UNIVERSAL in saved["files"]


def check_processes(folder: Path, world_size: int) -> None:
    """Raises InputError where `world_size` processes cannot resume from a whole checkpoint."""
    saved = manifest(folder)
    of = saved.get("world_size", world_size)
    if of != world_size and not takes_any_number(saved):
        raise InputError(
            f"{folder}: saved by {counted(of, 'process', 'processes')}, and DeepSpeed's ZeRO loads this checkpoint on "
            f"as many only; found {world_size}, expected {of}, or first `python -m further.resilience.convert {folder}`"
        )


def check(folder: Path, world_size: int) -> None:
    """Raises InputError where `world_size` processes cannot resume from this checkpoint."""
    if not (folder / MANIFEST).exists():
        print(f"warning: {folder} has no {MANIFEST}: used without a look at its files", file=sys.stderr)
        return
    if reason := fault(folder):
        raise InputError(f"{folder}: {reason}; expected a checkpoint that is whole")
    check_processes(folder, world_size)
