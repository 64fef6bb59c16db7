"""A real SLURM on this machine for the length of a test: no munge, no systemd, nothing written to /etc.

    with ThrowawaySlurm(tmp_path, nodes=2, gpus_per_node=2) as cluster:
        job = cluster.submit("baseline/baseline.slurm", cwd=repo, options=["--nodes=2"])
        assert cluster.wait(job) == "COMPLETED", cluster.job_output(job)

Each node has its own hostname, /etc/hosts, process ids and shared memory, so jobs see a cluster. The kernel permits
that to root with CAP_SYS_ADMIN.
"""

import contextlib
import os
import random
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from tests.leftovers import commands_with, own_namespaces_allowed

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "srun", "scontrol", "sinfo", "squeue", "scancel")
# What SLURM believes each node has.
CPUS, MEMORY_MIB = 16, 512 * 1024
# States in which a job can still change; COMPLETING: the tasks have ended but the node is not yet free.
UNFINISHED = {"PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "COMPLETING", "STOPPED", "REQUEUED"}
CGROUP_V1 = Path("/sys/fs/cgroup")
PORTS_PER_CLUSTER = 40  # slurmctld and up to 39 nodes
# Below the kernel's ephemeral ports, and below those that jobs derive for their rendezvous.
PORTS = range(12000, 20000, PORTS_PER_CLUSTER)
SEARCH_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"])


class SlurmError(RuntimeError):
    """A SLURM command failed or the cluster did not start; the message holds what the programs said."""


def missing() -> list[str]:
    """What a throw-away cluster needs and this machine does not have."""
    programs = [name for name in PROGRAMS if shutil.which(name, path=SEARCH_PATH) is None]
    return programs if own_namespaces_allowed() else [*programs, "CAP_SYS_ADMIN"]


def memory_cgroup_writable() -> bool:
    """True if SLURM can limit a job's memory here: a memory hierarchy of cgroup v1 in which a limit can be set."""
    probe = CGROUP_V1 / "memory" / f"slurm_probe_{os.getpid()}"
    try:
        probe.mkdir()
        (probe / "memory.limit_in_bytes").write_text(str(64 << 20))
        return True
    except OSError:
        return False
    finally:
        if probe.exists():
            probe.rmdir()


def _claim_ports() -> tuple[int, socket.socket]:
    """A free block of ports, and the lock that keeps other test clusters off it until the lock is closed."""
    for first in random.sample(PORTS, len(PORTS)):
        lock = socket.socket(socket.AF_UNIX)
        try:
            lock.bind(f"\0throwaway-slurm-{first}")  # abstract: vanishes with the process, however that ends
            for port in range(first, first + PORTS_PER_CLUSTER):
                with socket.socket() as probe:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind(("", port))
            return first, lock
        except OSError:
            lock.close()
    raise SlurmError(f"no free block of {PORTS_PER_CLUSTER} ports between {PORTS.start} and {PORTS.stop}")


class ThrowawaySlurm:
    """One small cluster; `with` starts and stops it. All its files lie in `base_dir`.

    GPUs exist in name only. A job that asks for no memory gets a quarter of the node's; where this machine permits it
    (`memory_enforced`), one that takes more than it has ends as OUT_OF_MEMORY.
    """

    def __init__(self, base_dir: Path, nodes: int = 2, gpus_per_node: int = 1) -> None:
        self.base_dir = base_dir.resolve()
        self.gpus_per_node = gpus_per_node
        self.memory_enforced = memory_cgroup_writable()
        self.nodes = [f"node{i}" for i in range(1, nodes + 1)]
        self._daemons: list[subprocess.Popen[bytes]] = []

    @property
    def env(self) -> dict[str, str]:
        """The environment for SLURM's commands: this cluster, and nothing of a SLURM job the tests may run in."""
        outer = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "SBATCH_", "SRUN_", "SALLOC_"))}
        return outer | {"PATH": SEARCH_PATH, "SLURM_CONF": str(self.base_dir / "slurm.conf")}

    def __enter__(self) -> Self:
        """Start the daemons; return when every node is idle, or raise SlurmError with the end of the logs."""
        port, self._ports_lock = _claim_ports()
        self._write_configuration(port)
        self._spawn("slurmctld", ["slurmctld", "-D"])
        for node in self.nodes:
            self._spawn(node, self._node_command(node))
        if not self._until(lambda: len(self._idle_nodes()) == len(self.nodes), timeout_s=60):
            logs = "\n".join(f"{f.name}: {f.read_text()[-1500:]}" for f in sorted(self.base_dir.glob("log/*")))
            self.__exit__()
            raise SlurmError(f"the cluster did not start\n{logs}")
        return self

    def __exit__(self, *_: object) -> None:
        """End every process of this cluster, jobs' too."""
        for daemon in self._daemons:
            daemon.kill()  # and with a node's first process, the kernel kills all others of the node
            daemon.wait()
        self._until(lambda: not self.processes(), timeout_s=30)
        self._remove_cgroups()
        self._ports_lock.close()

    def processes(self) -> list[int]:
        """Process ids of everything that runs for this cluster: daemons, job steps and the jobs' own processes."""
        return [*commands_with("SLURM_CONF", self.base_dir / "slurm.conf")]

    @property
    def shm(self) -> Path:
        """Each node's /dev/shm is a folder of its name in here."""
        return self.base_dir / "shm"

    def submit(self, script: str | Path, *args: str, options: Sequence[str] = (), **where: Any) -> int:
        """`sbatch OPTIONS script ARGS`, with `cwd` and `env` as for `run`; returns the job id."""
        out = self.run("sbatch", "--parsable", *options, str(script), *args, **where)
        return int(out.strip().split(";")[0])

    def show(self, job_id: int | str) -> dict[str, str]:
        """What `scontrol show job` says of a job, or of an array's task ("7_2"): JobState, Reason, StdOut, ..."""
        text = self.run("scontrol", "show", "job", str(job_id))
        return dict(re.findall(r"([\w:/]+)=(\S*)", text))

    def wait(self, job_id: int | str, timeout_s: float = 120) -> str:
        """The job's final state; raises TimeoutError with its state, reason and output."""
        if not self._until(lambda: self.show(job_id)["JobState"] not in UNFINISHED, timeout_s):
            output = self.job_output(job_id)[-3000:]
            raise TimeoutError(f"job {job_id} after {timeout_s} s: {self.show(job_id)}; its output:\n{output}")
        return self.show(job_id)["JobState"]

    def power_off(self, node: str) -> None:
        """All processes of the node are gone at once; SLURM is told, which else looks for SlurmdTimeout first."""
        daemon = self._daemons[1 + self.nodes.index(node)]
        daemon.kill()
        daemon.wait()
        self.run("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=power")

    def cancel(self, job_id: int, *options: str) -> None:
        """`scancel OPTIONS job`; with `--signal=USR1 --batch` it only sends that signal."""
        self.run("scancel", *options, str(job_id))

    def job_output(self, job_id: int | str) -> str:
        """What the job has printed so far."""
        file = Path(self.show(job_id)["StdOut"])
        return file.read_text(errors="replace") if file.is_file() else ""

    def run(self, *command: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
        """What a command of SLURM prints, run with `env` on top of the tests' environment; raises SlurmError."""
        env, streams = self.env | dict(env or {}), {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
        done = subprocess.run(command, cwd=cwd, env=env, timeout=60, **streams)
        if done.returncode != 0:
            raise SlurmError(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr.strip()}")
        return done.stdout

    @staticmethod
    def _until(condition: Callable[[], bool], timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.5)  # a command of SLURM each time
        return True

    def _idle_nodes(self) -> set[str]:
        try:
            return set(self.run("sinfo", "--noheader", "--Node", "--states=idle", "--format=%N").split())
        except SlurmError:  # slurmctld does not answer yet
            return set()

    def _spawn(self, name: str, command: list[str]) -> None:
        """Start a daemon that the kernel kills when this process dies, and that does not see the terminal's Ctrl-C."""
        with (self.base_dir / "log" / f"{name}.out").open("wb") as out:
            streams = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": subprocess.STDOUT}
            command = ["setpriv", "--pdeathsig", "KILL", *command]
            self._daemons.append(subprocess.Popen(command, env=self.env, start_new_session=True, **streams))

    def _node_command(self, node: str) -> list[str]:
        # The shell is process 1 of the node: it reaps what jobs leave behind; when it dies the kernel kills the node.
        mounts = {"hosts": "/etc/hosts", f"shm/{node}": "/dev/shm"}
        init = "".join(f"mount --bind '{self.base_dir}/{ours}' {theirs}; " for ours, theirs in mounts.items())
        init += f"hostname {node}; slurmd -D -N {node} & wait"
        namespaces = ["--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        return ["unshare", *namespaces, "bash", "-c", init]

    def _write_configuration(self, port: int) -> None:
        base = self.base_dir
        for folder in ("state", "log", "dev", *(f"{of}/{node}" for of in ("spool", "shm") for node in self.nodes)):
            (base / folder).mkdir(parents=True, exist_ok=True)
        lines = [f"127.0.1.{i} {node}" for i, node in enumerate(self.nodes, 1)]
        (base / "hosts").write_text("\n".join([Path("/etc/hosts").read_text(), *lines, ""]))

        # Without this line slurmd looks for the plugin itself, and dies where cgroups are v2, read-only or absent.
        cgroup = ["CgroupPlugin=cgroup/v1"]
        if self.memory_enforced:
            cgroup += [f"CgroupMountpoint={CGROUP_V1}", "ConstrainRAMSpace=yes"]
        (base / "cgroup.conf").write_text("\n".join([*cgroup, ""]))

        # slurmd only wants a character device; any will do for a GPU that exists in name only.
        for gpu in range(self.gpus_per_node):
            (base / f"dev/nvidia{gpu}").symlink_to("/dev/null")
        (base / "gres.conf").write_text(f"Name=gpu File={base}/dev/nvidia[0-{self.gpus_per_node - 1}]\n")

        conf = f"""
ClusterName=throwaway
SlurmctldHost={socket.gethostname().split(".")[0]}(127.0.0.1)
SlurmctldPort={port}
# Job ids of two clusters differ: ports derived from them do not clash, nor do the cgroups of nodes of the same name.
FirstJobId={PORTS.index(port) * 100 + 1}
SlurmUser=root
AuthType=auth/none
CredType=cred/none
# A requeued job waits for its credential to expire (default 120 s).
AuthInfo=cred_expire=5
StateSaveLocation={base}/state
SlurmdSpoolDir={base}/spool/%n
SlurmctldPidFile={base}/slurmctld.pid
SlurmdPidFile={base}/slurmd.%n.pid
SlurmctldLogFile={base}/log/slurmctld.log
SlurmdLogFile={base}/log/%n.log
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/{"cgroup" if self.memory_enforced else "none"}
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerNode={MEMORY_MIB // 4}
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=1,bf_interval=1
GresTypes=gpu
# A job of the partition `urgent` that finds no room takes it from one of `main`.
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
# Believe CPUs and RealMemory below instead of the hardware.
SlurmdParameters=config_overrides
ReturnToService=2
UnkillableStepTimeout=10
# Keep ended jobs for scontrol as long as the cluster lives (default 300 s).
MinJobAge=86400
"""
        for i, node in enumerate(self.nodes, 1):
            conf += (
                f"NodeName={node} NodeHostname={node} NodeAddr=127.0.1.{i} Port={port + i} RealMemory={MEMORY_MIB}"
                f" CPUs={CPUS} Sockets=1 CoresPerSocket={CPUS} ThreadsPerCore=1 Gres=gpu:{self.gpus_per_node}\n"
            )
        conf += "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE DefaultTime=10 State=UP\n"
        conf += "PartitionName=urgent Nodes=ALL PriorityTier=10 MaxTime=INFINITE DefaultTime=10 State=UP\n"
        (base / "slurm.conf").write_text(conf)

    def _remove_cgroups(self) -> None:
        """slurmd leaves its cgroups behind; rmdir removes only those that nobody uses."""
        if not self.memory_enforced:
            return
        for node in self.nodes:
            for top in CGROUP_V1.glob(f"*/slurm_{node}"):
                for folder in sorted([top, *top.rglob("*/")], reverse=True):  # deepest first
                    with contextlib.suppress(OSError):
                        folder.rmdir()
