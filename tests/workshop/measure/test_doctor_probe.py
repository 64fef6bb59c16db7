"""What the doctor takes for cached is all there: an interrupted download is not."""

from pathlib import Path

import pytest
from huggingface_hub import constants

from workshop.measure import doctor_probe


def cached(hub: Path, kind: str, name: str, *files: str) -> Path:
    """A repository as the hub's library keeps it."""
    folder = hub / f"{kind}s--{name.replace('/', '--')}"
    for path in ("refs/main", "blobs/x", *(f"snapshots/abc/{file}" for file in files)):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("abc")
    return folder


def test_half_a_model_does_not_count_as_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.delenv("MODEL_NAME", raising=False)
    monkeypatch.delenv("DATASET", raising=False)

    def complete() -> dict[str, bool]:
        return {one["kind"]: one["complete"] for one in doctor_probe.cache_facts([])}

    assert complete() == {"model": False, "dataset": False}
    model = cached(tmp_path, "model", "bigscience/bloom-560m", "config.json")
    cached(tmp_path, "dataset", "rajpurkar/squad", "README.md", "plain_text/train.parquet")
    assert complete() == {"model": False, "dataset": True}
    (model / "snapshots/abc/model.safetensors").touch()
    assert complete() == {"model": True, "dataset": True}
    (model / "blobs/y.incomplete").touch()
    assert complete()["model"] is False


def test_tiny_profile_needs_nothing_from_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL_NAME", "tiny")
    assert doctor_probe.cache_facts([]) == []
