"""The launcher without SLURM: a run completes, a mistake is named, and one host plays several nodes."""

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.launching import PATH, REPO, only_run, program, run, tiny_profile, wait_until
from workshop.launch.__main__ import as_bash, whole_path, world
from workshop.record.exercises import exercises_with
from workshop.sample import harbour

BASELINE = "baseline/baseline.slurm"


def bash(*words: str | Path, cwd: Path = REPO, **changes: str | Path) -> subprocess.CompletedProcess[str]:
    """What `bash WORDS` printed, with the tiny profile and these changes."""
    return run("bash", *words, cwd=cwd, code=None, env=tiny_profile(), **{key: str(changes[key]) for key in changes})


@pytest.mark.slow
def test_quickstart_learns_to_answer_questions_it_has_not_seen_and_fills_the_tables(tmp_path: Path) -> None:
    command = f"source {REPO}/quickstart.env && exec bash {REPO}/baseline/baseline.slurm"
    job = run("bash", "-c", command, LOG_DIR=str(tmp_path))
    folder = only_run(tmp_path)
    following = f"next: python -m tools fill baseline --logs {tmp_path} --tiny"
    assert job.stdout.splitlines()[-2:] == [f"evidence: {folder}", following]
    steps = re.compile(r"^\{'loss': ", re.MULTILINE)
    assert len(steps.findall((folder / "train.out").read_text())) == 600
    assert 0 < len(steps.findall(job.stdout)) < 200, "a person cannot follow it"
    summary = json.loads((folder / "summary.json").read_text())
    for score in ("exact_match", "f1"):
        assert summary[f"{score}_before"] < 1
        assert summary[score] > 6 * harbour.GUESSING, "six times what guessing a word of the right kind gives"
    # Not known by heart: then training questions would be answered and these not.
    assert summary["exact_match"] > summary["train_exact_match"] - 15
    losses = summary["eval_loss"]
    assert losses[0] > losses[1] > losses[2]
    saved = {path.name for path in (folder / "bloom-qa-finetuned").iterdir()}
    assert {"model.safetensors", "tokenizer.json"} <= saved
    tables = run("python", "-m", "tools", "fill", "baseline", "--tiny", "--logs", tmp_path).stdout
    assert f"| Eval Loss (Epoch 3) | {losses[2]:.4f} |" in tables
    assert f"| Exact Match (%) | {summary['exact_match']:.2f} |" in tables
    assert "| Peak CPU Memory, PSS (MiB) | " in tables
    assert "not measured" not in tables


