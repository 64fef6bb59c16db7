"""A stand-in for the Hugging Face hub on the loopback: the requests that huggingface_hub and datasets make, no more.

What it answers, as the real hub does (https://huggingface.co/docs/hub/api and the headers of `resolve`):

    GET  /api/KIND/ORG/NAME[/revision/REV]      what the repository is, its commit (`sha`) and its files
    GET  /api/KIND/ORG/NAME/tree/REV[/FOLDER]   files and folders with sizes; `recursive`
    POST /api/KIND/ORG/NAME/paths-info/REV      the same for named paths
    HEAD, GET /[datasets/]ORG/NAME/resolve/REV/PATH    the file itself; one kept in LFS redirects to /lfs/SHA256

KIND is models or datasets. Repositories are folders ROOT/KIND/ORG/NAME; a real one has no network of its own, so the
server binds to 127.0.0.1 only. The real hub also offers Xet transfers, which this one does not announce.
"""

import hashlib
import json
import re
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

LARGE = 10 * 2**20  # bytes; the library writes a download down in pieces of this size
IN_LFS = (".safetensors", ".bin", ".parquet", "tokenizer.json")
KIND = r"(?P<kind>models|datasets)/(?P<name>[^/]+/[^/]+)"
API = re.compile(rf"/api/{KIND}(?:/(?P<verb>revision|tree|paths-info)/(?P<revision>[^/]+)(?:/(?P<path>.+))?)?")
RESOLVE = re.compile(r"/(?P<dataset>datasets/)?(?P<name>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<path>.+)")


@dataclass(frozen=True)
class Interruption:
    """A download sends `after` bytes; then the connection breaks, or nothing comes until the client ends."""

    after: int
    stall: bool = False


class HubServer(ThreadingHTTPServer):
    """Serves the repositories below `root` from a thread, between `with HubServer(root) as hub:` and its end."""

    daemon_threads = True

    def __init__(self, root: Path, gated: Iterable[str] = ()) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.root = root
        self.gated = set(gated)  # names of repositories that want a token which nobody here has
        self.requests: list[str] = []  # "GET /api/…", in order
        self.ranges: list[str] = []  # the Range headers of the resumed downloads
        self.interruptions: list[Interruption] = []  # of the next downloads of large files, one each
        self.stalled = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def files(self, kind: str, name: str) -> dict[str, Path]:
        """The repository's files by their paths in it; empty: there is no such repository."""
        folder = self.root / kind / name
        return {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}

    def commit(self, kind: str, name: str) -> str:
        """Changes with every byte of the repository, as git's does."""
        content = hashlib.sha1(usedforsecurity=False)
        for path, file in self.files(kind, name).items():
            content.update(path.encode() + file.read_bytes())
        return content.hexdigest()


@lru_cache
def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


@lru_cache
def git_blob_id(file: Path) -> str:
    content = file.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def entry(path: str, file: Path) -> dict[str, Any]:
    """A file as the hub's tree lists it; `oid` is git's, which for a file in LFS is the one of its pointer."""
    found: dict[str, Any] = {"type": "file", "oid": git_blob_id(file), "size": file.stat().st_size, "path": path}
    if path.endswith(IN_LFS):
        found["lfs"] = {"oid": sha256(file), "size": file.stat().st_size, "pointerSize": 134}
    return found


