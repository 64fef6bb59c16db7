"""A copy of the code as it is now: a job runs the copy, so that editing a file while it waits changes nothing.

SLURM keeps only the launcher script from the moment of submission; it reads the Python files when the job starts.
A snapshot is a folder `$LOG_DIR/.code/<hash>/` named after its content, so unchanged code is kept once. Beside the
code it has snapshot.json (commit, dirty) and code.diff, which workshop/job/outcome.py puts into the run's evidence.
"""

import hashlib
import json
import os
import secrets
import shutil
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tools.errors import InputError
from workshop.record.redaction import diff_without_keys

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

    Without git, or where HEAD lacks the folder, jobs run the folder itself. Raises InputError where git cannot read
    a file.
    """
    root, logs = root.resolve(), logs.resolve()
    try:
        commit = _git(root, "rev-parse", "HEAD", "HEAD:./").split()[0]
    except (FileNotFoundError, InputError):
        return Snapshot(root, [])
    no_code = {logs, *(root / name for name in ("logs", *LINKED))} - {root}
    code = [
        "--",
        ".",
        *(f":(exclude,literal){path.relative_to(root)}" for path in no_code if path.is_relative_to(root)),
    ]
    with tempfile.TemporaryDirectory() as scratch:  # the user's index and objects stay as they are
        objects = root / _git(root, "rev-parse", "--git-path", "objects").strip()
        own = {"GIT_INDEX_FILE": f"{scratch}/index", "GIT_OBJECT_DIRECTORY": scratch}
        own["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = str(objects)
        _git(root, "read-tree", "HEAD", **own)
        new = _git(root, "ls-files", "-z", "--others", "--exclude-standard", *code, **own).split("\0")[:-1]
        large = sorted(name for name in new if (root / name).lstat().st_size > LARGEST_UNTRACKED_BYTES)
        edited = _git(root, "ls-files", "-z", "--modified", *code, **own).split("\0")[:-1]  # and deleted
        names = "\0".join([*edited, *sorted(set(new) - set(large))])
        _git(root, "update-index", "--add", "--remove", "-z", "--stdin", given=names, **own)
        tree = _git(root, "write-tree", **own).strip()
        # The repository's place belongs to the name: the snapshot has links to it.
        folder = logs / ".code" / hashlib.sha256(f"{root} {commit} {tree}".encode()).hexdigest()[:16]
        if folder.is_dir():
            return Snapshot(folder, large)
        unfinished = folder.with_name(f".unfinished-{secrets.token_hex(4)}")
        unfinished.mkdir(parents=True)
        try:
            _git(root, "archive", f"--output={scratch}/code.tar", tree, *code, **own)
            with tarfile.open(f"{scratch}/code.tar") as files:
                files.extractall(unfinished, filter=_read_only)
            facts = {"git_commit": commit, "git_dirty": tree != _git(root, "rev-parse", "HEAD^{tree}").strip()}
            (unfinished / "snapshot.json").write_text(json.dumps(facts, indent=2) + "\n")
            if diff := diff_without_keys(root):
                (unfinished / "code.diff").write_text(diff)
            for name in LINKED:
                (unfinished / name).symlink_to(root / name)
            unfinished.rename(folder)  # a job never sees half a snapshot
        except OSError:
            if not folder.is_dir():  # else another `submit` was faster
                raise
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return Snapshot(folder, large)


def _read_only(member: tarfile.TarInfo, _: str) -> tarfile.TarInfo:
    """Nobody changes by mistake what was submitted; settings may hold keys, so it is the user's alone."""
    return member.replace(mode=member.mode & (0o700 if member.isdir() else 0o500))


def _git(root: Path, *arguments: str, given: str = "", **environment: str) -> str:
    """Return the output of a git command. Raises InputError if it fails."""
    command, text = ["git", "-C", str(root), *arguments], {"text": True, "errors": "surrogateescape"}
    answer = subprocess.run(command, input=given, capture_output=True, env=os.environ | environment, **text)
    if answer.returncode:
        raise InputError(f"{root}: git {arguments[0]} failed: {answer.stderr.strip().splitlines()[-1]}")
    return answer.stdout
