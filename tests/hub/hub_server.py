"""A stand-in for the Hugging Face hub on the loopback: the requests that huggingface_hub and datasets make, no more.

What it answers, as the real hub does (https://huggingface.co/docs/hub/api and the headers of `resolve`):

    GET  /api/KIND/ORG/NAME[/revision/REV]             what the repository is, and its commit (`sha`)
    GET  /api/KIND/ORG/NAME/tree/REV[/FOLDER]          its files with sizes
    HEAD, GET /[datasets/]ORG/NAME/resolve/REV/PATH    the file itself

KIND is models or datasets. Repositories are folders ROOT/KIND/ORG/NAME. The real hub keeps large files elsewhere (LFS,
Xet) and redirects to them.
"""

import hashlib
import json
import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

GATED = "gated/bloom"  # wants a token, which nobody here has
REQUEST = re.compile(
    r"/(?:api/(?P<kind>models|datasets)/|(?P<dataset>datasets/)?)(?P<name>[^/]+/[^/]+)"
    r"(?:/(?P<verb>revision|tree|resolve)/(?P<revision>[^/]+)(?:/(?P<path>.+))?)?"
)


class HubServer(ThreadingHTTPServer):
    """Serves the repositories below `root`."""

    daemon_threads = True

    def __init__(self, root: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.root, self.url = root, f"http://127.0.0.1:{self.server_port}"


def hashed(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


class Handler(BaseHTTPRequestHandler):
    server: HubServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def answer(self) -> None:
        """Somebody without a token is told 401 by the real hub for a repository that does not exist, too."""
        path = unquote(urlsplit(self.path).path)
        if not (match := REQUEST.fullmatch(path)):
            return self.refuse(404, "", "Not Found")
        name, path, commit = match["name"], match["path"] or "", hashed(match["name"].encode())
        folder = self.server.root / (match["kind"] or ("datasets" if match["dataset"] else "models")) / name
        if name == GATED:
            self.refuse(401, "GatedRepo", f"Access to {name} is restricted.")
        elif not folder.is_dir():
            self.refuse(401, "RepoNotFound", "Repository not found")
        elif match["revision"] not in (None, "main", commit):
            self.refuse(404, "RevisionNotFound", f"Invalid rev id: {match['revision']}")
        elif match["verb"] not in ("resolve", "tree"):
            facts = {"id": name, "sha": commit, "siblings": [], "private": False, "gated": False, "tags": []}
            self.send(200, json.dumps(facts).encode())
        elif not (folder / path).exists():
            self.refuse(404, "EntryNotFound", "Entry not found", {"X-Repo-Commit": commit})
        elif match["verb"] == "resolve":
            content = (folder / path).read_bytes()
            self.send(200, content, {"X-Repo-Commit": commit, "ETag": f'"{hashed(content)}"'})
        else:
            found = (folder / path).rglob("*") if "recursive=true" in self.path.lower() else (folder / path).iterdir()
            self.send(200, json.dumps([self.entry(folder, file) for file in sorted(found)]).encode())

    do_GET = do_HEAD = answer  # noqa: N815

    def entry(self, folder: Path, path: Path) -> dict[str, Any]:
        """A file or folder as the hub's tree lists it."""
        content = b"" if path.is_dir() else path.read_bytes()
        kind = "directory" if path.is_dir() else "file"
        return {"type": kind, "oid": hashed(content), "size": len(content), "path": str(path.relative_to(folder))}

    def refuse(self, status: int, code: str, text: str, headers: dict[str, str] | None = None) -> None:
        self.send(status, b"{}", {"X-Error-Code": code, "X-Error-Message": text} | (headers or {}))

    def send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
