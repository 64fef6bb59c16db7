"""Read others' files: plain files of a bounded size, never a link, a pipe or a device.

A link in somebody's run folder could show one of the reader's own files, and a pipe would block for ever.
"""

import errno
import os
import stat
from pathlib import Path

from workshop.record.errors import LogError

LARGEST_BYTES = 512 << 20  # of a log that is read as a whole


def open_plain(path: Path | str) -> int:
    """Return a descriptor for reading. Raises OSError for anything but a plain file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "no plain file", str(path))
    return descriptor


def read_plain(path: Path | str) -> bytes:
    """Return all bytes. Raises LogError for no plain file, an unreadable one, or more than LARGEST_BYTES."""
    try:
        with os.fdopen(open_plain(path), "rb", buffering=0) as file:
            if os.fstat(file.fileno()).st_size > LARGEST_BYTES:
                raise OSError(errno.EFBIG, f"more than {LARGEST_BYTES >> 20} MiB", str(path))
            return file.read()
    except OSError as error:
        raise LogError(path, None, error.strerror or str(error), "a file that can be read") from error
