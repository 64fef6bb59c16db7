"""The file in a logs folder that remembers figures of logs between two commands.

It may be deleted at any time, which costs time and nothing else. A file that is damaged, or was written by other code
than this, counts as none.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
import zlib
from functools import cache
from pathlib import Path

FILE_NAME = ".figures.json"
# Run folder -> file -> [size, modification time (ns), {kind: what was found}].
Known = dict[str, dict[str, list]]


def read(logs: Path) -> Known:
    """What `write` left in the folder, or {}."""
    try:
        head, _, content = (logs / FILE_NAME).read_bytes().partition(b"\n")
    except OSError:
        return {}
    return json.loads(content) if head == _head(content) else {}


def write(logs: Path, known: Known) -> None:
    """Replace the file as a whole: of two commands at once the later one's counts, and none reads half a file.

    A folder that cannot be written to stays as it is.
    """
    content = json.dumps(known).encode()
    temporary = logs / f"{FILE_NAME}.{secrets.token_hex(4)}"
    with contextlib.suppress(OSError):
        temporary.write_bytes(_head(content) + b"\n" + content)
        temporary.replace(logs / FILE_NAME)
    with contextlib.suppress(OSError):
        temporary.unlink(missing_ok=True)


def _head(content: bytes) -> bytes:
    return b"%s %08x" % (code_version(), zlib.crc32(content))


@cache
def code_version() -> bytes:
    """A digest of the tools' code: whoever changes a parser need not remember that figures are remembered."""
    code = hashlib.blake2b(digest_size=8)
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        code.update(path.read_bytes())
    return code.hexdigest().encode()
