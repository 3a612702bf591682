"""Accepted traces as canonical NDJSON: the file that the original project's validator reads."""

from __future__ import annotations

from collections.abc import Iterator

from tasc_pipeline.home import keys
from tasc_pipeline.home.layout import Home
from tasc_pipeline.steps.approved import load_approved
from tasc_pipeline.steps.collected import read_collected


def export_traces(home: Home, window_key: str) -> Iterator[bytes]:
    """The signed envelopes of a window, one canonical line each, in the order of their trace ids.

    Raises:
        InputError: the window is not approved, or a record of it breaks a rule.
        JournalError: the journal cannot be trusted.
    """
    approved = load_approved(home, window_key)
    journal_key = keys.hmac_key(home, approved.study.study.keys.journal_hmac)
    collected = read_collected(approved, home.run(approved.collected_as), journal_key)
    accepted = ((item.trace_id or "", item.envelope_bytes) for item in collected.executions if item.envelope_bytes)
    for _, envelope in sorted(accepted):
        yield envelope + b"\n"
