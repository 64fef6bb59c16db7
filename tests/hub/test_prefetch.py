"""The cache is filled completely, also after an interruption; what stands in the way is said in one line, at once."""

import re
from pathlib import Path

import pytest

from tests.hub.conftest import REFUSED, python
from tests.hub.hub_server import HubServer


def test_an_interrupted_prefetch_is_completed_by_the_next_one(hub: HubServer, tmp_path: Path) -> None:
    """What came whole is kept; what lacks is fetched."""
    command = ("-m", "workshop.data.prefetch", "bigscience/bloom-560m")
    assert python(tmp_path, hub.url, *command, DATASET="sample").returncode == 0
    (weights,) = tmp_path.glob("hub/models--*/snapshots/*/model.safetensors")
    content, blob = weights.read_bytes(), weights.resolve()
    blob.with_suffix(".incomplete").write_bytes(content[:1000])
    blob.unlink()
    weights.unlink()
    hub.requests.clear()
    second = python(tmp_path, hub.url, *command, DATASET="sample")
    assert second.returncode == 0, second.stderr
    assert weights.read_bytes() == content
    fetched = [request for request in hub.requests if request.startswith("GET") and "/api/" not in request]
    assert all("safetensors" in request for request in fetched), fetched


@pytest.mark.parametrize(
    ("model", "cache", "changes", "expected"),
    [
        ("gated/bloom", "hf", {}, "MODEL_NAME=gated/bloom: .*/gated/bloom is gated; .* `hf auth login`"),
        ("my/bloom", "hf", {}, "MODEL_NAME=my/bloom: the hub has no .*; expected a name such as bigscience/bloom-560m"),
        ("big/bloom", "file/hf", {}, r"cannot write to the cache \S+/file/hf/hub \(HF_HOME\): .*you may write to"),
        ("big/bloom", "hf", {"HF_ENDPOINT": REFUSED}, f"HF_ENDPOINT: {REFUSED} cannot be reached .*login node"),
        ("big/bloom", "hf", {"HF_HUB_OFFLINE": "1"}, r"HF_ENDPOINT: \S+ cannot be reached \(HF_HUB_OFFLINE=1\)"),
    ],
)  # fmt: skip
def test_hindrance_is_said_in_one_line(
    model: str, cache: str, changes: dict[str, str], expected: str, hub: HubServer, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    job = python(tmp_path / cache, hub.url, "-m", "workshop.data.prefetch", model, **changes)
    assert job.returncode == 1
    (line,) = [line for line in job.stderr.splitlines() if line.startswith(("error", "Traceback"))]
    assert re.search(expected, line), line
