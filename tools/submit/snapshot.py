"""A copy of the code as it is now: a job runs the copy, so that editing a file while it waits changes nothing.

SLURM keeps only the launcher script from the moment of submission; it reads the Python files when the job starts.
A snapshot is a folder `$LOG_DIR/.code/<hash>/` named after what it holds, so unchanged code is copied once. Beside the
code it has snapshot.json (commit, dirty) and code.diff, which workshop/job/run_record.py puts into the run's evidence.
"""

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

# Data belongs elsewhere: a file larger than this that git does not track is left out, and the user is told.
LARGEST_UNTRACKED_BYTES = 10 << 20
# Site settings and the Python environment are no code: the snapshot uses the repository's, also if made later.
LINKED = (".venv", "cluster.env")
_CACHES = {"__pycache__", "venv", "node_modules"}


@dataclass(frozen=True)
class Snapshot:
    """A folder with the code, and the files (relative to the repository) that were too large for it."""

    folder: Path
    left_out: list[str]


@dataclass(frozen=True)
class _File:
    path: str  # relative to the repository
    mode: int  # permission bits; 0 for a symbolic link
    content: bytes  # of a symbolic link: its target


def take(root: Path, logs: Path) -> Snapshot:
    """Copy the repository at `root` to `logs`/.code/<hash>/, unless the same code is there already."""
    root, logs = root.resolve(), logs.resolve()
    commit = _git(root, "rev-parse", "HEAD").decode().strip() or None
    tracked = set(_listed(root, "--cached")) if commit else set()
    untracked = _listed(root, "--others", "--exclude-standard") if tracked else _walk(root)
    left_out = {path for path in untracked if _too_large(root / path)}
    names = sorted(path for path in tracked | set(untracked) - left_out if _is_code(path, root, logs))
    files = [_read(root, path) for path in names if os.path.lexists(root / path)]
    diff = _diff(root, sorted(set(names) - tracked), logs) if tracked else b""
    facts = {"git_commit": commit if tracked else None, "git_dirty": bool(diff) if tracked else None}
    if not tracked and (root / "snapshot.json").exists():  # a copy of a copy is from the same commit
        facts = json.loads((root / "snapshot.json").read_text())
    folder = logs / ".code" / _hash(root, facts, files)
    if not folder.exists():
        _write(folder, root, facts, diff, files)
    return Snapshot(folder, sorted(left_out))


def _git(root: Path, *arguments: str, index: Path | None = None, stdin: bytes = b"") -> bytes:
    """Output of a git command, empty if it fails: no git, no repository, or one that git refuses to read."""
    environment = os.environ | ({"GIT_INDEX_FILE": str(index)} if index else {})
    try:
        answer = subprocess.run(["git", "-C", root, *arguments], input=stdin, capture_output=True, env=environment)
    except FileNotFoundError:
        return b""
    return answer.stdout if answer.returncode == 0 else b""


def _listed(root: Path, *which: str) -> list[str]:
    return [os.fsdecode(name) for name in _git(root, "ls-files", "-z", *which).split(b"\0") if name]


def _walk(root: Path) -> list[str]:
    """All files of a repository without git; hidden folders, caches and virtual environments are left out."""
    found = []
    for folder, folders, files in os.walk(root):
        here = Path(folder)
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _CACHES]
        links = [name for name in folders if (here / name).is_symlink()]
        found += [str((here / name).relative_to(root)) for name in (*files, *links)]
    return found


def _too_large(path: Path) -> bool:
    return path.is_file() and not path.is_symlink() and path.stat().st_size > LARGEST_UNTRACKED_BYTES


def _is_code(name: str, root: Path, logs: Path) -> bool:
    path = root / name
    return Path(name).parts[0] not in ("logs", *LINKED) and not path.is_relative_to(logs)


def _read(root: Path, name: str) -> _File:
    path = root / name
    if not path.is_symlink():
        return _File(name, path.stat().st_mode & 0o777, path.read_bytes())
    target = path.readlink()
    if not path.resolve().is_relative_to(root):  # a relative way out of the repository leads elsewhere from the copy
        target = path.resolve()
    return _File(name, 0, os.fsencode(target))


def _diff(root: Path, untracked: Iterable[str], logs: Path) -> bytes:
    """`git diff HEAD` with new files in it, which git leaves out as long as nobody has added them.

    Binary files, such as plots, are only named: first, where `git apply` passes over them.
    """
    with tempfile.TemporaryDirectory() as scratch:
        index = Path(scratch) / "index"  # the user's own index stays as it is
        original = root / os.fsdecode(_git(root, "rev-parse", "--git-path", "index").strip())
        if original.is_file():
            shutil.copy2(original, index)  # with its time, by which git knows files that may have changed since
        names = b"\0".join(map(os.fsencode, untracked))
        if names:
            add = ("add", "--intent-to-add", "--pathspec-from-file=-", "--pathspec-file-nul")
            _git(root, *add, index=index, stdin=names)
        exclude = [":(exclude,top)logs"]
        if logs.is_relative_to(root) and logs != root:
            exclude.append(f":(exclude){logs.relative_to(root)}")
        show = ("diff", "--no-color", "--no-ext-diff", "--no-renames", "--relative")
        counted = _git(root, *show, "--numstat", "-z", "HEAD", "--", ".", *exclude, index=index).split(b"\0")
        binary = [os.fsdecode(line.removeprefix(b"-\t-\t")) for line in counted if line.startswith(b"-\t-\t")]
        text = _git(
            root, *show, "HEAD", "--", ".", *exclude, *(f":(exclude,literal){path}" for path in binary), index=index
        )
        return "".join(f"binary file, not shown: {path}\n" for path in binary).encode() + text


def _hash(root: Path, facts: dict[str, object], files: Iterable[_File]) -> str:
    """A name for this code. The repository's place belongs to it: the snapshot has links to it."""
    digest = hashlib.sha256(json.dumps([str(root), facts]).encode())
    for file in files:
        for part in (os.fsencode(file.path), str(file.mode).encode(), file.content):
            digest.update(f"{len(part)}:".encode() + part)
    return digest.hexdigest()[:16]


def _write(folder: Path, root: Path, facts: dict[str, object], diff: bytes, files: Iterable[_File]) -> None:
    """Fill a folder beside `folder` and rename it: a job never sees half a snapshot."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=".unfinished-", dir=folder.parent))
    try:
        unfinished.chmod(0o755)
        for file in (*files, *_additions(root, facts, diff)):
            path = unfinished / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            if file.mode:
                path.write_bytes(file.content)
                path.chmod(file.mode & ~0o222)  # who opens it by mistake cannot change what was submitted
            else:
                path.symlink_to(os.fsdecode(file.content))
        try:
            unfinished.rename(folder)
        except OSError:
            if not folder.is_dir():  # else somebody else has just made the same one
                raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _additions(root: Path, facts: dict[str, object], diff: bytes) -> Iterator[_File]:
    yield _File("snapshot.json", 0o644, (json.dumps(facts, indent=2) + "\n").encode())
    if diff:
        yield _File("code.diff", 0o644, diff)
    for name in LINKED:
        yield _File(name, 0, os.fsencode(root / name))
