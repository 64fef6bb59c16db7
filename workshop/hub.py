"""The Hugging Face hub: whether it can be reached, where a data set's files lie, and what its errors mean.

The hub's library asks six times for each file before it gives up, half a minute a file, also for files that it has in
its cache. So the launcher asks once, before the training starts:

    python -m workshop.hub      1 if the settings need the hub and it cannot be reached, else 0: for HF_HUB_OFFLINE

Needs nothing but the standard library until a file is wanted.
"""

import errno
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

from workshop.errors import WorkshopError
from workshop.squad import is_path

TIMEOUT_S = 5
DATASET_FILES = ["README.md", "*.parquet"]
# What this repository brings itself: data sets (squad.py, text_rows.py), a tokenizer, custom_model's GPT.
NOT_ON_HUB = ("sample", "harbour", "synthetic", "simple-gpt")
CANNOT_WRITE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.ENOSPC, errno.EDQUOT)


def endpoint() -> str:
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or "https://huggingface.co"


def unreachable() -> str:
    """Why the hub cannot be reached; "" if it answers, whatever it says. Goes through a proxy where one is set."""
    # urllib knows a proxy per scheme only, and no SOCKS: what it cannot ask may answer the hub's library.
    proxies = urllib.request.getproxies()
    proxies = dict.fromkeys(("http", "https"), proxies["all"]) | proxies if "all" in proxies else proxies
    if proxies.get(endpoint().partition(":")[0], "").startswith("socks"):
        return ""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler(proxies))
    try:
        opener.open(urllib.request.Request(endpoint(), method="HEAD"), timeout=TIMEOUT_S).close()
    except urllib.error.HTTPError:
        return ""
    except (OSError, ValueError) as error:  # no such host, refused, no answer in time; HF_ENDPOINT is no address
        return str(getattr(error, "reason", error))
    return ""


def names_on_hub(environ: Mapping[str, str] = os.environ) -> list[str]:
    """What a run with these settings loads from the hub, if it is not in the cache."""
    model = environ.get("MODEL_NAME", "")
    pretrained = environ.get("MODEL_INIT", "pretrained") == "pretrained"
    names = [model] if pretrained else []
    names += [environ.get("TOKENIZER_NAME") or model]
    names = [name for name in names if name not in NOT_ON_HUB and not Path(name).is_dir()]
    names += [name for name in (environ.get("DATASET", ""), environ.get("EVAL_DATASET", "")) if dataset_on_hub(name)]
    return [name for name in dict.fromkeys(names) if name]


def dataset_on_hub(dataset: str) -> bool:
    return dataset not in NOT_ON_HUB and not is_path(dataset)


def dataset_folder(name: str) -> Path:
    """The folder with a data set's files, from the cache or fetched into it. Raises WorkshopError.

    The cache first: a shared one may be read-only for those who train.
    """
    from huggingface_hub import snapshot_download

    options = {"repo_type": "dataset", "allow_patterns": DATASET_FILES}
    try:
        try:
            return Path(snapshot_download(name, local_files_only=True, **options))
        except OSError:  # not in the cache, or not complete
            return Path(snapshot_download(name, **options))
    except (OSError, ValueError) as error:
        raise hub_error(f"DATASET={name}", name, error, "dataset") from error


def hub_error(what: str, name: str, error: BaseException, kind: str = "model") -> WorkshopError:
    """`what` (variable and value) could not be loaded: what was found, and what to do about it."""
    from huggingface_hub import constants, errors

    causes = list(_causes(error))
    page = f"{endpoint()}/{'datasets/' if kind == 'dataset' else ''}{name}"
    fetch = f"python -m workshop.prefetch {name}" if kind == "model" else f"DATASET={name} python -m workshop.prefetch"
    cache = f"the cache {constants.HF_HUB_CACHE} (HF_HOME)"
    unwritable = next((cause for cause in causes if isinstance(cause, OSError) and cause.errno in CANNOT_WRITE), None)
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    if any(isinstance(cause, errors.GatedRepoError) for cause in causes):
        text = (
            f"{page} is gated; open that page, accept its terms, and log in with `hf auth login` (or set HF_TOKEN), "
            "or choose another"
        )
    elif any(isinstance(cause, errors.RepositoryNotFoundError) for cause in causes):
        example = "bigscience/bloom-560m" if kind == "model" else "rajpurkar/squad"
        text = f"the hub has no {page}, or shows it to its owners only; expected a name such as {example}"
    elif unwritable is not None:
        text = (
            f"cannot write to {cache}: {unwritable.strerror}, {unwritable.filename}; "
            "expected HF_HOME to name a folder that you may write to, with room for it"
        )
    elif constants.HF_HUB_OFFLINE:
        text = f"HF_HUB_OFFLINE=1 and {cache} does not have all of it; run `{fetch}` where there is a network"
    elif any(isinstance(cause, errors.LocalEntryNotFoundError) for cause in causes):
        text = (
            f"cannot fetch it from {endpoint()}, and {cache} does not have all of it ({reason}); "
            f"run `{fetch}` where there is a network"
        )
    else:
        text = f"cannot load it ({reason}); expected a hub name, a file or folder, or the network for `{fetch}`"
    return WorkshopError(f"{what}: {text}")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error and what led to it: the libraries on top of the hub's wrap its errors in their own."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def main() -> None:
    names = names_on_hub()
    reason = unreachable() if names else ""
    if reason:
        print(
            f"note: {endpoint()} cannot be reached ({reason}): HF_HUB_OFFLINE=1, {' and '.join(names)} can only come "
            "from the cache; HF_HUB_OFFLINE=0 in your shell asks the hub all the same",
            file=sys.stderr,
        )
    print(1 if reason else 0)


if __name__ == "__main__":
    main()
