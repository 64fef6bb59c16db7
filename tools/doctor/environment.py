"""Checks of Python, packages, PyTorch, GPUs, DeepSpeed's operators, the hub's cache and W&B."""

from __future__ import annotations

import json
import platform
import re
import shutil
import sys
import tomllib
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from tools.doctor.finding import Finding, ask
from tools.tables.repository import ROOT

REQUIREMENTS = ROOT / "requirements.txt"
PROBE_TIMEOUT_S = 300
Environment = Mapping[str, str]
Facts = Any  # a part of what workshop.probe prints


def findings(environment: Environment, names: Sequence[str]) -> list[Finding]:
    """All of this module. `environment`: with cluster.env; `names`: what prefetch would be asked for."""
    facts = probe(environment, names)
    return [
        python(environment),
        packages(),
        *torch(facts["torch"], driver(environment), in_job="SLURM_JOB_ID" in environment),
        compiler(facts["operators"], environment),
        operators(facts["operators"]),
        cache(facts["cache"], names),
        wandb(facts["wandb"], environment),
    ]


def probe(environment: Environment, names: Sequence[str]) -> dict[str, Facts]:
    """What a process with PyTorch says (workshop/probe.py)."""
    command = [sys.executable, "-m", "workshop.probe", *names]
    answer = ask(command, environment, cwd=ROOT, timeout_s=PROBE_TIMEOUT_S)
    try:
        return json.loads(answer.output.splitlines()[-1])
    except (IndexError, ValueError):
        return {part: {"problem": answer.complaint} for part in ("torch", "operators", "cache", "wandb")}


def python(environment: Environment) -> Finding:
    """That it is new enough, and the one that the launchers take (activate_python in workshop/launch.sh)."""
    least = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"].removeprefix(">=")
    version = platform.python_version()
    if sys.version_info < tuple(map(int, least.split("."))):
        return Finding("python", "error", f"{version}; expected {least} or newer", "make install PYTHON=python3.12")
    folder = Path(environment.get("WORKSHOP_VENV") or ROOT / ".venv")
    own, takes = Path(sys.executable), folder / "bin/python"
    if "CONDA_SH_PATH" not in environment and takes.exists() and own.parent.resolve() != takes.parent.resolve():
        text = f"{version}, {own}, but jobs take {takes}: what follows is about another environment"
        return Finding("python", "warning", text, f"source {folder}/bin/activate")
    return Finding("python", "ok", f"{version}, {own}")


def packages(requirements: Path = REQUIREMENTS) -> Finding:
    """That this environment has the pinned versions; of 2.13.0+cpu the part before the plus counts."""
    pins = re.findall(r"^([\w.-]+)==([\w.]+)", requirements.read_text(), re.MULTILINE)
    wrong = []
    for name, pin in pins:
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            version = "missing"
        if version.partition("+")[0] != pin:
            wrong.append(f"{name} {version} (expected {pin})")
    if wrong:
        return Finding("packages", "error", ", ".join(wrong), f"{sys.executable} -m pip install -r {requirements}")
    return Finding("packages", "ok", f"{len(pins)} as pinned in {requirements.name}")


