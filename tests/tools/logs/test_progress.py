from tools.logs import progress as module
from tools.logs.progress import progress


def test_a_few_items_have_no_bar():
    items = range(5)
    assert progress(items, "reading", 5) is items


def test_bar_is_on_standard_error_and_does_not_flood_a_log(monkeypatch, capsys):
    monkeypatch.setattr(module, "_DELAY_S", 0)
    assert list(progress(range(5000), "reading logs", 5000)) == list(range(5000))
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "reading logs: 100%" in printed.err and "5000/5000" in printed.err
    assert printed.err.count("\r") < 10


def test_quick_work_shows_no_bar(monkeypatch, capsys):
    monkeypatch.setattr(module, "_DELAY_S", 3600)
    assert len(list(progress(range(5000), "reading logs", 5000))) == 5000
    assert capsys.readouterr().err == ""
