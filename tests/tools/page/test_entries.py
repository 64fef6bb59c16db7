"""The page's entries and curves are those of the runs."""

from tests.tools.conftest import GPU_LOG
from tools.logs.runs import find_runs, read_run
from tools.page.curves import MOST_POINTS, charts
from tools.page.entries import entries


def test_names_that_differ_in_odd_characters_or_case_only_get_pages_of_their_own(make_run, logs, tmp_path):
    for name in ("a b", "a?b", "A b"):
        make_run(name)
    found = entries(find_runs(logs), [], tmp_path)
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
