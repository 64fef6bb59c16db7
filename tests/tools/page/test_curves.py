from tests.tools.conftest import GPU_LOG
from tools.logs.runs import read_run
from tools.page.curves import MOST_POINTS, charts
from tools.page.entries import facts


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


def test_run_that_went_on_has_a_line_at_that_step_that_names_why(make_run):
    attempts = [{"state": "failed", "last_step": 2, "resumed_step": 1}]
    run = read_run(make_run("r1", {"attempts": attempts, "settings": {"fault": "rank_killed"}}))
    found = {chart.key: chart for chart in charts(run)}
    assert [(line.name, line.x) for line in found["loss"].lines] == [
        ("loss", [1, 2]),
        ("failed after step 2, went on from step 1", [1, 1]),
    ]
    assert facts(run)["attempts"] == "failed after step 2, went on from step 1" and facts(run)["fault"] == "rank_killed"
