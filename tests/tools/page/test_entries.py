import pytest

from tools.logs.live_run import last_lines
from tools.logs.runs import find_runs, read_run
from tools.page.entries import command, entries, title


def test_names_that_differ_in_odd_characters_or_case_only_get_pages_of_their_own(make_run, logs, tmp_path):
    for name in ("a b", "a/b".replace("/", "?"), "A b", "..", "ä" * 60)[:3]:
        make_run(name)
    found = entries(find_runs(logs), [], tmp_path)
    assert len({one.id.lower() for one in found}) == 3
    assert all(one.id.replace("-", "").isalnum() for one in found)


def test_own_run_in_trouble_is_the_first(make_run, logs):
    nan = "step,step_time_s,tokens,real_tokens,loss,epoch\n1,0.5,2048,700,nan,0.2\n"
    for day, (name, state, steps) in enumerate(
        [("oom", "oom", nan), ("nan", "completed", nan), ("well", "completed", "")]
    ):
        make_run(name, {"state": state, "start_time": f"2026-11-2{day}T09:45:00+00:00"}, **{"steps.csv": steps})
    shown = entries(find_runs(logs), [], logs)
    assert [one.run.folder.name for one in shown] == ["oom", "nan", "well"] and shown[1].trouble == "loss is nan"


def test_log_s_end_has_no_control_characters_and_is_short(tmp_path):
    log = tmp_path / "train.out"
    log.write_bytes(
        b"x" * 40_000 + b"\n 1%|\r 9%|bar\x1b[31mred\x1b[0m\n" + b"\n".join([b"line"] * 30) + b"\x00\xff\r\n"
    )
    lines = last_lines(log, 25)
    assert len(lines) == 25 and set(lines) == {"line", "line\\x00\ufffd"}
    log.write_bytes(b" 1%|\r 9%|bar\x1b[31mred\x1b[0m\r\n" + b"y" * 999)
    assert last_lines(log, 25) == [" 9%|barred", "y" * 299 + "…"]
    assert last_lines(tmp_path / "none", 25) == []


@pytest.mark.parametrize(
    ("metric", "words"),
    [("peak_gpu", "peak GPU (MiB)"), ("samples_per_second", "samples/s"), ("time_in_steps", "time in steps (s)")],
)
def test_figure_s_name_in_words_has_its_unit_once(metric, words):
    assert title(metric) == words


def test_run_of_a_submission_is_repeated_by_its_line(make_run):
    line = "DATASET='my data.json' --gpus-per-node=2 multi_gpu.slurm fsdp_configs/shard_grad_op.json"
    run = read_run(make_run("r1", {"exercise": "fsdp", "submission": line}))
    assert command(run) == f"DATASET='my data.json' sbatch --gpus-per-node=2 fsdp/{line.split('=2 ')[1]}"
    assert command(read_run(make_run("r2"))) == ""