class Handler(BaseHTTPRequestHandler):
    server: HubServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.answer()

    def do_HEAD(self) -> None:
        self.answer()

    def do_POST(self) -> None:
        self.answer(parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode()))

    def log_message(self, *_: object) -> None:
        pass  # the tests read `requests`

    def answer(self, form: dict[str, list[str]] | None = None) -> None:
        url = urlsplit(self.path)
        path = unquote(url.path)
        self.server.requests.append(f"{self.command} {path}")
        if path.startswith("/lfs/"):
            self.send_lfs(path.removeprefix("/lfs/"))
        elif match := API.fullmatch(path):
            if self.allowed(match["kind"], match["name"], match["revision"]):
                self.send_api(match, parse_qs(url.query), form or {})
        elif match := RESOLVE.fullmatch(path):
            kind = "datasets" if match["dataset"] else "models"
            if self.allowed(kind, match["name"], match["revision"]):
                self.send_resolved(kind, match["name"], match["path"])
        else:
            self.send_error_code(404, "", "Not Found")

    def allowed(self, kind: str, name: str, revision: str | None) -> bool:
        """Whether there is such a repository, and it may be read; answers with the hub's error code if not.

        To somebody without a token the real hub says 401 for a repository that does not exist, too.
        """
        if name in self.server.gated:
            self.send_error_code(401, "GatedRepo", f"Access to {kind} {name} is restricted.")
        elif not self.server.files(kind, name):
            self.send_error_code(401, "RepoNotFound", "Repository not found")
        elif revision not in (None, "main", self.server.commit(kind, name)):
            self.send_error_code(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        else:
            return True
        return False

    def send_api(self, match: re.Match[str], query: dict[str, list[str]], form: dict[str, list[str]]) -> None:
        kind, name, folder = match["kind"], match["name"], match["path"]
        files = self.server.files(kind, name)
        commit = self.server.commit(kind, name)
        if match["verb"] in (None, "revision"):
            siblings = [{"rfilename": path} for path in files]
            facts = {"id": name, "sha": commit, "siblings": siblings, "private": False, "gated": False, "tags": []}
            return self.send_json(facts)
        folders = sorted({parent.as_posix() for path in files for parent in Path(path).parents} - {"."})
        entries = [{"type": "directory", "oid": commit, "size": 0, "path": path} for path in folders]
        entries += [entry(path, file) for path, file in files.items()]
        if match["verb"] == "paths-info":
            return self.send_json([found for found in entries if found["path"] in form["paths"]])
        below = f"{folder}/" if folder else ""
        entries = [found for found in entries if found["path"].startswith(below)]
        if query.get("recursive", ["false"])[0].lower() != "true":
            entries = [found for found in entries if "/" not in found["path"].removeprefix(below)]
        return self.send_json(entries) if entries else self.send_error_code(404, "EntryNotFound", "Entry not found")

    def send_resolved(self, kind: str, name: str, path: str) -> None:
        commit, file = self.server.commit(kind, name), self.server.files(kind, name).get(path)
        if file is None:
            return self.send_error_code(404, "EntryNotFound", "Entry not found", {"X-Repo-Commit": commit})
        if not path.endswith(IN_LFS):
            headers = {"X-Repo-Commit": commit, "ETag": f'"{git_blob_id(file)}"'}
            return self.send_content(200, file.read_bytes(), headers)
        headers = {
            "X-Repo-Commit": commit,
            "X-Linked-Size": str(file.stat().st_size),
            "X-Linked-ETag": f'"{sha256(file)}"',
            # On another host, as the real one: the library follows it for the content only.
            "Location": f"http://localhost:{self.server.server_port}/lfs/{sha256(file)}",
        }
        return self.send_content(302, b"", headers)

    def send_lfs(self, wanted: str) -> None:
        """A file by its content, from the byte that `Range` asks for."""
        content = next(f for f in self.server.root.rglob("*") if f.is_file() and sha256(f) == wanted).read_bytes()
        headers = {"ETag": f'"{wanted}"', "Accept-Ranges": "bytes"}
        status, start = 200, 0
        if asked := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
            self.server.ranges.append(asked[0])
            status, start = 206, int(asked[1])
            end = int(asked[2] or len(content) - 1)
            headers["Content-Range"] = f"bytes {start}-{end}/{len(content)}"
            content = content[start : end + 1]
        large = len(content) > LARGE and self.command == "GET"
        interruption = self.server.interruptions.pop(0) if large and self.server.interruptions else None
        self.send_content(status, content, headers, interruption)

    def send_json(self, value: Any) -> None:
        self.send_content(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def send_error_code(self, status: int, code: str, text: str, headers: dict[str, str] | None = None) -> None:
        errors = {"X-Error-Code": code, "X-Error-Message": text, "Content-Type": "application/json"}
        self.send_content(status, json.dumps({"error": text}).encode(), errors | (headers or {}))

    def send_content(
        self, status: int, body: bytes, headers: dict[str, str], interruption: Interruption | None = None
    ) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        self.wfile.write(body[: interruption.after] if interruption else body)
        if interruption and interruption.stall:
            self.server.stalled.set()
            self.connection.recv(1)  # returns when the client has gone
        if interruption:
            self.close_connection = True
