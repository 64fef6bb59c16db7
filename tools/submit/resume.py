"""Go on with a run that ended before its end, in its own folder: the launcher, its arguments and settings once more."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.errors import InputError
from tools.logs.runs import read_run


@dataclass(frozen=True)
class Again:
    """Attributes: command: launcher and arguments; options: of sbatch; environment: SHARDLAB names its repository."""

    command: list[str]
    options: list[str]
    environment: dict[str, str]


def read(folder: Path, logs: Path, shell: Mapping[str, str]) -> Again:
    """What starts the run in `folder` again; its name alone is looked for in `logs`. Its settings win over the shell's.

    Raises:
        InputError: it is no run folder, the run is completed or still running, or its launcher is gone.
    """
    found = [path for path in (folder, *logs.glob(f"*/{folder.name}")) if (path / "run.json").is_file()]
    if not found:
        raise InputError(f"--resume {folder}: no run.json there; expected a run folder such as logs/fsdp/<run>")
    folder = found[0].resolve()
    run = read_run(folder)
    if run.state in ("completed", "running", "unreadable"):
        raise InputError(
            f"--resume {folder.name}: {run.problem or run.state}; expected a run that ended before its end"
        )
    try:
        started = json.loads((folder / ".resume.json").read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"--resume {folder.name}: {error}; expected a run of this version of the launchers") from None
    launcher = started["command"][0]
    if not Path(launcher).is_file():
        raise InputError(f"--resume {folder.name}: its launcher {launcher} is no longer there")
    nodes, gpus = (str(run.record.get(key) or 1) for key in ("nodes", "gpus_per_node"))
    shape = {"GPUS_PER_NODE": gpus} | ({"EMULATED_NODES": nodes} if nodes != "1" else {})
    mark = {"SUBMISSION": run.record["submission"]} if run.record.get("submission") else {}
    place = {"RESUME_RUN": str(folder), "SHARDLAB": str(Path(launcher).parents[1])}
    return Again(
        started["command"],
        [f"--nodes={nodes}", f"--gpus-per-node={gpus}"],
        dict(shell) | started["settings"] | shape | mark | place,
    )
