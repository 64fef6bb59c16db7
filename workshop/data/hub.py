"""The Hugging Face hub: whether it can be reached, what a run needs of it, where that lies, and what its errors mean.

Its library asks six times for each file before it gives up, half a minute a file, also for files in its cache. So the
launcher asks once: `python -m workshop.data.hub` says 1 if the settings need the hub and it cannot be reached, else 0.
"""

import errno
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from workshop.errors import WorkshopError

SUFFIXES = (".json", ".jsonl", ".csv", ".parquet", ".txt")  # of data files
# What this repository brings itself: data sets, a tokenizer, custom_model's GPT.
NOT_ON_HUB = ("sample", "harbour", "synthetic", "simple-gpt", "")
# Weights once, in the format transformers reads first; models keep other frameworks' copies in folders below.
TOKENIZER = {"allow_patterns": ["*.json", "*.txt", "*.model"], "ignore_patterns": ["*/*"]}
FILES: dict[str, dict[str, Any]] = {
    "model": TOKENIZER | {"allow_patterns": [*TOKENIZER["allow_patterns"], "*.safetensors"]},
    "tokenizer": TOKENIZER,
    "dataset": {"allow_patterns": ["README.md", "*.parquet"], "repo_type": "dataset"},
}
CANNOT_WRITE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.ENOSPC, errno.EDQUOT)


class Repository(NamedTuple):
    """A repository of the hub; `kind` is model, tokenizer (a model's, without weights) or dataset."""

    kind: str
    name: str

    def snapshot(self, **options: Any) -> Any:
        """`huggingface_hub.snapshot_download` of the files that a run needs. Raises WorkshopError."""
        from huggingface_hub import snapshot_download

        try:
            return snapshot_download(self.name, **FILES[self.kind], **options)
        except (OSError, ValueError) as error:
            variable = {"model": "MODEL_NAME", "tokenizer": "TOKENIZER_NAME"}.get(self.kind, "DATASET")
            raise hub_error(f"{variable}={self.name}", self.name, error, self.kind) from error


def is_path(dataset: str) -> bool:
    """Whether DATASET means files. `rajpurkar/squad` does not, unless something of that name exists here."""
    name = name_and_slice(dataset)[0]
    if name.endswith(SUFFIXES) or name.startswith(("/", "./", "../", "~")) or "*" in name:
        return True
    return "/" in name and Path(name).exists()


def name_and_slice(dataset: str) -> tuple[str, str]:
    """The name or path, and the split or slice that follows its colon; "" without one."""
    name, _, spec = (dataset, "", "") if Path(dataset).exists() else dataset.partition(":")
    return name, spec


def endpoint() -> str:
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or "https://huggingface.co"


def unreachable() -> str:
    """Why the hub cannot be reached; "" if it answers, whatever it says. By the hub's own client, through its proxy."""
    try:
        httpx.head(endpoint(), timeout=5)
    except (httpx.HTTPError, httpx.InvalidURL, ImportError) as error:  # ImportError: of a SOCKS proxy
        return str(error)
    return ""


def dataset_folder(name: str, fetch: bool = True) -> Path | None:
    """The folder with a data set's files, from the cache, which may be read-only, or fetched. Raises WorkshopError.

    None: it is not in the cache, or not complete, and is not to be fetched.
    """
    with suppress(WorkshopError):
        folder = Path(Repository("dataset", name).snapshot(local_files_only=True))
        if any(folder.rglob("*.parquet")):  # a stream leaves its README there
            return folder
    return Path(Repository("dataset", name).snapshot()) if fetch else None


def needs(settings: Mapping[str, str]) -> list[Repository]:
    """What a run with these settings loads from the hub."""
    model, tokenizer = (settings.get(name, "") for name in ("MODEL_NAME", "TOKENIZER_NAME"))
    random = settings.get("MODEL_INIT") == "random"
    found = [] if random else [Repository("model", model)]
    found += [Repository("tokenizer", tokenizer or model)] if random or tokenizer else []
    found = [need for need in found if not Path(need.name).is_dir()]
    data = [settings.get(name, "") for name in ("DATASET", "EVAL_DATASET")]
    found += [Repository("dataset", name_and_slice(one)[0]) for one in data if not is_path(one)]
    return [need for need in dict.fromkeys(found) if need.name not in NOT_ON_HUB]


def hub_error(what: str, name: str, error: BaseException, kind: str = "model") -> WorkshopError:
    """`what` (variable and value) could not be loaded: what was found, and what to do about it."""
    from huggingface_hub import constants, errors

    causes = [error]  # the libraries on top of the hub's wrap its errors in their own
    while cause := causes[-1].__cause__ or causes[-1].__context__:
        causes.append(cause)
    found = {kind for cause in causes for kind in type(cause).__mro__}
    page = f"{endpoint()}/{'datasets/' if kind == 'dataset' else ''}{name}"
    command = "python -m workshop.data.prefetch"
    command = f"DATASET={name} {command}" if kind == "dataset" else f"{command} {name}"
    fetch = f"run `{command}` where there is a network"
    cache = f"the cache {constants.HF_HUB_CACHE} (HF_HOME)"
    unwritable = next((cause for cause in causes if isinstance(cause, OSError) and cause.errno in CANNOT_WRITE), None)
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    if errors.GatedRepoError in found:
        text = f"{page} is gated; open that page, accept its terms, then `hf auth login` (or HF_TOKEN); or take another"
    elif errors.RepositoryNotFoundError in found:
        example = "rajpurkar/squad" if kind == "dataset" else "bigscience/bloom-560m"
        text = f"the hub has no {page}, or shows it to its owners only; expected a name such as {example}"
    elif unwritable is not None:
        text = f"cannot write to {cache}: {unwritable.strerror}, {unwritable.filename}; "
        text += "expected HF_HOME to name a folder that you may write to, with room for it"
    elif constants.HF_HUB_OFFLINE or errors.LocalEntryNotFoundError in found:
        why = "HF_HUB_OFFLINE=1" if constants.HF_HUB_OFFLINE else f"cannot fetch it from {endpoint()} ({reason}),"
        text = f"{why} and {cache} does not have all of it; {fetch}"
    else:
        text = f"cannot load it ({reason}); expected a hub name, a file or folder, or {fetch}"
    return WorkshopError(f"{what}: {text}")


def main() -> None:
    names = dict.fromkeys(need.name for need in needs(os.environ))
    if reason := unreachable() if names else "":
        note = (
            f"note: {endpoint()} cannot be reached ({reason}): HF_HUB_OFFLINE=1, {' and '.join(names)} can only come "
        )
        note += "from the cache; HF_HUB_OFFLINE=0 in your shell asks the hub all the same"
        print(note, file=sys.stderr)
    print(1 if reason else 0)


if __name__ == "__main__":
    main()
