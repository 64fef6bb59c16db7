"""run.json while others read it."""

import json
from pathlib import Path

from workshop.record.run_record import read_run_record, update_run_record


def test_reader_of_run_json_never_sees_half_of_it(tmp_path: Path) -> None:
    """The file that it has opened stays as it was; it is replaced, not written."""
    update_run_record(tmp_path, state="running")
    with (tmp_path / "run.json").open() as reader:
        update_run_record(tmp_path, state="completed")
        assert json.load(reader) == {"state": "running"}
    assert read_run_record(tmp_path) == {"state": "completed"}
