"""The Hugging Face hub: whether it can be reached, what a run needs from it, and what its errors mean.

Its library tries six times per file before it gives up, half a minute a file, also for cached files. So the launcher
asks once.
"""

import errno
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from huggingface_hub import constants
from huggingface_hub.constants import ENDPOINT

from workshop.data.forms import is_path, name_and_slice
from workshop.record.errors import InputError

# Shipped with this repository: data sets, a tokenizer, custom_model's GPT.
NOT_ON_HUB = ("sample", "harbour", "harbour-sentences", "simple-gpt", "")
# Weights once, in the format that Transformers prefers; other frameworks' copies lie in subfolders.
TOKENIZER = {"allow_patterns": ["*.json", "*.txt", "*.model"], "ignore_patterns": ["*/*"]}
FILES: dict[str, dict[str, Any]] = {
    "model": TOKENIZER | {"allow_patterns": [*TOKENIZER["allow_patterns"], "*.safetensors"]},
    "tokenizer": TOKENIZER,
    "dataset": {"allow_patterns": ["README.md", "*.parquet"], "repo_type": "dataset"},
}
MAIN_FILES = {"model": "*.safetensors", "tokenizer": "*.json", "dataset": "**/*.parquet"}
CANNOT_WRITE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.ENOSPC, errno.EDQUOT)


class Repository(NamedTuple):
    """A repository of the hub; `kind` is model, tokenizer (a model's, without weights) or dataset."""

    kind: str
    name: str

    def snapshot(self, **options: Any) -> Any:
        """Download the files that a run needs (`huggingface_hub.snapshot_download`). Raises InputError."""
        from huggingface_hub import snapshot_download

        try:
            return snapshot_download(self.name, **FILES[self.kind], **options)
        except (OSError, ValueError) as error:
            variable = {"model": "MODEL_NAME", "tokenizer": "TOKENIZER_NAME", "dataset": "DATASET"}[self.kind]
            raise hub_error(f"{variable}={self.name}", self.name, error, self.kind) from error

    def cached(self) -> Path | None:
        """Return its folder in the cache, which need not be writable; None if an interrupted download left a part."""
        try:
            folder = Path(self.snapshot(local_files_only=True))
        except InputError:
            return None
        unfinished = any(folder.parents[1].glob("blobs/*.incomplete"))
        return folder if not unfinished and any(folder.glob(MAIN_FILES[self.kind])) else None


def unreachable() -> str:
    """Return why the hub cannot be reached; "" if it answers. It is asked by its own client, through its proxy."""
    import httpx  # here: not needed by runs that need nothing from the hub

    try:
        httpx.head(ENDPOINT, timeout=5)
    except (httpx.HTTPError, httpx.InvalidURL, ImportError) as error:  # ImportError: of a SOCKS proxy
        return str(error)
    return ""


def needs(settings: Mapping[str, str]) -> list[Repository]:
    """Return what a run with these settings loads from the hub."""
    model, tokenizer = (settings.get(name, "") for name in ("MODEL_NAME", "TOKENIZER_NAME"))
    random = settings.get("MODEL_INIT") == "random"
    needed = [] if random else [Repository("model", model)]
    needed += [Repository("tokenizer", tokenizer or model)] if random or tokenizer else []
    needed = [need for need in needed if not Path(need.name).is_dir()]
    data = [settings.get(name, "") for name in ("DATASET", "EVAL_DATASET")]
    needed += [Repository("dataset", name_and_slice(dataset)[0]) for dataset in data if not is_path(dataset)]
    return [need for need in dict.fromkeys(needed) if need.name not in NOT_ON_HUB]


def hub_error(what: str, name: str, error: BaseException, kind: str = "model") -> InputError:
    """Return an error: `what` (variable and value) could not be loaded, what was found, and what to do."""
    from huggingface_hub import errors

    causes = [error]  # other libraries wrap the hub's errors
    while cause := causes[-1].__cause__ or causes[-1].__context__:
        causes.append(cause)
    kinds = {kind for cause in causes for kind in type(cause).__mro__}
    unwritable = next((cause for cause in causes if isinstance(cause, OSError) and cause.errno in CANNOT_WRITE), None)
    page, command, example = f"{ENDPOINT}/{name}", f"python -m workshop.data.prefetch {name}", "bigscience/bloom-560m"
    if kind == "dataset":
        page, example = f"{ENDPOINT}/datasets/{name}", "rajpurkar/squad"
        command = f"DATASET={name} python -m workshop.data.prefetch"
    fetch, cache = f"run `{command}` where there is a network", f"the cache {constants.HF_HUB_CACHE} (HF_HOME)"
    reason = (str(error) if " " in str(error) else repr(error)).strip().replace(":\n", ": ").splitlines()[0]
    if errors.GatedRepoError in kinds:
        text = f"{page} is gated; open that page, accept its terms, then `hf auth login` (or HF_TOKEN); or take another"
    elif errors.RepositoryNotFoundError in kinds:
        text = f"the hub has no {page}, or shows it to its owners only; expected a name such as {example}"
    elif unwritable is not None:
        text = f"cannot write to {cache}: {unwritable.strerror}, {unwritable.filename}; "
        text += "expected HF_HOME to name a folder that you may write to, with room for it"
    elif is_path(name):
        reason = reason if Path(name).exists() else "no such folder"
        text = f"cannot load it ({reason}); expected a folder of Transformers, as save_pretrained writes it"
    elif (constants.HF_HUB_OFFLINE and isinstance(error, OSError)) or errors.LocalEntryNotFoundError in kinds:
        why = "HF_HUB_OFFLINE=1" if constants.HF_HUB_OFFLINE else f"cannot fetch it from {ENDPOINT} ({reason}),"
        text = f"{why} and {cache} does not have all of it; {fetch}"
    else:
        text = f"cannot load it ({reason}); expected a hub name, a file or folder, or {fetch}"
    return InputError(f"{what}: {text}")


def is_offline(settings: Mapping[str, str]) -> bool:
    """Return whether a run with these settings needs the hub and cannot reach it; print a note if so."""
    names = dict.fromkeys(need.name for need in needs(settings))
    if reason := unreachable() if names else "":
        print(
            f"note: {ENDPOINT} cannot be reached ({reason}): HF_HUB_OFFLINE=1, {' and '.join(names)} can "
            "only come from the cache; HF_HUB_OFFLINE=0 in your shell asks the hub all the same",
            file=sys.stderr,
        )
    return bool(reason)
