import os

import pytest

from tools.logs import processes
from tools.logs.processes import in_processes


def test_results_are_in_the_order_of_the_items():
    assert list(in_processes(lambda item: item * item, range(20))) == [item * item for item in range(20)]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core")
def test_work_is_done_by_other_processes():
    assert os.getpid() not in set(in_processes(lambda _: os.getpid(), range(4)))


def test_one_item_needs_no_other_process():
    assert list(in_processes(lambda _: os.getpid(), [0])) == [os.getpid()]


def test_error_of_an_item_reaches_the_caller():
    def fail(item: int) -> int:
        raise FileNotFoundError(2, "No such file", f"item {item}")

    with pytest.raises(FileNotFoundError, match="item 0"):
        list(in_processes(fail, range(4)))


def test_login_node_keeps_cores_for_others(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    assert len(set(in_processes(lambda _: os.getpid(), range(200)))) <= processes._MOST
