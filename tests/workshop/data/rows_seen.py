"""A train.py in this folder's stead: it trains, and writes the beginning of each row that a rank's model is given."""

import os
import runpy
from typing import Any

from workshop.training.callbacks import TokenCounter

count = TokenCounter._count


def written(self: TokenCounter, model: Any, given: Any, batch: dict[str, Any]) -> None:
    if model.training:
        with open(f"{os.environ['RUN_DIR']}/rows_seen", "a") as file:  # noqa: PTH123
            file.writelines(f"{ids[:12]}\n" for ids in batch["input_ids"].tolist())
    count(self, model, given, batch)


TokenCounter._count = written  # type: ignore[method-assign]
runpy.run_path("train.py", run_name="__main__")