MANY = "error: TRAIN_SIZE='many' (env_vars.sh:17, or set in your shell): expected a whole number of at least 1"
MISTYPED = "error: your shell sets BATCHSIZE=2 (did you mean BATCH_SIZE?), GPUPERNODE=1 (did you mean GPUS_PER_NODE?)"
PURE = {"WEIGHTS": "bf16", "BF16": "true", "FP16": "false"}
STATES = {"OPTIMIZER": "adamw_torch_8bit"}
WITHOUT_TORCHAO = pytest.mark.skipif(find_spec("torchao") is not None, reason="there is torchao")
SEVERAL_TASKS = {"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "node1", "SLURM_STEP_NUM_TASKS": "2"}
ONE_GPU = "trains on one GPU, but this job has 2; expected --nodes=1 --gpus-per-node=1"
ONE_NODE = "multi_gpu.slurm trains on one node, but this job has 2; expected --nodes=1, or a launcher for several:"


@pytest.mark.parametrize(
    ("launcher", "changes", "told"),
    [
        (BASELINE, {"TRAIN_SIZE": "many"}, MANY),
        (BASELINE, {"BATCHSIZE": "2", "GPUPERNODE": "1"}, MISTYPED),
        (BASELINE, {"GPUS_PER_NODE": "2"}, ONE_GPU),
        (BASELINE, {"LOG_DIR": "/proc/nowhere"}, "error: LOG_DIR='/proc/nowhere': cannot write there"),
        (BASELINE, {"OUTPUT_DIR": "{tmp}/out"}, "/out': checkpoint-500 of another run is there; expected"),
        (BASELINE, {"RESUME_FROM": "{tmp}/out/checkpoint-500"}, "expected a checkpoint that is whole"),
        (BASELINE, {"RESUME_RUN": "{tmp}/out"}, "/out': no run.json there; expected a run folder"),
        pytest.param(BASELINE, STATES, "OPTIMIZER=adamw_torch_8bit needs torchao", marks=WITHOUT_TORCHAO),
        (BASELINE, {"WEIGHTS": "bf16"}, "WEIGHTS=bf16: they are computed with in bf16; expected BF16=true FP16=false"),
        ("fsdp/multi_gpu.slurm", PURE, "full_shard.json keeps fp32 weights beside; expected DDP, or one GPU alone"),
        (f"{BASELINE} --time=1:00:00", {}, "baseline.slurm --time=1:00:00: nothing reads argument 1; expected"),
        ("fsdp/multi_gpu.slurm fsdp_configs/ddp.json BATCH_SIZE=8", {}, "nothing reads argument 2; expected"),
        ("fsdp/multi_gpu.slurm", {"EMULATED_NODES": "2"}, ONE_NODE),
        ("fsdp/multi_gpu.slurm", {"GPUS_PER_NODE": "8", "CUDA_VISIBLE_DEVICES": "0,1"}, "expected at most 2 in all"),
        ("fsdp/multi_gpu.slurm", {"SLURM_JOB_ID": "7"}, "this shell is on no node of job 7; expected sbatch"),
        ("fsdp/multi_gpu.slurm", SEVERAL_TASKS, "srun starts 2 launchers; expected --ntasks=1"),
        ("benchmark/benchmark.slurm", {"SLURM_ARRAY_TASK_ID": "37"}, "of submit.txt: expected --gpus-per-node=2"),
        ("benchmark/benchmark.slurm", {"SLURM_ARRAY_TASK_ID": "61"}, "submit.txt has the runs 1 to 60"),
        ("benchmark/benchmark.slurm", {}, "train.py needs a configuration, or a job array, whose tasks are lines"),
        ("deepspeed-zero3-offload/run.slurm --model-name=gpt2", {}, "MODEL_NAME=tiny in your shell (tiny.env) and"),
        ("further/by-hand/by_hand.slurm ddp.py ds_configs/zero2.json", {}, "ddp.py has no configuration, but '"),
        ("further/by-hand/by_hand.slurm zero.py", {}, "zero.py needs a configuration; expected one of ds_configs/zero"),
        ("further/lora/lora.slurm", {"GPUS_PER_NODE": "2"}, "lora trains on one GPU without a configuration, but this"),
        ("further/speed-ladder/ladder.slurm", {"RUNG": "3_none"}, "RUNG='3_none': no such rung; expected one of: 0_"),
        ("fsdp/multi_gpu.slurm nowhere.json", {}, "configuration 'nowhere.json': no such file; expected one of"),
        ("further/by-hand/by_hand.slurm ddp.py", {"FP16": "true"}, "fp16 needs a gradient scaler"),
        ("further/by-hand/by_hand.slurm fsdp.py fsdp_configs/hybrid_shard.json", {}, "which cannot split 1 GPU"),
        ("further/by-hand/by_hand.slurm fsdp.py ds_configs/zero2.json", {}, "a file of DeepSpeed; expected"),
        ("further/by-hand/by_hand.slurm zero.py ds_configs/zero3.json", {"OPTIMIZER": "muon"}, "zero3.json is ZeRO-3"),
        ("further/resilience/drill.slurm", {"FAULT": "rank_killed", "MAX_STEPS": "25"}, "FAULT_STEP=25: the training"),
        ("deepspeed-single-gpu/deepspeed.slurm own.json", {}, "own.json: nothing reads 'zero_stage'"),
        ("further/speed-ladder/ladder_deepspeed.slurm ds_configs/zero3.json", {"RUNG": "7_compile"}, "is ZeRO-3"),
        ("further/speed-ladder/ladder.slurm", {"RUNG": "peer_trl_padded"}, "ladder.slurm does not train it"),
        ("further/speed-ladder/peers.slurm", {"RUNG": "peer_trl_padded", "SAVE": "end"}, "no peer reads it"),
    ],
)
def test_K1_refused_start_is_one_line_and_no_run(
    tmp_path: Path, launcher: str, changes: dict[str, str], told: str
) -> None:
    """Python looks for modules in the folder first: a torch there, which cannot be imported, hides the real one."""
    (tmp_path / "torch.py").write_text("raise SystemExit('torch is imported')")
    (tmp_path / "own.json").write_text('{"zero_optimization": {"stage": 2}, "zero_stage": 2}')
    checkpoint = tmp_path / "out/checkpoint-500"
    checkpoint.mkdir(parents=True)
    (checkpoint / "trainer_state.json").write_text("{}")
    (checkpoint / "manifest.json").write_text('{"files": {"model.safetensors": [4, "digest"]}}')
    environ = {"LOG_DIR": tmp_path / "logs", "PYTHONPATH": tmp_path, "WANDB_API_KEY": ""}  # of which a line would tell
    environ |= {name: value.format(tmp=tmp_path) for name, value in changes.items()}
    script, *arguments = launcher.split()
    job = bash(REPO / script, *arguments, cwd=tmp_path, **environ)
    assert (job.returncode, job.stdout, (tmp_path / "logs").exists()) == (1, "", False)
    (line,) = job.stderr.splitlines()
    assert line.startswith("error: ") and told in line


@pytest.mark.parametrize("launcher", ["baseline/baseline.slurm", "further/lora/lora.slurm"])
def test_code_of_another_clone_does_not_run_without_a_word(tmp_path: Path, launcher: str) -> None:
    """sbatch runs a copy of the script: the folder that it was submitted from decided whose code ran."""
    submitted = tmp_path / "other" / launcher
    submitted.parent.mkdir(parents=True)
    submitted.touch()
    scontrol = tmp_path / "bin/scontrol"
    program(scontrol, f"echo '   Command={submitted} --steps 4'")
    copy = tmp_path / "spool/slurm_script"
    copy.parent.mkdir()
    copy.write_text((REPO / launcher).read_text())
    job = {"SLURM_JOB_ID": "7", "SLURM_SUBMIT_DIR": REPO, "PATH": f"{scontrol.parent}:{PATH}"}
    ran = bash(copy, cwd=tmp_path, LOG_DIR=tmp_path / "logs", **job)
    assert (ran.returncode, (tmp_path / "logs").exists()) == (1, False)
    advice = f"submit it in its own repository: cd {submitted.parent} && sbatch {submitted.name}"
    would_run = (REPO / launcher).parent
    assert ran.stderr == f"error: {submitted} was submitted, but {would_run} would run; {advice}\n"


def test_job_from_a_wrong_folder_says_where_to_start_it(tmp_path: Path) -> None:
    """Bash alone said `../workshop/launch.sh: No such file or directory`."""
    (tmp_path / "slurm_script").write_text((REPO / BASELINE).read_text())
    job = run("bash", "slurm_script", cwd=tmp_path, code=1, SLURM_SUBMIT_DIR=str(tmp_path))
    assert job.stderr.splitlines()[-1] == f"error: in {tmp_path}; expected bash or sbatch in the repository"


MIG = "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f"
UUID = "GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77"


def test_deepspeeds_ranks_see_their_own_gpus(tmp_path: Path) -> None:
    """It counts a node's GPUs from 0, which are another job's, and reads other names as numbers.

    Here they are a GPU and a MIG slice by their UUIDs on the second of two nodes.
    """
    hosts, node, gpus = "node1 node2", 1, f"{UUID},{MIG}"
    launchers = [path.read_text() for folder in exercises_with("*.slurm") for path in folder.glob("*.slurm")]
    (line,) = {text.split("    deepspeed ")[1] for text in launchers if "    deepspeed " in text}
    line = line.replace("\\\n", " ")
    per_node = gpus.count(",") + 1
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "CUDA_VISIBLE_DEVICES", "MASTER_PORT")
    said = f"open('rank' + os.environ['RANK'], 'w').write(' '.join(os.environ[name] for name in {names}))"
    (tmp_path / "train.py").write_text(f"import os\n{said}\n")
    (tmp_path / "hostfile").write_text("".join(f"{host} slots={per_node}\n" for host in hosts.split()))
    program(tmp_path / "bin/nvidia-smi", 'echo "$@"; exec sleep 1000')
    environ = os.environ | {"RUN_DIR": str(tmp_path), "PYTHONPATH": str(REPO), "PATH": f"{tmp_path}/bin:{PATH}"}
    environ |= {"SLURM_NODEID": str(node), "NNODES": str(len(hosts.split())), "GPU_LOGGER": "nvidia-smi --format=csv"}
    environ |= {"MASTER_ADDR": "node1", "MASTER_PORT": "20007", "CUDA_VISIBLE_DEVICES": gpus, "DS_ACCELERATOR": "cuda"}
    words = ("workshop.job.node", "deepspeed", *shlex.split(line.replace('"', "")))
    run(sys.executable, "-m", *words, cwd=tmp_path, env=environ)
    world, first = per_node * len(hosts.split()), per_node * node
    expected = {f"rank{first + local}": f"{first + local} {local} {world} {gpus} 20007" for local in range(per_node)}
    assert {path.name: path.read_text() for path in tmp_path.glob("rank*")} == expected
    assert next(tmp_path.glob("gpu_memory*")).read_text() == f"--format=csv -i {gpus}\n"


