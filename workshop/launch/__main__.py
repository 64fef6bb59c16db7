"""`python -m workshop.launch`: check a job without torch, and print what its launcher exports, as lines of bash.

A mistake is one line and exit code 1, before there is a run folder.
"""

import json
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from workshop.record.errors import InputError
from workshop.record.exercises import Launcher, declared
from workshop.record.slurm_job import job_line, output_of
from workshop.settings.env_file import sourced
from workshop.settings.run_lines import by_name, read_lines
from workshop.settings.settings import has_gpu, positive

# Paths: also globs, and slices after a colon.
PATHS = ("DATASET", "EVAL_DATASET", "MODEL_NAME", "TOKENIZER_NAME", "RESUME_FROM", "RESUME_RUN", "LOG_DIR")


def check_arguments(launcher: Launcher, name: str, arguments: Sequence[str]) -> None:
    """Raises InputError for an argument without effect, as in `baseline.slurm --time=1:00:00`."""
    if arguments and not launcher.reads(len(arguments)):
        raise InputError(
            f"{name} {shlex.join(arguments)}: nothing reads argument {len(arguments)}; expected sbatch's options and "
            f"settings before the launcher, as in BATCH_SIZE=8 sbatch --time=1:00:00 {name}"
        )


def check_model(shell: Mapping[str, str], options: Mapping[str, str]) -> None:
    """Raises InputError where an option would make a laptop train a real model, after `source tiny.env`."""
    asked = options.get("MODEL_NAME", "tiny")
    if shell.get("MODEL_NAME") == "tiny" and asked != "tiny":
        raise InputError(
            f"MODEL_NAME=tiny in your shell (tiny.env) and the argument {asked}: expected one of them; "
            "`unset MODEL_NAME` or leave the argument out"
        )


def launcher_name(environ: Mapping[str, str]) -> str:
    """Return the launcher's file name. Raises InputError for that of another clone, whose code would not run."""
    if not environ.get("SLURM_JOB_ID") or Path(environ["LAUNCHER"]).is_file():
        return environ["LAUNCHER"]
    # sbatch starts a copy: SLURM knows the original's path, which arguments follow.
    words = re.sub(" WorkDir=.*", "", job_line(environ["SLURM_JOB_ID"]).partition("Command=")[2]).split(" ")
    paths = (Path(" ".join(words[:count])) for count in range(len(words), 0, -1))
    if (script := next((path for path in paths if path.is_file()), None)) is None:
        said = f"SLURM names no launcher of job {environ['SLURM_JOB_ID']} that is still there"
        raise InputError(f"{said}; expected `scontrol show job` to say Command=FILE")
    if (folder := script.parent.resolve()) != Path.cwd():
        would = f"{script} was submitted, but {Path.cwd()} would run"
        raise InputError(f"{would}; submit it in its own repository: cd {folder} && sbatch {script.name}")
    return script.name


