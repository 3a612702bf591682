"""Accepted traces as canonical NDJSON: the file that the original project's validator reads."""

from __future__ import annotations

from collections.abc import Iterator

from tasc_collector.errors import InputError
from tasc_collector.journal import journal_exists
from tasc_pipeline.home import keys
from tasc_pipeline.home.layout import Home
from tasc_pipeline.steps.approved import load_approved
from tasc_pipeline.steps.collected import read_collected


def export_traces(home: Home, window_key: str) -> Iterator[bytes]:
    """The signed envelopes of a window, one canonical line each, in the order of their trace ids.

    Raises:
        InputError: the window is not approved or nothing was collected of it, or a record of it breaks a rule.
        JournalError: the journal cannot be trusted.
    """
    approved = load_approved(home, window_key)
    folder = home.run(approved.collected_as)
    if not journal_exists(folder):
        raise InputError(
            "nothing was collected of this window", where=window_key, way_out=f"run: tasc collect {window_key}"
        )
    journal_key = keys.hmac_key(home, approved.study.study.keys.journal_hmac)
    collected = read_collected(approved, folder, journal_key)
    accepted = ((item.trace_id or "", item.envelope_bytes) for item in collected.executions if item.envelope_bytes)
    for _, envelope in sorted(accepted):
        yield envelope + b"\n"