@pytest.mark.parametrize(
    ("gpus", "processes", "seen"),
    [
        ("4,5,6,7", "2", "4,5"),  # the logger watched 6 and 7, too
        (f"{MIG},{MIG[::-1]}", "2", f"its GPUs in CUDA_VISIBLE_DEVICES={MIG},{MIG[::-1]}; expected at most 1 in all"),
    ],
)
def test_job_has_as_many_gpus_as_processes_or_is_refused(tmp_path: Path, gpus: str, processes: str, seen: str) -> None:
    program(tmp_path / "nvidia-smi", "for gpu in 0 1 2 3 4 5 6 7; do echo GPU $gpu; done")
    script = "cd fsdp; source ../workshop/launch.sh; start_run >/dev/null; echo $CUDA_VISIBLE_DEVICES"
    world = {"PATH": f"{tmp_path}:{PATH}", "CUDA_VISIBLE_DEVICES": gpus, "GPUS_PER_NODE": processes}
    job = bash("-c", script, "multi_gpu.slurm", HF_HUB_OFFLINE="1", **world)
    assert (job.stdout.strip() or job.stderr.strip()).endswith(seen)


def emulate(command: str) -> subprocess.CompletedProcess:
    nodes = {"NNODES": "2", "NPROC_PER_NODE": "2", "CUDA_VISIBLE_DEVICES": "0,1,2,5"}
    return run(REPO / "workshop/emulated_nodes.sh", "bash", "-c", command, code=None, **nodes)


