"""A copy of the code as it is now: a job runs the copy, so that editing a file while it waits changes nothing.

SLURM keeps only the launcher script from the moment of submission; it reads the Python files when the job starts.
A snapshot is a folder `$LOG_DIR/.code/<hash>/` named after what it holds, so unchanged code is kept once. Beside the
code it has snapshot.json (commit, dirty) and code.diff, which workshop/job/outcome.py puts into the run's evidence.
"""

import hashlib
import json
import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from workshop.run_folder.redaction import redacted

# Data belongs elsewhere: a file larger than this that git does not track is left out, and the user is told.
LARGEST_UNTRACKED_BYTES = 10 << 20
# Site settings and the Python environment are no code: the snapshot uses the repository's, also if made later.
LINKED = (".venv", "cluster.env")


@dataclass(frozen=True)
class Snapshot:
    """A folder with the code, and the files (relative to the repository) that were too large for it."""

    folder: Path
    left_out: list[str]


def take(root: Path, logs: Path) -> Snapshot:
    """Copy the repository at `root` to `logs`/.code/<hash>/, unless the same code is there already.

    Without git, which says what is code, jobs run the folder itself.
    """
    root, logs = root.resolve(), logs.resolve()
    no_code = {logs, *(root / name for name in ("logs", *LINKED))}
    unfinished = logs / ".code" / f".unfinished-{secrets.token_hex(4)}"
    unfinished.mkdir(parents=True)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            names, left_out, diff = _with_git(root, no_code, Path(scratch) / "index")
        if not names:
            return Snapshot(root, [])
        facts = {"git_commit": _git(root, "rev-parse", "HEAD").decode().strip(), "git_dirty": bool(diff)}
        # The repository's place belongs to the name: the snapshot has links to it.
        digest = hashlib.sha256(json.dumps([str(root), facts]).encode())
        for name in names:
            digest.update(_copied(root, name, unfinished))
        (unfinished / "snapshot.json").write_text(json.dumps(facts, indent=2) + "\n")
        if diff:
            text = redacted(diff.decode(errors="surrogateescape"))
            (unfinished / "code.diff").write_text(text, "utf-8", "surrogateescape")
        for name in LINKED:
            (unfinished / name).symlink_to(root / name)
        folder = logs / ".code" / digest.hexdigest()[:16]
        try:
            unfinished.rename(folder)  # a job never sees half a snapshot
        except OSError:
            if not folder.is_dir():  # else the same one is there already
                raise
        return Snapshot(folder, left_out)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _git(root: Path, *arguments: str, index: Path | None = None) -> bytes:
    """Output of a git command, empty if it fails: no git, no repository, or one that git refuses to read."""
    environment = os.environ | ({"GIT_INDEX_FILE": str(index)} if index else {})
    try:
        answer = subprocess.run(["git", "-C", root, *arguments], capture_output=True, env=environment)
    except FileNotFoundError:
        return b""
    return answer.stdout if answer.returncode == 0 else b""


def _with_git(root: Path, no_code: Iterable[Path], index: Path) -> tuple[list[str], list[str], bytes]:
    """The files of HEAD and new ones, new ones that are too large, and `git diff HEAD` with the others in it.

    Three times nothing if git knows no file of the folder. Binary files, such as plots, are only named in the diff:
    first, where `git apply` passes over them.

    Args:
        index: a file that does not exist: the user's own index stays as it is.
    """

    def git(*arguments: str) -> bytes:
        return _git(root, *arguments, index=index)

    def listed(*which: str) -> list[str]:
        names = [os.fsdecode(name) for name in git("ls-files", "-z", *which, "--", ".", *exclude).split(b"\0") if name]
        return [name for name in names if os.path.lexists(root / name)]

    inside = [path.relative_to(root) for path in no_code if path.is_relative_to(root) and path != root]
    exclude = [f":(exclude,literal){path}" for path in inside]
    git("read-tree", "HEAD")
    if not listed():
        return [], [], b""
    left_out = _too_large(root, listed("--others", "--exclude-standard"))
    exclude += [f":(exclude,literal){path}" for path in left_out]
    git("add", "--intent-to-add", "--", ".", *exclude)
    show = ("diff", "--no-color", "--no-ext-diff", "--no-renames", "--relative")
    counted = git(*show, "--numstat", "-z", "HEAD", "--", ".", *exclude).split(b"\0")
    binary = [os.fsdecode(line.removeprefix(b"-\t-\t")) for line in counted if line.startswith(b"-\t-\t")]
    text = git(*show, "HEAD", "--", ".", *exclude, *(f":(exclude,literal){path}" for path in binary))
    return listed(), left_out, "".join(f"binary file, not shown: {path}\n" for path in binary).encode() + text


def _too_large(root: Path, names: Iterable[str]) -> list[str]:
    plain = [name for name in names if (root / name).is_file() and not (root / name).is_symlink()]
    return sorted(name for name in plain if (root / name).stat().st_size > LARGEST_UNTRACKED_BYTES)


def _copied(root: Path, name: str, snapshot: Path) -> bytes:
    """Copy a file or a symbolic link into the snapshot; gives what tells it from any other."""
    source, copy, mode = root / name, snapshot / name, 0
    copy.parent.mkdir(parents=True, exist_ok=True)
    if source.is_symlink():
        # A relative way out of the repository leads elsewhere from the copy.
        target = source.readlink() if source.resolve().is_relative_to(root) else source.resolve()
        copy.symlink_to(target)
        content = os.fsencode(target)
    else:
        # Nobody can change by mistake what was submitted. Settings, which may hold keys, are for the user alone.
        readers = 0o500 if name.endswith((".env", "env_vars.sh")) else 0o555
        content, mode = source.read_bytes(), source.stat().st_mode & readers
        with os.fdopen(os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
    return b"".join(b"%d:%s" % (len(part), part) for part in (os.fsencode(name), b"%o" % mode, content))
