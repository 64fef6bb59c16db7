"""Fill the hub's caches on a login node, for compute nodes without network:

    source baseline/env_vars.sh && python -m workshop.prefetch
    python -m workshop.prefetch bigscience/bloom-560m bigscience/bloom-1b7

Then `export HF_HUB_OFFLINE=1` in cluster.env, and HF_HOME where the default cache is not on a shared file system.
"""

import os
import sys

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError

from workshop.errors import WorkshopError
from workshop.squad import load_squad

# Weights once, in the format transformers reads first; not the copies for other frameworks.
MODEL_FILES = ["*.json", "*.safetensors", "*.txt", "*.model"]


def prefetch_model(name: str) -> str:
    """Download a model and its tokenizer; returns the folder in the cache."""
    try:
        return snapshot_download(name, allow_patterns=MODEL_FILES)
    except (RepositoryNotFoundError, HfHubHTTPError, OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise WorkshopError(
            f"cannot fetch the model '{name}' ({reason}); expected a hub name and a machine that reaches the hub"
        ) from error


def main() -> None:
    models = sys.argv[1:] or [os.environ.get("MODEL_NAME", "bigscience/bloom-560m")]
    dataset = os.environ.get("DATASET", "rajpurkar/squad")
    for name in models:
        print(f"model {name}: {prefetch_model(name)}")
    print(f"data set {dataset}: {len(load_squad(dataset, 'train'))} training examples")


if __name__ == "__main__":
    main()
