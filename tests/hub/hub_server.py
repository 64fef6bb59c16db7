"""A stand-in for the Hugging Face hub on the loopback: the requests that huggingface_hub and datasets make, no more.

What it answers, as the real hub does (https://huggingface.co/docs/hub/api and the headers of `resolve`):

    GET  /api/KIND/ORG/NAME[/revision/REV]      what the repository is, its commit (`sha`) and its files
    GET  /api/KIND/ORG/NAME/tree/REV[/FOLDER]   its files with sizes
    POST /api/KIND/ORG/NAME/paths-info/REV      the same for named paths
    HEAD, GET /[datasets/]ORG/NAME/resolve/REV/PATH    the file itself; one kept in LFS redirects to /lfs/SHA256

KIND is models or datasets. Repositories are folders ROOT/KIND/ORG/NAME. The real hub also offers Xet transfers, which
this one does not announce.
"""

import hashlib
import json
import re
import threading
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

IN_LFS = (".safetensors", ".bin", ".parquet", "tokenizer.json")
KIND = r"(?P<kind>models|datasets)/(?P<name>[^/]+/[^/]+)"
API = re.compile(rf"/api/{KIND}(?:/(?P<verb>revision|tree|paths-info)/(?P<revision>[^/]+)(?:/(?P<path>.+))?)?")
RESOLVE = re.compile(r"/(?P<dataset>datasets/)?(?P<name>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<path>.+)")


class HubServer(ThreadingHTTPServer):
    """Serves the repositories below `root` from a thread, between `with HubServer(root) as hub:` and its end."""

    daemon_threads = True

    def __init__(self, root: Path, gated: Iterable[str] = ()) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.root, self.url = root, f"http://127.0.0.1:{self.server_port}"
        self.gated = set(gated)  # names of repositories that want a token which nobody here has
        self.requests: list[str] = []  # "GET /api/…", in order

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def files(self, kind: str, name: str) -> dict[str, bytes]:
        """The repository's files by their paths in it; empty: there is no such repository."""
        folder = self.root / kind / name
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def commit_of(files: dict[str, bytes]) -> str:
    """Changes with every byte of the repository, as git's does."""
    return sha256(repr(sorted(files.items())).encode())[:40]


def entry(path: str, content: bytes) -> dict[str, Any]:
    """A file as the hub's tree lists it."""
    found: dict[str, Any] = {"type": "file", "oid": sha256(content)[:40], "size": len(content), "path": path}
    if path.endswith(IN_LFS):
        found["lfs"] = {"oid": sha256(content), "size": len(content), "pointerSize": 134}
    return found


class Handler(BaseHTTPRequestHandler):
    server: HubServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass  # the tests read `requests`

    def answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        form = parse_qs(self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode())
        self.server.requests.append(f"{self.command} {path}")
        if path.startswith("/lfs/"):
            every = (file.read_bytes() for file in self.server.root.rglob("*") if file.name.endswith(IN_LFS))
            self.send(200, next(content for content in every if path == f"/lfs/{sha256(content)}"))
        elif match := API.fullmatch(path):
            self.answer_about(match["kind"], match, form.get("paths"))
        elif match := RESOLVE.fullmatch(path):
            self.answer_about("datasets" if match["dataset"] else "models", match)
        else:
            self.refuse(404, "", "Not Found")

    do_GET = do_HEAD = do_POST = answer  # noqa: N815

    def answer_about(self, kind: str, match: re.Match[str], paths: list[str] | None = None) -> None:
        """Somebody without a token is told 401 by the real hub for a repository that does not exist, too."""
        name, path, files = match["name"], match["path"] or "", self.server.files(kind, match["name"])
        commit = commit_of(files)
        if name in self.server.gated:
            self.refuse(401, "GatedRepo", f"Access to {kind} {name} is restricted.")
        elif not files:
            self.refuse(401, "RepoNotFound", "Repository not found")
        elif match["revision"] not in (None, "main", commit):
            self.refuse(404, "RevisionNotFound", f"Invalid rev id: {match['revision']}")
        elif match.re is RESOLVE:
            self.send_file(path, files.get(path), commit)
        elif match["verb"] in (None, "revision"):
            siblings = [{"rfilename": path} for path in files]
            facts = {"id": name, "sha": commit, "siblings": siblings, "private": False, "gated": False, "tags": []}
            self.send(200, json.dumps(facts).encode())
        else:
            self.list_files(files, path, paths)

    def list_files(self, files: dict[str, bytes], folder: str, paths: list[str] | None) -> None:
        """Files and folders: those of `paths`, or those in `folder`, with `recursive` also below its folders."""
        folders = {str(parent) for path in files for parent in Path(path).parents} - {"."}
        found = [{"type": "directory", "oid": "0" * 40, "size": 0, "path": path} for path in sorted(folders)]
        found += [entry(*file) for file in files.items()]
        below = f"{folder}/" if folder else ""
        found = [one for one in found if (one["path"] in paths if paths else one["path"].startswith(below))]
        if not paths and "recursive=true" not in self.path.lower():
            found = [one for one in found if "/" not in one["path"].removeprefix(below)]
        if found or paths:
            self.send(200, json.dumps(found).encode())
        else:
            self.refuse(404, "EntryNotFound", "Entry not found")

    def send_file(self, path: str, content: bytes | None, commit: str) -> None:
        if content is None:
            self.refuse(404, "EntryNotFound", "Entry not found", {"X-Repo-Commit": commit})
        elif not path.endswith(IN_LFS):
            self.send(200, content, {"X-Repo-Commit": commit, "ETag": f'"{sha256(content)[:40]}"'})
        else:
            # On another host, as the real one: the library follows it for the content only.
            place = f"http://localhost:{self.server.server_port}/lfs/{sha256(content)}"
            linked = {"X-Linked-Size": str(len(content)), "X-Linked-ETag": f'"{sha256(content)}"'}
            self.send(302, b"", {"X-Repo-Commit": commit, "Location": place} | linked)

    def refuse(self, status: int, code: str, text: str, headers: dict[str, str] | None = None) -> None:
        self.send(status, b"{}", {"X-Error-Code": code, "X-Error-Message": text} | (headers or {}))

    def send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