def driver(environment: Environment) -> str:
    """GPUs and driver as nvidia-smi names them; "" without one."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    if shutil.which("nvidia-smi", path=environment.get("PATH")) is None:
        return ""
    answer = ask(query, environment)
    lines = answer.output.strip().splitlines()
    return "" if answer.code else ", ".join(f"{lines.count(line)} x {line}" for line in dict.fromkeys(lines))


def torch(facts: Facts, driver: str, in_job: bool) -> list[Finding]:
    """PyTorch with CUDA, the GPUs that it sees, NCCL."""
    if "problem" in facts:
        return [Finding("torch", "error", facts["problem"], "make install")]
    version = f"{facts['version']}, CUDA {facts['cuda'] or 'not built in'}, driver: {driver or 'none'}"
    install = f"{sys.executable} -m pip install --force-reinstall torch=={facts['version'].partition('+')[0]}"
    if driver and not facts["cuda"]:
        return [Finding("torch", "error", f"{version}: a build without CUDA on a machine with GPUs", install)]
    if driver and not facts["gpus"]:
        why = facts["warning"] or "CUDA_VISIBLE_DEVICES hides them, or the driver is older than this CUDA"
        gpus = Finding("gpus", "error", f"PyTorch sees none: {why}", "nvidia-smi; echo $CUDA_VISIBLE_DEVICES")
    elif facts["gpus"]:
        names = [f"{facts['gpus'].count(name)} x {name}" for name in dict.fromkeys(facts["gpus"])]
        gpus = Finding("gpus", "ok", ", ".join(names))
    elif in_job:
        gpus = Finding("gpus", "error", "none in this job; expected one", "sinfo -o '%P %G'")
    else:
        text = "none here: training runs on the CPU; on a login node that is as it should be"
        gpus = Finding("gpus", "warning", text, "python -m tools doctor --job")
    if facts["gpus"] and not facts["nccl"]:
        nccl = Finding("nccl", "error", "not in this PyTorch; several GPUs cannot work together", install)
    else:
        nccl = Finding("nccl", "ok", facts["nccl"] or "not needed without GPUs: gloo connects the ranks")
    return [Finding("torch", "ok", version), gpus, nccl]


def compiler(facts: Facts, environment: Environment) -> Finding:
    """c++ for DeepSpeed's operators; nvcc, too, where there is a GPU."""
    if "problem" in facts:
        return Finding("compiler", "warning", f"not looked at: {facts['problem']}", "make install")
    name = environment.get("CXX", "c++")
    nvcc = facts["cuda_home"] or shutil.which("nvcc", path=environment.get("PATH"))
    if not facts["hindrance"]:
        return Finding("compiler", "ok", f"{shutil.which(name, path=environment.get('PATH'))}, nvcc: {nvcc or 'none'}")
    status = "error" if facts["missing"] else "warning"
    return Finding("compiler", status, facts["hindrance"], "module load gcc cuda; or: apt-get install g++")


def operators(facts: Facts) -> Finding:
    if "problem" in facts:
        return Finding("operators", "error", facts["problem"], "make install")
    if facts["missing"]:
        text = f"not compiled for {facts['for']}: {', '.join(facts['missing'])}; a first job would take minutes longer"
        return Finding("operators", "warning", text, "python -m workshop.operators")
    return Finding("operators", "ok", f"compiled for {facts['for']}")


def cache(facts: Facts, names: Sequence[str]) -> Finding:
    """Model and data in the hub's cache."""
    fetch = " ".join(["python -m workshop.prefetch", *names])
    if "problem" in facts:
        return Finding("cache", "error", facts["problem"], f"{fetch} --sizes")
    missing = [f"{one['kind']} {one['name']}" for one in facts if not one["complete"]]
    if missing:
        text = f"not in the cache, or not all of it: {', '.join(missing)}"
        return Finding("cache", "error", text, f"{fetch}  (or without network: source tiny.env)")
    have = ", ".join(f"{one['kind']} {one['name']}" for one in facts)
    return Finding("cache", "ok", have or "nothing is needed from the hub")


def wandb(facts: Facts, environment: Environment) -> Finding:
    """A problem only for who reports there; the local files have every figure."""
    wanted = "wandb" in environment.get("REPORT_TO", "")
    online = wanted and environment.get("WANDB_MODE") == "online"
    if "problem" in facts:
        return Finding("wandb", "warning", facts["problem"], "make install")
    if online and facts["hindrance"]:
        fix = "wandb login; or: export WANDB_MODE=offline"
        return Finding("wandb", "warning", f"{facts['hindrance']}; runs stay offline", fix)
    return Finding("wandb", "ok", "online" if online else "offline" if wanted else "not asked for (REPORT_TO)")
