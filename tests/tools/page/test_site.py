"""The files of the page: what is in it, whether every link leads somewhere, and what the command does with folders."""

import math
import os
import re
import shutil
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.tools.conftest import write_run
from tests.tools.page.conftest import Made
from tools.__main__ import main


@pytest.fixture
def few_references(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One reference run in place of hundreds, so that a page takes a moment."""
    reference = tmp_path / "reference"
    write_run(reference / "machine", "r0")
    monkeypatch.setattr("tools.page.site.REFERENCE", reference)


def text_of(page: Path) -> str:
    return unescape(re.sub(r"<[^>]+>", " ", page.read_text()))


def test_every_link_of_every_page_leads_to_a_file_and_every_anchor_to_a_place(made: Made) -> None:
    ids: dict[Path, set[str]] = {}
    missing = []
    for page in made.page.rglob("*.html"):
        for target in re.findall(r'(?:href|src)="([^"]+)"', page.read_text()):
            parts = urlsplit(unescape(target))
            assert not parts.scheme, f"{page}: {target}"
            file = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            if not file.exists():
                missing.append(f"{page.name}: {target}")
            elif parts.fragment and "=" not in parts.fragment:
                known = ids.setdefault(file, set(re.findall(r' id="([^"]+)"', file.read_text())))
                assert parts.fragment in known, f"{page.name}: {target}"
    assert missing == []


def test_figures_of_the_course_s_tables_are_one_s_own_with_the_reference_below(made: Made) -> None:
    table = re.search(r'<section id="table-1" .*?</section>', (made.page / "tables.html").read_text(), re.DOTALL)[0]
    row = re.search(r"<tr>(?:(?!</tr>).)*Training Speed.*?</tr>", table, re.DOTALL)[0]
    own, reference = re.findall(r'<a href="(runs/[^"#]+)#figures">([\d.]+)</a>', row)
    assert own == (made.run("j2"), "11.80")
    assert reference[0].startswith("runs/h200x1-baseline-") and reference[1] != "11.80"
    assert f'<a href="{made.run("j3")}#figures">OOM</a>' in (made.page / "tables.html").read_text()


def test_a_run_s_page_tells_its_settings_figures_and_the_command_that_repeats_it(made: Made) -> None:
    text = text_of(made.page / made.run("j2"))
    assert re.search(r"batch_size\s+8\b", text)
    assert re.search(r"peak GPU \(MiB\)\s+21,658", text)
    assert "BATCH_SIZE=8 sbatch baseline/baseline.slurm" in text


def test_a_failed_run_s_page_begins_with_the_cause_and_the_log_s_end(made: Made) -> None:
    text = text_of(made.page / made.run("j3"))
    assert "torch.OutOfMemoryError: CUDA out of memory." in text
    assert "'train_loss': '0.7039'" in text and "0/96" not in text  # of a progress bar only what was on the screen
    assert "log's last lines" not in text_of(made.page / made.run("j1"))


@pytest.mark.usefixtures("few_references")
def test_older_page_is_replaced_and_nothing_else_is(make_run, logs: Path, tmp_path: Path, capsys) -> None:
    make_run("r1")
    page = tmp_path / "page"
    command = ["page", "--logs", str(logs), "--output", str(page)]
    (page / "mine").mkdir(parents=True)
    assert main(command) == 2 and "is no page made by this command" in capsys.readouterr().err
    assert (page / "mine").is_dir()
    (page / "mine").rmdir()
    assert main(command) == 0 and (page / "runs" / "baseline-r1.html").exists()
    (logs / "baseline" / "r1").rename(logs / "baseline" / "r2")
    assert main(command) == 0
    assert (page / "runs" / "baseline-r2.html").exists() and not (page / "runs" / "baseline-r1.html").exists()
    assert [path.name for path in tmp_path.glob("page*")] == ["page"], "a half-written page is left"
    assert main([*command[:-1], str(tmp_path / "no" / "page")]) == 2


@pytest.mark.usefixtures("few_references")
def test_without_runs_the_page_shows_the_reference_runs_and_says_so(logs: Path, tmp_path: Path, capsys) -> None:
    assert main(["page", "--logs", str(logs), "--output", str(tmp_path / "page")]) == 0
    assert "yet: the page shows the reference runs" in capsys.readouterr().err
    assert "No runs of yours yet" in (tmp_path / "page" / "index.html").read_text()
    assert main(["page", "--logs", str(logs / "none"), "--output", str(tmp_path / "page")]) == 2


@pytest.mark.usefixtures("few_references")
def test_reference_runs_that_are_asked_for_are_not_one_s_own(tmp_path: Path, capsys) -> None:
    assert main(["page", "--logs", str(tmp_path / "reference"), "--output", str(tmp_path / "page")]) == 0
    assert "0 runs and 1 reference run\n" in capsys.readouterr().out


@pytest.mark.usefixtures("few_references")
def test_fault_of_a_run_is_in_the_list_and_on_its_page(make_run, logs: Path, tmp_path: Path) -> None:
    make_run("r1", {"sharding": {"method": "ddp"}, "settings": {"fault": "rank_killed"}})
    assert main(["page", "--logs", str(logs), "--output", str(tmp_path / "page")]) == 0
    assert "ddp fault: rank_killed" in text_of(tmp_path / "page" / "index.html")
    assert "ddp · rank killed · r1" in text_of(tmp_path / "page" / "runs" / "baseline-r1.html")


@pytest.mark.usefixtures("few_references")
def test_tiny_runs_fill_tables_of_their_own_and_not_the_real_ones(make_run, logs: Path, tmp_path: Path) -> None:
    make_run("r1", {"model": {"name": "tiny", "hidden_size": 32}, "settings": {"model_name": "tiny"}})
    assert main(["page", "--logs", str(logs), "--output", str(tmp_path / "page")]) == 0
    text = (tmp_path / "page" / "tables.html").read_text()
    real, tiny = (text.split(f'<section id="table-{number}"')[1].split("</section>")[0] for number in ("1", "1-tiny"))
    assert "No run of yours yet." in real and "r1.html" not in real
    assert re.search(r'<a href="runs/baseline-r1.html#figures">11.80</a>', tiny)


@pytest.mark.usefixtures("few_references")
@pytest.mark.parametrize("text", ["{", "[]", '{"exercise": 3}'])
def test_damaged_run_gets_a_page_that_says_so(text: str, make_run, logs: Path, tmp_path: Path) -> None:
    folder = make_run("r1", **{"steps.csv": "nonsense\n1\n"})
    (folder / "run.json").write_text(text)
    assert main(["page", "--logs", str(logs), "--output", str(tmp_path / "page")]) == 0
    page = text_of(tmp_path / "page" / "runs" / "baseline-r1.html")
    assert "unreadable" in page and "steps.csv:1" in page


@pytest.mark.usefixtures("few_references")
@pytest.mark.parametrize(
    "replace", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/etc/hostname")], ids=["pipe", "folder", "link"]
)
def test_record_that_is_no_plain_file_costs_its_run_not_the_page(replace, make_run, logs: Path, tmp_path: Path) -> None:
    make_run("r1")
    record = make_run("r2") / "run.json"
    record.unlink()
    replace(record)
    assert main(["page", "--logs", str(logs), "--output", str(tmp_path / "page")]) == 0
    shutil.rmtree(record.parent)  # what reads all files of a session's tests would wait for a pipe
    damaged, sound = (text_of(tmp_path / "page" / "runs" / f"baseline-{name}.html") for name in ("r2", "r1"))
    assert "unreadable" in damaged and "11.80" in sound


@pytest.mark.usefixtures("few_references")
def test_run_folder_that_is_a_link_out_of_the_logs_is_listed_and_not_read(make_run, logs: Path, tmp_path: Path) -> None:
    outside = write_run(tmp_path / "home", "r1", **{"train.out": "secret\n"})
    make_run("r1")
    (logs / "baseline" / "r2").symlink_to(outside)
    assert main(["page", "--logs", str(logs), "--output", str(tmp_path / "page")]) == 0
    (page,) = (tmp_path / "page" / "runs").glob("*r2.html")
    assert "a symbolic link" in text_of(page) and "secret" not in text_of(page)


@pytest.mark.usefixtures("few_references")
@pytest.mark.parametrize(
    ("step", "summary"), [("nan,0.5", {}), ("1,inf", {}), ("inf,nan", {}), ("1,0.5", {"train_loss": math.nan})]
)
def test_number_that_json_does_not_have_costs_a_figure_not_the_page(
    step: str, summary: dict, make_run, logs: Path, tmp_path: Path
) -> None:
    make_run(
        "r1", summary=summary, **{"steps.csv": f"step,step_time_s,tokens,real_tokens,loss,epoch\n{step},8,8,2.5,1\n"}
    )
    assert main(["page", "--logs", str(logs), "--output", str(tmp_path / "page")]) == 0
    assert "21,658" in text_of(tmp_path / "page" / "runs" / "baseline-r1.html")


@pytest.mark.usefixtures("few_references")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make other users' folders")
def test_folders_of_a_whole_course_are_counted_on_each_page_not_listed(tmp_path: Path) -> None:
    people = [tmp_path / "people" / name / "logs" for name in ("ada", "bob", "eve", "joe")]
    for user, logs in enumerate(people, 50_001):
        os.chown(write_run(logs, f"r{user}"), user, -1)
    options = [word for logs in people for word in ("--logs", str(logs))]
    assert main(["page", *options, "--output", str(tmp_path / "page")]) == 0
    index, run = ((tmp_path / "page" / name).read_text() for name in ("index.html", "runs/baseline-r50002.html"))
    assert "from 4 runs in 4 folders and" in index and "bob" not in index
    assert "4 runs of 4 people" in index and "run of 50002" in run and "your run" not in run
