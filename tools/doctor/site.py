"""Checks of the site: SLURM, space and quota, clock, network."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from evidence.counted import counted
from tools.doctor.finding import Finding, ask
from tools.logs.folder import LOST_AFTER_S
from tools.tables.repository import ROOT

CLOCKS_DIFFER_S = 60
GIB = 2**30
Environment = Mapping[str, str]


def findings(environment: Environment, logs: Path, space_gib: float) -> list[Finding]:
    """All of this module. `environment`: with cluster.env."""
    return [
        *slurm(environment),
        space(logs, space_gib),
        quota(environment),
        clock(logs, environment),
        network(environment, [name for _, name in socket.if_nameindex()]),
    ]


def slurm(environment: Environment) -> list[Finding]:
    """Partitions with limits and GPUs, whether sbatch takes the launchers, accounting; in a job, what it was given."""
    if job := environment.get("SLURM_JOB_ID"):
        gpus = environment.get("SLURM_GPUS_ON_NODE", "0")
        partition = environment.get("SLURM_JOB_PARTITION")
        text = f"job {job} on {socket.gethostname()}, partition {partition}, {counted(int(gpus), 'GPU')}"
        return [Finding("slurm", "ok", text)]
    if shutil.which("sbatch", path=environment.get("PATH")) is None:
        text = "no sbatch on PATH: runs start on this machine, one after the other"
        return [Finding("slurm", "warning", text, "module load slurm  (or: python -m tools submit --local)")]
    answer = ask(["sinfo", "--noheader", "--format=%P|%a|%l|%D|%G"], environment)
    if answer.code or not answer.output.strip():
        return [Finding("slurm", "error", answer.complaint or "no partition", "scontrol ping")]
    return [partitions(answer.output, environment), launchers(environment), accounting(environment)]


def partitions(listed: str, environment: Environment) -> Finding:
    """`listed`: sinfo's name|availability|time limit|nodes|GPUs, several lines for nodes that differ."""
    rows = [line.split("|") for line in listed.split("\n") if line.count("|") == 4]
    text = ", ".join(f"{name} ({up}, limit {limit}, nodes: {nodes}, {gpus})" for name, up, limit, nodes, gpus in rows)
    wanted = environment.get("SBATCH_PARTITION")
    mine = [row for row in rows if (row[0].rstrip("*") in wanted.split(",") if wanted else row[0].endswith("*"))]
    fix = "set SBATCH_PARTITION in cluster.env (cp cluster.env.example cluster.env)"
    if not mine:
        found = f"SBATCH_PARTITION={wanted} is not one of them" if wanted else "none is the default"
        return Finding("slurm", "error", f"{found}: {text}", fix)
    if all(row[1] != "up" for row in mine):
        return Finding("slurm", "error", f"{mine[0][0]} is {mine[0][1]}: {text}", fix)
    if not any("gpu" in row[4] for row in mine):
        return Finding("slurm", "warning", f"{mine[0][0]} has no GPUs: {text}", fix)
    return Finding("slurm", "ok", text)


def launchers(environment: Environment) -> Finding:
    """sbatch looks at each launcher's limits, account and GPUs without queueing it."""
    refused = {}
    paths = sorted(ROOT.glob("*/*.slurm"))
    for path in paths:
        answer = ask(["sbatch", "--test-only", path.name], environment, cwd=path.parent)
        if answer.code:
            refused[path.relative_to(ROOT)] = answer.complaint
    if not refused:
        return Finding("launchers", "ok", f"sbatch would take all {len(paths)}")
    reasons = ", ".join(f"{reason} ({', '.join(map(str, whose(refused, reason)))})" for reason in set(refused.values()))
    status = "error" if len(refused) == len(paths) else "warning"
    text = f"sbatch refuses {len(refused)} of {len(paths)}: {reasons}"
    return Finding("launchers", status, text, f"edit cluster.env, then: sbatch --test-only {next(iter(refused))}")


