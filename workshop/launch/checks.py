"""`python -m workshop.launch.checks`: check a job's environment without torch, and print what is still to be exported.

This Python has the training's packages, no variable of the shell is a misspelt setting, and the training accepts the
exercise's settings and its configuration file. Then DeepSpeed's operators are compiled.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from workshop.job.node import one_per_node
from workshop.record.checkpoints import checkpoints, is_of
from workshop.record.errors import InputError, no_package
from workshop.record.exercises import Start, declared
from workshop.settings.configuration import Configuration, check_configuration, settings_class
from workshop.settings.deepspeed_config import operators_of
from workshop.settings.env_file import exported
from workshop.settings.settings import count, has_gpu
from workshop.settings.typos import check_shell

PACKAGES = ("torch", "transformers", "accelerate")


def check_world(environ: Mapping[str, str]) -> None:
    """Raises InputError for more nodes or GPUs than the launcher can use: each would be a training of its own."""
    exercise, start = declared(Path.cwd()), Start.of(environ)
    launcher, nodes, gpus = exercise.launcher(start.launcher), start.nodes, start.processes
    optional = "config" in launcher.arguments and exercise.takes(start.script) == "any"
    most_gpus = launcher.most_gpus or (1 if optional and not environ["CONFIG"] else gpus)
    if gpus > most_gpus:
        alone = f"{exercise.folder.name} trains on one GPU{' without a configuration' if optional else ''}"
        raise InputError(f"{alone}, but this job has {gpus}; expected --nodes=1 --gpus-per-node=1")
    if nodes > (launcher.most_nodes or nodes):
        several = [name for name, other in exercise.launchers.items() if not other.most_nodes and not other.most_gpus]
        problem = f"{start.launcher} trains on one node, but this job has {nodes}"
        raise InputError(f"{problem}; expected --nodes=1, or a launcher for several: {' '.join(several)}")


def check_settings(shell: Mapping[str, str]) -> Configuration | None:
    """Return the configuration that is trained.

    Raises InputError for what the training would refuse at its start and can be checked without torch.
    """
    for name in ("RESTARTS", "GPU_LOG_INTERVAL_MS"):
        if text := shell.get(name):
            count.value_of(text, f"{name}='{text}'")
    settings = settings_class(Path.cwd()).from_environment({**shell, "RUN_DIR": "made when all is well"})
    if "8bit" in settings.optimizer and not find_spec("torchao"):
        raise InputError(f"OPTIMIZER={settings.optimizer} needs torchao (requirements-gpu.txt); expected adamw_torch")
    if not (configuration := check_configuration(settings)):
        return None
    if configuration.needs_gpu and not has_gpu(shell):
        raise InputError(f"{settings.config}: there is no NVIDIA GPU, which it needs for {configuration.needs_gpu}")
    for note in configuration.notes:
        print(f"note: {Path(settings.config).name} {note}", file=sys.stderr)
    return configuration


def check_output(shell: Mapping[str, str]) -> None:
    """Raises InputError where a new run would find another run's checkpoints and resume from them after a failure."""
    output = Path(shell["OUTPUT_DIR"])
    again = any(shell.get(name, "0") not in ("", "0") for name in ("RESUME_RUN", "SLURM_RESTART_COUNT"))
    resumes = again or is_of(shell.get("RESUME_FROM", ""), output)
    if output.is_absolute() and not resumes and (others := checkpoints(output)):
        raise InputError(
            f"OUTPUT_DIR='{output}': {others[0].name} of another run is there; expected a folder of this run's own, or "
            f"RESUME_FROM={others[0]} to go on from it"
        )


def warn_without_reporter(shell: Mapping[str, str]) -> None:
    """Warn where a key or WANDB_MODE is set and nothing reports to Weights & Biases."""
    meant = [name for name in ("WANDB_API_KEY", "WANDB_MODE") if shell.get(name, "offline") not in ("", "offline")]
    if meant and shell.get("REPORT_TO", "none") == "none" and shell.get("WANDB_MODE") != "disabled":
        reads = "WANDB_MODE" in exported(Path("env_vars.sh"))
        nothing = "but REPORT_TO=none: nothing goes to Weights & Biases; set REPORT_TO=wandb for that"
        text = nothing if reads else "but nothing of this exercise goes to Weights & Biases"
        print(f"warning: {' and '.join(meant)} set, {text}", file=sys.stderr)


def for_libraries(environ: Mapping[str, str]) -> dict[str, str]:
    """Return libraries' variables: against waiting in vain and lines that nobody needs, and W&B's project."""
    from workshop.data.hub import is_offline  # a package that may be missing

    # Without network the hub's library would retry for minutes; offline it reads its cache.
    return {
        "TQDM_MININTERVAL": environ.get("TQDM_MININTERVAL") or "5",
        "HF_HUB_OFFLINE": environ.get("HF_HUB_OFFLINE") or str(int(is_offline(environ))),
        "WANDB_PROJECT": environ.get("WANDB_PROJECT") or environ["EXPERIMENT_NAME"],
    }


def compile_operators(names: Sequence[str], environ: Mapping[str, str]) -> None:
    """Compile these operators of DeepSpeed on every node, before the run's clock and its loggers start."""
    command = [sys.executable, "-m", "workshop.kernels.operators", *names]
    start = Start.of(environ)
    if start.job:  # emulated nodes share their operators
        command = one_per_node([], command, start)
    if names and subprocess.run(command, env=environ, stdout=sys.stderr).returncode:
        sys.exit(1)


def main() -> None:
    environ = os.environ
    if missing := [name for name in PACKAGES if find_spec(name) is None]:
        raise InputError(f"{no_package(', '.join(missing))}; or CONDA_SH_PATH and CONDA_ENV in cluster.env")
    check_shell(environ)
    check_world(environ)
    configuration = check_settings(environ)
    check_output(environ)
    warn_without_reporter(environ)
    print(json.dumps(for_libraries(environ)))
    if configuration and configuration.is_deepspeed:
        compile_operators(operators_of(configuration.content), environ)


if __name__ == "__main__":
    main()
