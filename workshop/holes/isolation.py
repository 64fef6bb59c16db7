"""A process that sees Python and one folder, can change neither, and has a network of its own that leads nowhere.

It is made of Linux's namespaces, which need no root where a site lets users have them.
"""

import ctypes
import fcntl
import os
import signal
import socket
import struct
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

_LIBC = ctypes.CDLL(None, use_errno=True)
# Numbers of linux/sched.h, mount.h, prctl.h, capability.h, sockios.h and if.h.
NEW_NAMESPACES = 0x10000000 | 0x40000000 | 0x20000 | 0x20000000  # of users, network, mounts and processes
READ_ONLY, REMOUNT, BIND, RECURSIVE, NO_SUID_NO_DEVICES_NO_EXEC = 0x1, 0x20, 0x1000, 0x4000, 0xE
DEATH_SIGNAL, NO_NEW_PRIVILEGES, CAPABILITY_VERSION_3 = 1, 38, 0x20080522
SET_INTERFACE_FLAGS, INTERFACE_UP = 0x8914, 0x1


def _call(function: str, *arguments: int | bytes | ctypes.c_ulong | None) -> None:
    """Calls a function of the C library; raises OSError."""
    if getattr(_LIBC, function)(*arguments):
        raise OSError(ctypes.get_errno(), function)


def _mount(source: bytes, target: Path, flags: int, kind: bytes = b"") -> None:
    _call("mount", source, bytes(target), kind, ctypes.c_ulong(flags), None)


def isolate(folder: Path, root: Path) -> None:
    """Isolates this process and its children, which all end with the first of them.

    Args:
        folder: what it may read beside Python, under the same path as outside.
        root: an empty folder, which becomes the process's `/`; what is written there is in memory.

    Raises:
        OSError: this machine does not allow it. The process may be half isolated then.
    """
    user, group = os.getuid(), os.getgid()
    _call("unshare", NEW_NAMESPACES)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SET_INTERFACE_FLAGS, struct.pack("16sh14x", b"lo", INTERFACE_UP))
    _mount(b"tmpfs", root, 0, b"tmpfs")
    libraries = (sys.base_prefix, sys.prefix, Path(torch.__file__).parents[1], "/usr", "/lib", "/lib64")
    for path in map(Path, (*libraries, folder)):
        inside = root / path.relative_to("/")
        if path.exists() and not inside.exists():
            inside.mkdir(parents=True)
            _mount(bytes(path), inside, BIND | RECURSIVE)
            locked = os.statvfs(inside).f_flag & NO_SUID_NO_DEVICES_NO_EXEC
            _mount(b"", inside, REMOUNT | BIND | READ_ONLY | locked)
    os.chroot(root)
    os.chdir("/")
    # Without capabilities nobody undoes a mount or the loopback; a new program does not get them back.
    _call("prctl", NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    _call("capset", struct.pack("Ii", CAPABILITY_VERSION_3, 0), bytes(24))


def end_with_parent() -> None:
    """This process is killed when the one that started it ends, however that ends."""
    _call("prctl", DEATH_SIGNAL, signal.SIGKILL)


def isolation_allowed() -> bool:
    """True if a process can be isolated here."""
    with TemporaryDirectory() as root:
        child = os.fork()
        if not child:
            with suppress(OSError):
                isolate(Path(root), Path(root))
                os._exit(0)
            os._exit(1)
        return os.waitpid(child, 0)[1] == 0
