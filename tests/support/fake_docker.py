"""A docker daemon as far as our launcher uses one: HTTP over a UNIX socket, containers that only exist in a table.

A test changes ``containers`` to let them end, ``on_start`` to do what a container does when it starts (its State is
handed over), and ``status`` to let the next call of a path's first words fail.
"""

from __future__ import annotations

import http.server
import json
import socketserver
import threading
import urllib.parse
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import (
    Any,  # docker's JSON
    Self,
)

CONTAINER_ID = "c0ffee" * 10 + "beef"


class FakeDocker:
    """The daemon.

    Args:
        socket_path: where it listens.
        images: names of images that are here.
    """

    def __init__(self, socket_path: Path, images: set[str]) -> None:
        self.images, self.containers, self.calls = images, dict[str, dict[str, Any]](), list[str]()
        self.status: dict[str, int] = {}
        self.on_start: Callable[[dict[str, Any]], None] = lambda _: None
        self.logs = b""
        daemon = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def address_string(self) -> str:
                return "local"

            def log_message(self, *_: object) -> None:
                pass

            def handle_any(self) -> None:
                url = urllib.parse.urlsplit(self.path)
                size = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(size) or b"null")
                path = "/" + url.path.split("/", 2)[2]
                status, answer = daemon.answer(self.command, path, urllib.parse.parse_qs(url.query), body)
                data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                kind = "application/octet-stream" if isinstance(answer, bytes) else "application/json"
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                with suppress(BrokenPipeError):  # a client that was ended does not wait for its answer
                    self.wfile.write(data)

            do_GET = do_POST = do_DELETE = handle_any  # noqa: N815  # the names that the base class looks for

        class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
            daemon_threads = True

        self._server = Server(str(socket_path), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join(60)
        self._server.server_close()

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: Any) -> tuple[int, Any]:
        """Status and JSON (or bytes) of one call."""
        self.calls.append(f"{method} {path}")
        for start, status in self.status.items():
            if f"{method} {path}".startswith(start):
                return status, {"message": "as the test wants"}
        if path.startswith("/images/") and path.endswith("/json"):
            name = urllib.parse.unquote(path[len("/images/") : -len("/json")])
            return (200, {"Id": "sha256:1", "RepoTags": [name]}) if name in self.images else (404, {"message": "none"})
        if path == "/images/create":
            self.images.add(f"{query['fromImage'][0]}:{query['tag'][0]}")
            return 200, b"{}"
        if path == "/containers/create":
            state = {"Status": "created", "ExitCode": 0, "OOMKilled": False}
            self.containers[CONTAINER_ID] = {
                "Id": CONTAINER_ID,
                "Config": body,
                "State": state,
                "Name": query["name"][0],
            }
            return 201, {"Id": CONTAINER_ID, "Warnings": []}
        if path == "/containers/json":
            wanted = json.loads(query["filters"][0])["label"][0].split("=", 1)
            found = [c for c in self.containers.values() if c["Config"]["Labels"].get(wanted[0]) == wanted[1]]
            return 200, [{"Id": c["Id"]} for c in found]
        return self._container(method, path.split("/"))

    def _container(self, method: str, parts: list[str]) -> tuple[int, Any]:
        container = self.containers.get(parts[2])
        if container is None:
            return 404, {"message": "No such container"}
        if method == "DELETE":
            del self.containers[parts[2]]
            return 204, b""
        if parts[3] == "start":
            container["State"]["Status"] = "running"
            self.on_start(container["State"])
            return 204, b""
        if parts[3] == "stop":
            container["State"]["Status"] = "exited"
            return 204, b""
        if parts[3] == "logs":
            # docker's stream frames: stdout, three zero bytes, length
            return 200, b"\1\0\0\0" + len(self.logs).to_bytes(4, "big") + self.logs
        return 200, container
