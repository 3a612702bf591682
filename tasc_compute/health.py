"""One bounded question to an engine, and whether a port is free. The only module of this package that opens sockets.

Only status 200 on the exact path counts: no redirect, no proxy, no answer after the time-out, however slowly its bytes
come. An answer proves little by itself, since another server may sit on the port: ``lifecycle`` also asks the launcher
who listens.
"""

from __future__ import annotations

import http.client
import io
import json
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tasc_compute.engines.base import LOOPBACK, Probes
from tasc_compute.limits import MAX_HEALTH_BODY_BYTES

_READ_BYTES: Final = 16 * 1024
_GIVE_UP_S: Final = 0.2
_PASSIVE_TIMEOUT_MS: Final = 3_000


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: the HTTP status and the body's first bytes."""

    status: int
    body: bytes


class _Received:
    """Received bytes as the socket that ``http.client`` parses from."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, *_: object, **__: object) -> io.BytesIO:
        """The bytes as a file."""
        return io.BytesIO(self._data)


def _never() -> bool:
    return False


def ask(
    port: int, path: str, timeout_ms: float, *, body: str | None = None, give_up: Callable[[], bool] = _never
) -> Answer | None:
    """One request to loopback, or ``None`` where no complete answer came in time.

    Args:
        port: the engine's port.
        path: absolute path.
        timeout_ms: for the whole exchange, connecting included.
        body: a JSON body makes it a POST.
        give_up: asked a few times a second; true ends the wait.
    """
    end = time.monotonic() + timeout_ms / 1000
    content = (body or "").encode()
    head = f"{'POST' if body else 'GET'} {path} HTTP/1.1\r\nHost: {LOOPBACK}:{port}\r\nConnection: close\r\n"
    if body:
        head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n"
    try:
        with socket.create_connection((LOOPBACK, port), timeout=_left(end)) as connection:
            connection.settimeout(_left(end))
            connection.sendall(head.encode("ascii") + b"\r\n" + content)
            return _parse(_read(connection, end, give_up))
    except (OSError, http.client.HTTPException, ValueError):
        return None


def _left(end: float) -> float:
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _read(connection: socket.socket, end: float, give_up: Callable[[], bool]) -> bytes:
    data = b""
    while len(data) < MAX_HEALTH_BODY_BYTES:
        if give_up():
            raise TimeoutError
        connection.settimeout(min(_left(end), _GIVE_UP_S))
        try:
            chunk = connection.recv(_READ_BYTES)
        except TimeoutError:
            continue
        if not chunk:
            break
        data += chunk
    return data


def _parse(data: bytes) -> Answer:
    response = http.client.HTTPResponse(_Received(data))  # type: ignore[arg-type]  # it only calls makefile
    response.begin()
    try:
        return Answer(response.status, response.read())
    except http.client.IncompleteRead as partial:
        return Answer(response.status, partial.partial)
    finally:
        response.close()


def is_ready(
    port: int,
    health_path: str,
    probes: Probes,
    served_model_name: str | None,
    *,
    left_ms: float = float("inf"),
    give_up: Callable[[], bool] = _never,
) -> bool:
    """The engine's readiness check; it may generate one token where nothing else proves readiness.

    Args:
        port: the engine's port.
        health_path: path of the plan's health check.
        probes: the engine's probes.
        served_model_name: name that ``/v1/models`` must list, or ``None`` to skip that.
        left_ms: longest time for each answer, where that is less than the engine's own.
        give_up: asked a few times a second; true ends the wait.
    """
    timeout_ms = min(probes.timeout_ms, left_ms)
    answer = ask(port, health_path, timeout_ms, give_up=give_up)
    if answer is None or answer.status != 200:
        return False
    if probes.completion_path is not None:
        answer = ask(port, probes.completion_path, timeout_ms, body=probes.completion_body, give_up=give_up)
        return answer is not None and answer.status == 200
    if probes.lists_served_name and served_model_name is not None:
        return served_model_name in served_models(port)
    return True


def is_alive(port: int, probes: Probes) -> bool:
    """The engine's passive check: it generates nothing."""
    answer = ask(port, probes.passive_path, _PASSIVE_TIMEOUT_MS)
    return answer is not None and answer.status == 200


def _models(port: int) -> list[dict[str, object]]:
    answer = ask(port, "/v1/models", _PASSIVE_TIMEOUT_MS)
    if answer is None or answer.status != 200:
        return []
    try:
        data = json.loads(answer.body)["data"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return []
    return [item for item in data if isinstance(item, dict)] if isinstance(data, list) else []


def served_models(port: int) -> frozenset[str]:
    """The ids that ``GET /v1/models`` lists."""
    return frozenset(name for item in _models(port) if isinstance(name := item.get("id"), str))


def context_per_request(port: int) -> int | None:
    """Tokens of context that one request gets, where the server says so (``meta.n_ctx``, ``max_model_len``)."""
    for item in _models(port):
        meta = item.get("meta")
        value = meta.get("n_ctx") if isinstance(meta, dict) else item.get("max_model_len")
        if type(value) is int:
            return value
    return None


def port_is_free(port: int) -> bool:
    """Whether a server could listen on a port, on loopback and on every interface."""
    for address in (LOOPBACK, ""):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            # as a server would: a connection of a finished server in TIME_WAIT does not make the port busy
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address, port))
            except OSError:
                return False
    return True
