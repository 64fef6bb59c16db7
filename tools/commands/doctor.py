"""Say whether this site is ready: environment, GPUs, SLURM, caches, space, network; a fix for what is not."""

import argparse
import json
import os
import socket
from dataclasses import asdict
from pathlib import Path

from run_folder.env_file import sourced
from run_folder.plural import counted
from tools.commands.options import at_least_0
from tools.doctor import on_node
from tools.doctor.checks import Place, findings, probe
from tools.logs.runs import default_logs
from tools.tables.repository import ROOT


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "names",
        nargs="*",
        metavar="EXERCISE_OR_MODEL",
        help="whose models and data the cache must have, as for `prefetch` (default: MODEL_NAME and DATASET)",
    )
    parser.add_argument("--job", action="store_true", help="look on a compute node, through sbatch")
    parser.add_argument("--wait", type=at_least_0, default=300, metavar="S", help="with --job: how long (default: 300)")
    parser.add_argument("--space", type=at_least_0, default=20, metavar="GIB", help="room for runs (default: 20)")
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument("--logs", type=Path, default=None, help="folder of the runs (default: $LOG_DIR, else logs/)")


def run(arguments: argparse.Namespace) -> int:
    variables = sourced(ROOT / "cluster.env", os.environ)
    logs = (arguments.logs or default_logs()).resolve()
    if arguments.job:
        same = [*arguments.names, "--space", str(arguments.space), "--logs", str(logs)]
        found = on_node.findings(variables, logs, same, arguments.wait)
    else:
        facts = probe(variables, arguments.names)
        found = [*findings(Place(variables, arguments.names, logs, arguments.space, facts))]
    errors = [one for one in found if one.status == "error"]
    if arguments.json:
        print(json.dumps({"host": socket.gethostname(), "findings": [asdict(one) for one in found]}, indent=2))
    else:
        print("\n".join(map(str, found)))
        warnings = sum(one.status == "warning" for one in found)
        print(f"{counted(len(found), 'check')}: {counted(len(errors), 'error')}, {counted(warnings, 'warning')}")
    return 1 if errors else 0