def array_line(launcher: Launcher, environ: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the settings and the arguments of an array task's line of submit.txt. What the shell sets wins."""
    lines = read_lines(Path("submit.txt"))
    task = environ["SLURM_ARRAY_TASK_ID"]
    if not 1 <= int(task) <= len(lines):
        raise InputError(f"task {task} of the array: submit.txt has the runs 1 to {len(lines)}")
    line = lines[int(task) - 1]
    gpus = by_name(line.options).get("gpus-per-node", str(launcher.gpus_per_node))
    if gpus != (environ.get("SLURM_GPUS_ON_NODE") or environ.get("GPUS_PER_NODE") or "1"):
        raise InputError(f"run {task} of submit.txt: expected --gpus-per-node={gpus} as an option of sbatch")
    return {name: value for name, value in line.settings.items() if not environ.get(name)}, list(line.arguments)


def whole_path(text: str, folder: Path, may_be_new: bool = False) -> str:
    """Return a path relative to the folder of the submission as an absolute one; else the text."""
    path = text if (folder / text).exists() else text.partition(":")[0]
    if not path or Path(path).is_absolute():
        return text
    there = may_be_new or (folder / path).exists() or any(folder.glob(path))
    return f"{(folder / path).resolve()}{text.removeprefix(path)}" if there else text


def given(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what the launcher and its arguments say, as variables that env_vars.sh and the training read."""
    name, arguments = launcher_name(environ), shlex.split(environ["LAUNCHER_ARGUMENTS"])
    launcher = declared(Path.cwd()).launcher(name)
    check_arguments(launcher, name, arguments)
    variables = dict[str, str]()
    if launcher.array and not arguments and environ.get("SLURM_ARRAY_TASK_ID"):
        variables, arguments = array_line(launcher, environ)
    options = launcher.settings_among(arguments)
    check_model(environ, options)
    variables |= options | {"LAUNCHER": name, "LAUNCHER_ARGUMENTS": shlex.join(arguments)}
    repo, modules = Path(environ["REPO"]), declared(Path.cwd()).modules
    variables["PYTHONPATH"] = ":".join([*(str(repo / folder) for folder in modules), environ["PYTHONPATH"]])
    folder = Path(environ.get("SLURM_SUBMIT_DIR") or environ["OLDPWD"])
    for path in PATHS:
        if text := variables.get(path) or environ.get(path):
            variables[path] = whole_path(text, folder, may_be_new=path == "LOG_DIR")
    config = launcher.config_of(arguments, environ)
    # A snapshot has a copy of a configuration that was named from the repository on.
    config = whole_path(config, repo if (repo / "snapshot.json").is_file() else folder) if config else ""
    if config and not Path(config).is_file():
        files = " ".join(sorted(map(str, [*Path().glob("*.json"), *Path().glob("*_configs/*.json")])))
        raise InputError(f"configuration '{config}': no such file; expected one of: {files}")
    return variables | {"CONFIG": os.path.realpath(config) if config else ""}


def world(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with which the job's processes find each other, for its launcher and env_vars.sh.

    Raises InputError for a shell that is on no node of its job, for more than one launcher, and for wrong numbers.
    """
    job = environ.get("SLURM_JOB_ID", "")
    if job and not environ.get("SLURMD_NODENAME"):  # salloc's shell is often on the login node
        raise InputError(f"this shell is on no node of job {job}; expected sbatch, or `srun --pty bash` before it")
    if (tasks := environ.get("SLURM_STEP_NUM_TASKS") or "1") != "1":
        raise InputError(f"srun starts {tasks} launchers; expected --ntasks=1")
    for name in ("GPUS_PER_NODE", "EMULATED_NODES"):
        if text := environ.get(name):
            positive.value_of(text, f"{name}='{text}'")
    nodes = environ.get("SLURM_NNODES") or environ.get("EMULATED_NODES") or "1"
    hosts = "localhost"
    if job and nodes != "1":
        hosts = output_of(["scontrol", "show", "hostnames", environ["SLURM_JOB_NODELIST"]]).strip()
    run_id = job or environ["LAUNCHER_PID"]  # keeps two jobs' worlds apart
    return {
        "NNODES": nodes,
        "NPROC_PER_NODE": environ.get("SLURM_GPUS_ON_NODE") or environ.get("GPUS_PER_NODE") or "1",
        "SLURM_NODEID": environ.get("SLURM_NODEID") or "0",
        "DEEPSPEED_HOSTS": hosts,
        "MASTER_ADDR": hosts.split("\n")[0],  # the job's first node is this one
        "MASTER_PORT": str(_free_port(20000 + int(run_id) % 12000)),  # below the ephemeral ports
        "RDZV_ID": run_id,
    }


def _free_port(port: int) -> int:
    """Return this port or the next that nobody listens on, so two jobs on one node cannot meet."""
    while True:
        with socket.socket() as connection:
            if connection.connect_ex(("localhost", port)):
                return port
        port += 1


def share_of_node(environ: Mapping[str, str]) -> dict[str, str]:
    """Return each process's share of this node: its GPUs, and threads for an optimizer on the CPU.

    Raises InputError for more processes than GPUs.
    """
    nodes, per_node = int(environ["NNODES"]), int(environ["NPROC_PER_NODE"])
    job, given = environ.get("SLURM_JOB_ID"), environ.get("CUDA_VISIBLE_DEVICES")
    here = per_node if job and nodes > 1 else nodes * per_node
    most = _gpus(given or "")
    if most and here > most:
        of = f" in CUDA_VISIBLE_DEVICES={given}" if given else ""
        problem = f"GPUS_PER_NODE={per_node}: {here} processes on this host, more than its GPUs{of}"
        raise InputError(f"{problem}; expected at most {most} in all")
    processors = int(environ.get("SLURM_CPUS_ON_NODE") or len(os.sched_getaffinity(0)))
    # torchrun would give a process one thread, DeepSpeed all.
    variables = {"OMP_NUM_THREADS": environ.get("OMP_NUM_THREADS") or str(max(1, processors // here))}
    if not job:  # SLURM limits the job itself
        visible = map(str, range(100)) if given is None else given.split(",")
        variables["CUDA_VISIBLE_DEVICES"] = ",".join([*visible][:here])
    return variables


def _gpus(visible: str) -> int:
    """Return how many GPUs a job may use on this node; 0 where there is none, or nvidia-smi does not say."""
    if "MIG-" in visible:
        return 1  # CUDA shows a process only one slice
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout
    except FileNotFoundError:
        listed = ""
    present = len(re.findall("^GPU", listed, re.MULTILINE))
    named = len(re.split(r"[, ]+", visible)) if re.match("[0-9G]", visible) else 0
    if not present and not named and has_gpu({}):
        print("note: nvidia-smi lists no GPU beside NVIDIA's driver: their number is not checked", file=sys.stderr)
    return min(filter(None, (present, named)), default=0)


def as_bash(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """Return lines of bash that make one environment of another."""
    lines = []
    for name in sorted({*before, *after} - {"_", "SHLVL", "PWD", "OLDPWD"}):  # these are each shell's own
        if name.isidentifier() and name not in after:
            lines.append(f"unset {name}")
        elif name.isidentifier() and after[name] != before.get(name):
            lines.append(f"export {name}={shlex.quote(after[name])}")
    return "\n".join(lines)


def main() -> None:
    before = dict(os.environ)
    environ = before | given(before)
    environ |= world(environ)
    environ = sourced(Path("env_vars.sh"), environ)
    environ |= share_of_node(environ)
    # Checked by a process with the job's environment: huggingface_hub reads it when it is imported.
    check = [sys.executable, "-m", "workshop.launch.checks"]
    checked = subprocess.run(check, env=environ, stdout=subprocess.PIPE, text=True)
    if checked.returncode:
        sys.exit(1)
    environ |= json.loads(checked.stdout)
    # Transformers would print that W&B is offline, even if it is not used; offline is the default.
    if environ.get("WANDB_MODE") == "offline":
        del environ["WANDB_MODE"]
    print(as_bash(before, environ))


if __name__ == "__main__":
    main()
