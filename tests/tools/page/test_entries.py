from tools.logs.live_run import last_lines
from tools.logs.runs import find_runs, read_run
from tools.page.entries import command, entries


def test_names_that_differ_in_odd_characters_or_case_only_get_pages_of_their_own(make_run, logs, tmp_path):
    for name in ("a b", "a?b", "A b"):
        make_run(name)
    found = entries(find_runs(logs), [], tmp_path)
    assert len({one.id.lower() for one in found}) == 3
    assert all(one.id.replace("-", "").isalnum() for one in found)


def test_own_run_in_trouble_is_the_first(make_run, logs):
    nan = "step,step_time_s,tokens,real_tokens,loss,epoch\n1,0.5,2048,700,nan,0.2\n"
    for name, state, steps in (("oom", "oom", nan), ("nan", "completed", nan), ("well", "completed", "")):
        make_run(name, {"state": state}, **{"steps.csv": steps})
    shown = entries(find_runs(logs), [], logs)
    assert [one.run.folder.name for one in shown] == ["oom", "nan", "well"] and shown[1].trouble == "loss is nan"


def test_log_s_end_has_no_control_characters_and_is_short(tmp_path):
    log = tmp_path / "train.out"
    bar = b" 1%|\r 9%|bar\x1b[31mred\x1b[0m"
    log.write_bytes(b"x" * 40_000 + b"\n" + bar + b"\n" + b"line\n" * 29 + b"line\x00\xff\r\n")
    lines = last_lines(log, 25)
    assert len(lines) == 25 and set(lines) == {"line", "line\\x00\ufffd"}
    log.write_bytes(bar + b"\r\n" + b"y" * 999)
    assert last_lines(log, 25) == [" 9%|barred", "y" * 299 + "…"]
    assert last_lines(tmp_path / "none", 25) == []


def test_run_of_a_submission_is_repeated_by_its_line(make_run):
    line = "DATASET='my data.json' --gpus-per-node=2 multi_gpu.slurm fsdp_configs/shard_grad_op.json"
    run = read_run(make_run("r1", {"exercise": "fsdp", "submission": line}))
    assert command(run) == f"DATASET='my data.json' sbatch --gpus-per-node=2 fsdp/{line.split('=2 ')[1]}"
    assert command(read_run(make_run("r2"))) == ""
