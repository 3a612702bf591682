"""Durable evidence of a window: append-only, chained, authenticated, committed in groups."""

from __future__ import annotations

from tasc_collector.journal.committer import Reservation
from tasc_collector.journal.filesystem import FileSystem, FilesystemTrust, FilesystemVerdict, OsFileSystem
from tasc_collector.journal.format import (
    JournalBinding,
    JournalRecord,
    JournalSeal,
    LogBinding,
    RecordKind,
    record_bytes,
)
from tasc_collector.journal.journal import Journal
from tasc_collector.journal.lock import Owner, held_by
from tasc_collector.journal.scan import JournalReader, VerificationReport, is_sealed, journal_exists, scan, verify

__all__ = [
    "FileSystem",
    "FilesystemTrust",
    "FilesystemVerdict",
    "Journal",
    "JournalBinding",
    "JournalReader",
    "JournalRecord",
    "JournalSeal",
    "LogBinding",
    "OsFileSystem",
    "Owner",
    "RecordKind",
    "Reservation",
    "VerificationReport",
    "held_by",
    "is_sealed",
    "journal_exists",
    "record_bytes",
    "scan",
    "verify",
]