def whose(refused: Mapping[Path, str], reason: str) -> list[Path]:
    return [path for path, said in refused.items() if said == reason]


def accounting(environment: Environment) -> Finding:
    answer = ask(["sacct", "--noheader", "--allocations"], environment)
    if answer.code:
        text = f"{answer.complaint}; what SLURM knew of a job is gone soon after its end, run.json stays"
        return Finding("accounting", "warning", text, "python -m tools runs")
    return Finding("accounting", "ok", "sacct answers")


def space(logs: Path, least_gib: float) -> Finding:
    """Where the runs are written: that one may, and has room."""
    folder = existing(logs)
    if not os.access(folder, os.W_OK):
        return Finding("space", "error", f"{folder}: cannot write there", "export LOG_DIR=/a/folder/of/yours")
    free_gib = shutil.disk_usage(folder).free / GIB
    text = f"{free_gib:,.1f} GiB free in {folder}"
    if free_gib < least_gib:
        text += f"; expected {least_gib:g} GiB (README.md has what each exercise saves)"
        return Finding("space", "error", text, "make clean-runs  (or LOG_DIR elsewhere, or SAVE=no)")
    return Finding("space", "ok", text)


def quota(environment: Environment) -> Finding:
    """The program `quota` ends with 1 for who is over it."""
    if shutil.which("quota", path=environment.get("PATH")) is None:
        return Finding("quota", "ok", "no `quota` program here; sites with another one have it in their guide")
    answer = ask(["quota", "-w"], environment)
    lines = answer.output.strip().splitlines()
    if answer.code:
        return Finding("quota", "error", lines[-1] if lines else answer.complaint, "du -sh ~/* | sort -h | tail")
    return Finding("quota", "ok", lines[-1] if lines else "none")


def clock(logs: Path, environment: Environment) -> Finding:
    """This machine's against the file system's, which stamps the logs, and whether somebody keeps it right."""
    try:
        with tempfile.NamedTemporaryFile(dir=existing(logs), prefix=".doctor-") as file:
            ahead_s = Path(file.name).stat().st_mtime - time.time()
    except OSError as error:
        return Finding("clock", "warning", f"not compared: {error}", "export LOG_DIR=/a/folder/of/yours")
    if abs(ahead_s) > CLOCKS_DIFFER_S:
        text = f"the file system's is {ahead_s:+.0f} s from this machine's; from {LOST_AFTER_S} s runs count as lost"
        return Finding("clock", "warning", text, "timedatectl status  (on both machines)")
    answer = ask(["timedatectl", "show", "--property=NTPSynchronized", "--value"], environment)
    if answer.code == 0 and answer.output.strip() == "no":
        return Finding("clock", "warning", "nothing keeps this machine's clock right", "timedatectl set-ntp true")
    return Finding("clock", "ok", f"{abs(ahead_s):.1f} s from the file system's")


def network(environment: Environment, interfaces: list[str]) -> Finding:
    """NCCL takes beginnings of names, `^` those not to use, `=` whole names; gloo takes whole names."""
    fix = f"set it in cluster.env to one of: {' '.join(interfaces)}  (ip -br address)"
    for variable in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
        value = environment.get(variable, "")
        names = value.lstrip("^=").split(",")
        exact = variable.startswith("GLOO") or value.startswith(("=", "^="))
        hit = [one for one in interfaces if one in names or (not exact and one.startswith(tuple(names)))]
        left = [one for one in interfaces if one not in (*hit, "lo")] if value.startswith("^") else hit
        if value and not left:
            return Finding("network", "error", f"{variable}={value}: no such interface here", fix)
    chosen = environment.get("NCCL_SOCKET_IFNAME")
    text = f"NCCL_SOCKET_IFNAME={chosen}" if chosen else "NCCL_SOCKET_IFNAME not set: NCCL chooses"
    return Finding("network", "ok", f"{text} of {' '.join(interfaces)}")


def existing(folder: Path) -> Path:
    folder = folder.resolve()
    return next(path for path in (folder, *folder.parents) if path.is_dir())
