"""The files of the page: what is in it, whether every link leads somewhere, and what the command does with folders."""

import re
import shutil
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tests.tools.conftest import GPU_LOG, write_run
from tests.tools.page.conftest import run_page
from tools.__main__ import main
from tools.commands.page import entries, listed
from tools.logs.runs import find_runs, read_run
from tools.plots import MOST_POINTS, charts


def text_of(page: Path) -> str:
    return unescape(re.sub(r"<[^>]+>", " ", page.read_text()))


def test_every_link_of_every_page_leads_to_a_file_and_every_anchor_to_a_place(made: Path) -> None:
    ids: dict[Path, set[str]] = {}
    missing = []
    for page in made.rglob("*.html"):
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


def test_a_run_s_page_has_its_settings_figures_command_cause_and_log_s_end(made: Path) -> None:
    text = text_of(made / run_page("j2"))
    assert re.search(r"batch_size\s+8\b", text)
    assert re.search(r"Peak GPU Memory[ \w]* \(MiB\)\s+21,658", text)
    text = text_of(made / run_page("j3"))
    assert "torch.OutOfMemoryError: CUDA out of memory." in text
    assert "'loss': '1.9'" in text and "0/96" not in text  # of a progress bar only what was on the screen
    assert "log's last lines" not in text_of(made / run_page("j1"))


def test_names_that_differ_in_odd_characters_or_case_only_get_pages_of_their_own(make_run, logs, tmp_path):
    for name in ("a b", "a?b", "A b"):
        make_run(name)
    found = entries(find_runs(logs), [])
    assert len({one.id.lower() for one in found}) == 3
    assert all(one.id.replace("-", "").isalnum() for one in found)


def test_every_point_is_a_sample_a_long_run_has_few_with_its_peaks_and_each_gpu_is_a_line(make_run):
    peaks = {4_321: 99, 4_000: -9}
    steps = "step,step_time_s,tokens,real_tokens,loss,epoch\n"
    steps += "".join(f"{i},0.25,2048,700,{peaks.get(i, i % 7)},1\n" for i in range(1, 5_001))
    found = {chart.key: chart for chart in charts(read_run(make_run("r1", **{"steps.csv": steps})))}
    (line,) = found["loss"].lines
    assert len(line.x) <= MOST_POINTS and {1, *peaks, 5_000} <= set(line.x) and line.x == sorted(set(line.x))
    assert all(y == peaks.get(x, x % 7) for x, y in zip(line.x, line.y, strict=True))
    assert [line.y for line in found["gpu_memory"].lines] == [[0, 21_658, 20_000, 2]]
    assert found["cpu_memory"].lines[0].x == [0, 1]
    two = GPU_LOG + GPU_LOG.split("\n", 1)[1].replace(", 0, Tesla", ", 1, Tesla")
    folder = make_run("r2", **{"gpu_memory.csv": None, "gpu_memory-n1.csv": two, "gpu_memory-n2.csv": GPU_LOG})
    found = {chart.key: chart for chart in charts(read_run(folder))}
    assert [line.name for line in found["gpu_memory"].lines] == ["n1 GPU 0", "n1 GPU 1", "n2 GPU 0"]


def test_older_page_is_replaced_and_nothing_else_is(make_run, logs: Path, tmp_path: Path, capsys, monkeypatch) -> None:
    make_run("r1")
    write_run(tmp_path / "reference/machine", "r0")
    monkeypatch.setattr("tools.commands.page.REFERENCE", tmp_path / "reference")  # hundreds of runs take a while
    monkeypatch.setenv("LOG_DIR", str(tmp_path))
    page = tmp_path / "page"
    command = ["page", "--logs", str(logs)]
    (page / "mine").mkdir(parents=True)
    assert main(command) == 2 and "is no page made by this command" in capsys.readouterr().err
    assert (page / "mine").is_dir()
    shutil.rmtree(page)
    assert main(command) == 0 and (page / "runs" / "baseline-r1.html").exists()
    (logs / "baseline" / "r1").rename(logs / "baseline" / "r2")
    assert main(command) == 0
    assert (page / "runs" / "baseline-r2.html").exists() and not (page / "runs" / "baseline-r1.html").exists()
    assert [path.name for path in tmp_path.glob("page*")] == ["page"], "a half-written page is left"


def test_list_has_pytorchs_peak_where_nvidia_smi_left_no_log(make_run) -> None:
    run = read_run(make_run("r1", **{"gpu_memory.csv": None}))
    assert listed(run, "peak_gpu_mib") == "19,597 (PyTorch)"
    assert listed(read_run(make_run("r2")), "peak_gpu_mib") == "21,658"
