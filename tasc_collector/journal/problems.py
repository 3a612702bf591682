"""The refusals that several parts of a journal share, each with its way out."""

from __future__ import annotations

import errno

from tasc_collector.errors import InputError, JournalFailed, JournalFull


def error_name(error: BaseException) -> str:
    """A content-free word for an error: the errno's name, or the class."""
    number = error.errno if isinstance(error, OSError) else None
    return errno.errorcode.get(number or 0, error.__class__.__name__)


def journal_failed(name: str | None, where: str | None = None) -> JournalFailed:
    """The journal's first error, told to every caller from then on.

    Args:
        name: ``error_name`` of the first error.
        where: the journal's folder, if known.
    """
    return JournalFailed(
        f"the journal could not be written ({name})",
        where=where,
        rule="after an error of a write, fsync, close or rename nothing is sent and nothing is retried",
        way_out="check the disk, then start again: the next process reads what is there",
    )


def journal_full() -> JournalFull:
    """No space could be reserved."""
    return JournalFull(
        "there is no space for the record",
        rule="space is reserved before a call is sent",
        way_out="free disk space, then resume",
    )


def journal_closed() -> InputError:
    """A call after ``close`` or ``seal``."""
    return InputError("the journal is closed", way_out="open it again")
