"""Reading what others left in a folder: plain files of a bounded size, never a link, a pipe or a device.

A link in somebody's run folder could show a file of the reader's own, and a pipe would be waited for without end.
"""

import errno
import os
import stat
from pathlib import Path

from run_folder.errors import LogError

LARGEST_BYTES = 512 << 20  # of a log that is read as a whole


def open_plain(path: Path | str) -> int:
    """A descriptor for reading. Raises OSError for what is no plain file."""
    return _opened(path)[0]


def _opened(path: Path | str) -> tuple[int, int]:
    """The same, and the file's size in bytes."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "a symbolic link", str(path)) from None
        raise
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "no plain file", str(path))
    return descriptor, status.st_size


def read_plain(path: Path | str) -> bytes:
    """All bytes. Raises LogError for what is no plain file, cannot be read, or has more than LARGEST_BYTES."""
    try:
        descriptor, size = _opened(path)
        try:
            if size > LARGEST_BYTES:
                raise OSError(errno.EFBIG, f"more than {LARGEST_BYTES >> 20} MiB", str(path))
            data = os.read(descriptor, size + 1)
            if len(data) == size:  # to its end, as nearly always
                return data
            return data + b"".join(iter(lambda: os.read(descriptor, size + 1), b""))
        finally:
            os.close(descriptor)
    except OSError as error:
        raise LogError(Path(path), None, error.strerror or str(error), "a file that can be read") from error
