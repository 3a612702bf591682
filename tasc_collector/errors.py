"""Every exception of the collector, with its category and the dispatch state that it proves.

::

    TascError                     category          proves
    ├── InputError                internal          -            a file, field or argument breaks a rule
    │   ├── DigestMismatch        internal          -            a digest is not the one that was pinned
    │   └── NotAuthorized         authorization     not_sent     a policy, pin, receipt or budget forbids it
    ├── WireError                 invalid-response  -            bytes that the dialect does not allow
    │   └── LimitExceeded         invalid-response  -            a named bound was reached
    ├── TransportError            transport         its own      a call failed; the write ledger says how far
    ├── SecretUnavailable         authentication    not_sent     a reference has no usable value
    ├── SignatureError            authentication    -            bytes are not what a key signed
    └── JournalError              internal          -            durable evidence cannot be trusted or written
        ├── JournalLocked         internal          not_sent     another process owns the window
        ├── JournalCorrupt        internal          not_sent     a record in the middle is bad; offset given
        ├── JournalFailed         internal          not_sent     a write, fsync, close or rename failed: stop
        └── JournalFull           internal          not_sent     no space could be reserved; reserved records still fit

A message never holds prompt, output, provider text, an origin, a secret or the name of an environment variable.
Every error says *what* is wrong, *where*, by which *rule*, and the *way out*; the library raises, the command line formats.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar


class Category(StrEnum):
    """The nine persisted failure categories of the original project (error allowlist v1)."""

    AUTHENTICATION = "authentication"
    AUTHORIZATION = "authorization"
    TIMEOUT = "timeout"
    RATE_LIMIT = "rate-limit"
    TRANSPORT = "transport"
    INVALID_RESPONSE = "invalid-response"
    CANCELLED = "cancelled"
    INTERNAL = "internal"
    UNKNOWN = "unknown"


class DispatchState(StrEnum):
    """How far a call came, as our own write ledger proves it (never an exception class)."""

    NOT_SENT = "not_sent"
    SENT_UNKNOWN = "sent_unknown"
    COMPLETED = "completed"


class TascError(Exception):
    """Base of all our errors.

    Args:
        what: one sentence, content-free, that says what is wrong.
        where: file name, record or command the error is about, if any.
        field: dotted path of the field, if any.
        rule: the rule that was broken, if it is not said by ``what``.
        way_out: what the reader can do next; a command where there is one.
    """

    category: ClassVar[Category] = Category.INTERNAL
    proves: ClassVar[DispatchState | None] = None

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        field: str | None = None,
        rule: str | None = None,
        way_out: str | None = None,
    ) -> None:
        super().__init__(what)
        self.what, self.where, self.field, self.rule, self.way_out = what, where, field, rule, way_out

    def __str__(self) -> str:
        place = ": ".join(part for part in (self.where, self.field) if part)
        text = f"{place}: {self.what}" if place else self.what
        if self.rule:
            text += f" (rule: {self.rule})"
        return f"{text} -> {self.way_out}" if self.way_out else text


class InputError(TascError):
    """A file, field or argument breaks a rule; nothing was changed."""


class DigestMismatch(InputError):
    """A digest is not the one that was pinned or that the content gives."""


class NotAuthorized(InputError):
    """A policy, pin, receipt, effect or budget does not allow what was asked; nothing was sent."""

    category = Category.AUTHORIZATION
    proves = DispatchState.NOT_SENT


class WireError(TascError):
    """Bytes that the format or dialect does not allow. ``code`` is an allowlisted word, never input."""

    category = Category.INVALID_RESPONSE

    def __init__(
        self, code: str, what: str | None = None, *, offset: int | None = None, way_out: str | None = None
    ) -> None:
        super().__init__(what or code.replace("-", " "), rule=code, way_out=way_out)
        self.code, self.offset = code, offset


class LimitExceeded(WireError):
    """A named bound of ``limits`` was reached before memory was spent."""


class TransportError(TascError):
    """A call failed below the dialect. ``state`` is what the write ledger proves about it."""

    category = Category.TRANSPORT

    def __init__(self, code: str, state: DispatchState, category: Category = Category.TRANSPORT) -> None:
        super().__init__(code.replace("-", " "), rule=code)
        self.code, self.state, self.failure_category = code, state, category


class SecretUnavailable(TascError):
    """A secret reference has no usable value. Neither the value nor the variable's name is shown."""

    category = Category.AUTHENTICATION
    proves = DispatchState.NOT_SENT


class SignatureError(TascError):
    """Bytes are not what the named key signed, or the key is not acceptable."""

    category = Category.AUTHENTICATION


class JournalError(TascError):
    """Durable evidence cannot be trusted or written."""


class JournalLocked(JournalError):
    """Another process owns the window's journal; the message says who."""

    proves = DispatchState.NOT_SENT


class JournalCorrupt(JournalError):
    """A record before the tail is bad. ``offset`` is its first byte in the segment."""

    proves = DispatchState.NOT_SENT

    def __init__(
        self, what: str, *, where: str | None = None, offset: int | None = None, way_out: str | None = None
    ) -> None:
        super().__init__(what, where=where, way_out=way_out)
        self.offset = offset


class JournalFailed(JournalError):
    """A write, fsync, close or rename failed. This process must send nothing more and end non-zero."""

    proves = DispatchState.NOT_SENT


class JournalFull(JournalError):
    """No space could be reserved. Nothing new may be sent; records with a reservation can still be written."""

    proves = DispatchState.NOT_SENT
