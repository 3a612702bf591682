"""The ledger: what a contract server really received. In crash tests it is the oracle.

Rules
- A request is entered when its last byte has been read and before the first byte of its answer is written.
- An inference call is entered under its route and its case digest (``generation.case_digest``); no text is kept.
- With a file, every entry is one JSON line, handed to the operating system in one ``write`` before the answer starts.
  So a killed server has lost no entry that a client could know of, and a killed client none at all.
- Reading a file ignores a torn last line and nothing else.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

import orjson

from tasc_collector.errors import InputError


class EntryKind(StrEnum):
    """What an entry records."""

    CONNECTION = "connection"
    REQUEST = "request"
    PARTIAL = "partial"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a ledger.

    Attributes:
        kind: connection accepted, whole request received, connection lost within one, answer left by the client.
        connection: 1-based number of the connection.
        method: HTTP method; empty where no request head was read.
        path: path without query; empty likewise.
        inference: the call generates tokens (health checks that generate included).
        mutating: the call changes the server's state.
        digest: case digest of an inference call, else empty.
        stream: the answer is a stream.
        body_bytes: size of the request's body, or bytes received of a partial request.
        fault: the fault that the call was given, else empty.
        headers: names of the request's headers in lower case, in order; never values.
    """

    kind: EntryKind
    connection: int
    method: str = ""
    path: str = ""
    inference: bool = False
    mutating: bool = False
    digest: str = ""
    stream: bool = False
    body_bytes: int = 0
    fault: str = ""
    headers: tuple[str, ...] = ()


class Ledger:
    """Counts of everything a server received; safe to read from any thread.

    Args:
        path: file to append entries to, or None to keep them in memory only.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._changed = threading.Condition()
        self._entries: list[Entry] = []
        self._by_route: Counter[str] = Counter()
        self._by_request: Counter[str] = Counter()
        self._per_connection: Counter[int] = Counter()
        self._kinds: Counter[EntryKind] = Counter()
        self._inference = 0
        self._file = -1
        if path is not None:
            try:
                self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            except OSError as error:
                raise InputError(
                    f"the ledger file cannot be opened ({os.strerror(error.errno or 0)})",
                    where="contract server",
                    way_out="name a file in a folder that exists and can be written",
                ) from None

    def enter(self, entry: Entry) -> None:
        """Record one entry; with a file it has reached the operating system when this returns."""
        with self._changed:
            self._count(entry)
            if self._file >= 0:
                os.write(self._file, orjson.dumps(asdict(entry)) + b"\n")
            self._changed.notify_all()

    def _count(self, entry: Entry) -> None:
        self._entries.append(entry)
        self._kinds[entry.kind] += 1
        if entry.kind is not EntryKind.REQUEST:
            return
        self._by_route[f"{entry.method} {entry.path}"] += 1
        self._per_connection[entry.connection] += 1
        if entry.inference:
            self._inference += 1
            if entry.digest:
                self._by_request[entry.digest] += 1

    def wait_for(self, condition: Callable[[Ledger], bool], timeout_s: float = 10.0) -> bool:
        """Block until ``condition(self)`` holds after some entry; False when the time is up."""
        with self._changed:
            return self._changed.wait_for(lambda: condition(self), timeout_s)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All entries in order of arrival."""
        return tuple(self._entries)

    @property
    def connections(self) -> int:
        """Connections accepted."""
        return self._kinds[EntryKind.CONNECTION]

    @property
    def requests(self) -> int:
        """Whole requests received, on any route."""
        return self._kinds[EntryKind.REQUEST]

    @property
    def partial_requests(self) -> int:
        """Connections lost within a request: some but not all of its bytes came."""
        return self._kinds[EntryKind.PARTIAL]

    @property
    def cancelled(self) -> int:
        """Answers that the client left before their end."""
        return self._kinds[EntryKind.CANCELLED]

    @property
    def inference_calls(self) -> int:
        """Whole requests on routes that generate."""
        return self._inference

    @property
    def by_route(self) -> Mapping[str, int]:
        """Requests per ``METHOD path``."""
        return dict(self._by_route)

    @property
    def by_request(self) -> Mapping[str, int]:
        """Inference calls per case digest."""
        return dict(self._by_request)

    @property
    def requests_per_connection(self) -> Mapping[int, int]:
        """Requests per connection number; a client without a pool has 1 everywhere."""
        return dict(self._per_connection)

    def close(self) -> None:
        """Close the file; counts stay readable."""
        with self._changed:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1

    @classmethod
    def read(cls, path: Path) -> Ledger:
        """The ledger that a (possibly killed) server left in a file."""
        ledger = cls()
        lines = path.read_bytes().split(b"\n")
        for line in lines[:-1]:  # what follows the last newline is empty or torn
            fields = orjson.loads(line)
            known = {"kind": EntryKind(fields["kind"]), "headers": tuple(fields["headers"])}
            ledger._count(Entry(**{**fields, **known}))
        return ledger
