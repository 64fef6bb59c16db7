"""RUN_DIR/.owner: locked (flock) by the job that writes into the run folder, until its last process is dead.

The job's commands have this empty file as their standard input, and launchers pass it on to their ranks. So ranks keep
the lock when their supervisor is killed. Processes on other nodes do not have it: SLURM ends a job on all its nodes
before it queues it again.
"""

import fcntl
import os
import time
from pathlib import Path

from workshop.job.processes import KILL_AFTER_S
from workshop.record.errors import InputError

# Ranks outlive a killed supervisor by at most KILL_AFTER_S, and take a moment to die.
WAIT_S = 2 * KILL_AFTER_S


def lock(run_dir: Path) -> int:
    """Return the locked file's descriptor. Raises InputError if another job keeps the lock for WAIT_S."""
    descriptor = os.open(run_dir / ".owner", os.O_RDWR | os.O_CREAT, 0o666)
    end_s = time.monotonic() + WAIT_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError:
            if time.monotonic() > end_s:
                raise InputError(f"{run_dir}: its job still runs; expected a run that has ended") from None
            time.sleep(0.2)
        except OSError as error:
            print(f"warning: {run_dir}: {error.strerror} (flock): two jobs in it would not see each other", flush=True)
            return descriptor
