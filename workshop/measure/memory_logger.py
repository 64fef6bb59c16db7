"""Logs the proportional set size (PSS) of a process and its children, in psrecord's format, until the process ends.

psrecord --include-children adds up resident set sizes and so counts a page shared by eight processes eight times; PSS
gives each of them an eighth. Reading it walks every mapping of a process, hence the longer interval.

    python -m workshop.measure.memory_logger PID FILE
"""

import sys
import time
from pathlib import Path

import psutil

INTERVAL_S = 5.0


def memory_mib(process: psutil.Process) -> tuple[float, float]:
    """Return PSS and virtual size of the process and its descendants, MiB; processes that end meanwhile count zero."""
    pss = virtual = 0
    for member in [process, *process.children(recursive=True)]:
        try:
            pss += member.memory_full_info().pss
            virtual += member.memory_info().vms
        except psutil.Error:
            continue
    return pss / 2**20, virtual / 2**20


def main() -> None:
    pid, path = int(sys.argv[1]), Path(sys.argv[2])
    start_s = time.monotonic()
    try:
        process = psutil.Process(pid)
        with path.open("a") as log:
            log.write("# Elapsed time   CPU (%)     Real (MB)   Virtual (MB)\n")
            while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                pss, virtual = memory_mib(process)
                log.write(f"{time.monotonic() - start_s:12.3f} {0:12.3f} {pss:12.3f} {virtual:12.3f}\n")
                log.flush()
                time.sleep(INTERVAL_S)
    except psutil.NoSuchProcess:
        return


if __name__ == "__main__":
    main()