def test_every_emulated_node_has_its_own_gpus_and_name_and_the_first_failure_ends_the_others() -> None:
    lines = emulate("echo $NCCL_HOSTID $CUDA_VISIBLE_DEVICES").stdout.splitlines()
    assert sorted(lines) == ["emulated-node-0 0,1", "emulated-node-1 2,5"]
    assert emulate('[ "$NCCL_HOSTID" = emulated-node-1 ] && exit 7; exec sleep 1000').returncode == 7


def test_rendezvous_skips_a_port_that_another_job_has() -> None:
    first = world({"LAUNCHER_PID": "7"})
    with socket.create_server(("localhost", int(first["MASTER_PORT"]))):
        second = world({"LAUNCHER_PID": "7"})
    assert int(second["MASTER_PORT"]) > int(first["MASTER_PORT"])
    assert first | {"MASTER_PORT": ""} == second | {"MASTER_PORT": ""}


def test_paths_are_relative_to_the_folder_of_the_submission_and_other_names_stay(tmp_path: Path) -> None:
    (tmp_path / "mine.json").touch()
    for text, whole in (("mine.json", f"{tmp_path}/mine.json"), ("mine.json:0:8", f"{tmp_path}/mine.json:0:8")):
        assert whole_path(text, tmp_path) == whole
    assert whole_path("mi*.json", tmp_path) == f"{tmp_path}/mi*.json"
    for name in ("rajpurkar/squad", "sample", "gpt2"):
        assert whole_path(name, tmp_path) == name
    assert whole_path("logs", tmp_path, may_be_new=True) == f"{tmp_path}/logs"


def test_exports_are_read_by_bash_as_they_are() -> None:
    after = {"A": "it's $HOME `ls`\n*", "B": "2", "BASH_FUNC_x%%": "() { :; }"}
    script = f"C=1; {as_bash({'B': '2', 'C': '1'}, after)}\nenv -0; echo ${{C-unset}}"
    said = run("bash", "-c", script, env={"B": "2"}).stdout
    assert {f"A={after['A']}", "B=2"} <= {*said.split("\0")} and said.endswith("unset\n")


def test_notice_while_a_job_is_checked_reaches_the_supervisor(tmp_path: Path) -> None:
    """SLURM sends it to the launcher's bash; operators may be compiled for minutes then."""
    program(tmp_path / "venv/bin/python", f'touch {tmp_path}/checks; sleep 2; exec {sys.executable} "$@"')
    command = "source ../workshop/launch.sh; start_run; kill -USR1 $$; echo noticed=$NOTICED"
    environ = tiny_profile() | {"WORKSHOP_VENV": f"{tmp_path}/venv", "LOG_DIR": str(tmp_path)}
    words = ["bash", "-c", command, "baseline.slurm"]
    job = subprocess.Popen(words, cwd=REPO / "baseline", env=environ, stdout=subprocess.PIPE, text=True)
    wait_until((tmp_path / "checks").exists)
    job.send_signal(signal.SIGUSR1)
    assert job.communicate()[0] == "noticed=USR1\n" and job.returncode == 0


@pytest.mark.parametrize(
    ("launcher", "told"),
    [
        (BASELINE, "but REPORT_TO=none: nothing goes to Weights & Biases; set REPORT_TO=wandb for that"),
        ("further/by-hand/by_hand.slurm ddp.py", "but nothing of this exercise goes to Weights & Biases"),
    ],
)
def test_key_without_a_reporter_is_named_in_every_exercise(launcher: str, told: str) -> None:
    """Exercises whose env_vars.sh has no WANDB_MODE said nothing."""
    script, *arguments = launcher.split()
    folder, name = script.rsplit("/", 1)
    begin = f"cd {folder}; source {REPO}/workshop/launch.sh; start_run"
    job = bash("-c", begin, name, *arguments, WANDB_API_KEY="planted", WANDB_MODE="offline", REPORT_TO="none")
    assert job.returncode == 0 and f"warning: WANDB_API_KEY set, {told}\n" in job.stderr
