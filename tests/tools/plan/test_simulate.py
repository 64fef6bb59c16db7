import sys
from pathlib import Path

import pytest

from tools.plan.simulate import simulate


def test_simulation_does_not_start_cuda_in_a_forked_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shows = tmp_path / "python"
    shows.write_text(
        f'#!{sys.executable}\nimport json, os\nprint(json.dumps({{"gpus": os.environ["CUDA_VISIBLE_DEVICES"]}}))\n'
    )
    shows.chmod(0o755)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setattr(sys, "executable", str(shows))
    assert list(simulate([{}])) == [{"gpus": ""}]
