"""Reading what others left in a folder: plain files of a bounded size, never a link, a pipe or a device.

A link in somebody's run folder could show a file of the reader's own, and a pipe would be waited for without end.
"""

import errno
import os
import stat
from pathlib import Path

from workshop.run_folder.errors import LogError

LARGEST_BYTES = 512 << 20  # of a log that is read as a whole


def open_plain(path: Path | str) -> int:
    """A descriptor for reading. Raises OSError for what is no plain file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "no plain file", str(path))
    return descriptor


def read_plain(path: Path | str) -> bytes:
    """All bytes. Raises LogError for what is no plain file, cannot be read, or has more than LARGEST_BYTES."""
    try:
        with os.fdopen(open_plain(path), "rb", buffering=0) as file:
            if os.fstat(file.fileno()).st_size > LARGEST_BYTES:
                raise OSError(errno.EFBIG, f"more than {LARGEST_BYTES >> 20} MiB", str(path))
            return file.read()
    except OSError as error:
        raise LogError(path, None, error.strerror or str(error), "a file that can be read") from error
