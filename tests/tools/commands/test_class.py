"""A class of three, whose runs lie in folders of their own: everybody is watched, graded and on the page."""

import csv
import os
from datetime import UTC, datetime

import pytest

from tests.tools.conftest import write_run
from tools.__main__ import main

NOW = datetime.now(UTC).isoformat()
TINY = {"model": {"name": "tiny", "hidden_size": 64}, "settings": {"model_name": "tiny"}, "end_time": NOW}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give the folders to several users")
def test_class_is_watched_and_graded(tmp_path, capsys) -> None:
    users = {50_001: {}, 50_002: {}, 50_003: {"state": "failed", "exit_code": 1}}
    for user, ending in users.items():
        os.chown(write_run(tmp_path / str(user), f"20261121-094500-j{user}", TINY | ending), user, -1)

    def said(*words: str) -> str:
        main([*words])
        return capsys.readouterr().out

    logs, files = ["--logs", *(f"{tmp_path}/{user}" for user in users)], []
    watched = said("watch", "--once", *logs)
    assert all(str(user) in watched for user in users)
    for user in users:
        files.append(tmp_path / f"{user}.md")
        files[-1].write_text(said("fill", "baseline", "--tiny", "--plain", "--logs", f"{tmp_path}/{user}"))
    rows = [*csv.DictReader(said("grade", *map(str, files), "--format", "csv", *logs).splitlines())]
    assert [(row["wrong"], row["right"] > "0", bool(row["problem"])) for row in rows[:2]] == [("0", True, False)] * 2
    said("page", *logs, "--output", f"{tmp_path}/page")
    assert "3 runs of 3 people" in (tmp_path / "page/index.html").read_text()
