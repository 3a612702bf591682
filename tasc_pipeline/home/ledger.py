"""The ledger of a study: what its standing authorizations have spent, as a journal.

Rules:

1. A ledger is one journal under the study's journal key. Whoever reserves holds its lock from before it reads what was
   spent until the reservation is durable; so two windows cannot both pass a ceiling that allows one.
2. Nothing is sent under an authorization before its reservation is durable. A process that dies leaves the reservation
   spent, until the window is closed or the probe's end is known.
3. The lock is held for an instant; who finds it taken waits a little.
4. Reading needs no lock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from tasc_collector.canonical import JsonValue, digest
from tasc_collector.contracts.study import Study
from tasc_collector.errors import JournalLocked
from tasc_collector.journal import FileSystem, Journal, JournalBinding, JournalRecord, RecordKind, journal_exists, scan
from tasc_pipeline.control.authorizations import Entry, GivenBack, LedgerEvent, Reserved, Settled, Spend, apply
from tasc_pipeline.home import keys
from tasc_pipeline.home.files import make_folder
from tasc_pipeline.home.layout import Home

WAIT_S: Final = 10.0
"""How long a reservation waits for another one's end."""
_POLL_S: Final = 0.02
_GROW_BYTES: Final = 64 * 1024
"""A record is some 400 bytes; space for many hours is reserved at once."""
_DOMAIN: Final = "tasc/spend-ledger/v1"


class SpendLedger:
    """An open ledger, in which this process is the only one that writes.

    Args:
        journal: its journal.
        entries: what is in it.

    Attributes:
        entries: by reference, with what this process has written.
    """

    def __init__(self, journal: Journal, entries: dict[str, Entry]) -> None:
        self._journal, self.entries = journal, entries

    def reserve(self, event: Reserved) -> None:
        """Set a worst case aside; durable when this returns."""
        body: dict[str, JsonValue] = {
            "authorizationDigest": event.authorization_digest,
            "at": event.at,
            "worstCase": _to_json(event.spend),
            "run": event.run,
        }
        self._journal.append_sync(RecordKind.ADMISSION, event.reference, body)
        apply(self.entries, event)

    def give_back(self, event: GivenBack) -> None:
        """Say that a run that holds a reservation sends nothing; durable when this returns."""
        self._journal.append_sync(RecordKind.SETTLEMENT, event.reference, {"at": event.at, "givenBackBy": event.run})
        apply(self.entries, event)

    def settle(self, event: Settled) -> None:
        """Say what a reservation has used; durable when this returns."""
        self._journal.append_sync(
            RecordKind.SETTLEMENT, event.reference, {"at": event.at, "used": _to_json(event.used)}
        )
        apply(self.entries, event)


@contextmanager
def open_ledger(
    home: Home,
    study: Study,
    *,
    wait_s: float = WAIT_S,
    fs: FileSystem | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[SpendLedger]:
    """Hold the ledger of a study while the block runs (rules 1 and 3).

    Args:
        home: the state folder.
        study: the study.
        wait_s: how long to wait for whoever holds it.
        fs: where it lies; the real file system if None.
        sleep: waits between two tries.

    Raises:
        JournalLocked: somebody held it all the time.
        JournalError: it is corrupt, full, or could not be written.
    """
    entries: dict[str, Entry] = {}
    make_folder(home.ledger(study.study_id))
    journal = _opened(home, study, entries, wait_s, fs, sleep)
    with journal:
        yield SpendLedger(journal, entries)


def read_entries(home: Home, study: Study) -> dict[str, Entry]:
    """What a ledger says now; nothing where there is none.

    Raises:
        JournalError: it is corrupt.
    """
    folder, entries = home.ledger(study.study_id), dict[str, Entry]()
    if folder.is_dir() and journal_exists(folder):
        for record in scan(folder, _binding(study.study_id), keys.hmac_key(home, study.keys.journal_hmac)):
            apply(entries, _event(record))
    return entries


def _opened(
    home: Home,
    study: Study,
    entries: dict[str, Entry],
    wait_s: float,
    fs: FileSystem | None,
    sleep: Callable[[float], None],
) -> Journal:
    key, binding = keys.hmac_key(home, study.keys.journal_hmac), _binding(study.study_id)
    tries_left = round(wait_s / _POLL_S)
    while True:
        try:
            return Journal.open(
                home.ledger(study.study_id),
                binding,
                key,
                fs=fs,
                on_record=lambda record: apply(entries, _event(record)),
                grow_bytes=_GROW_BYTES,
            )
        except JournalLocked:
            if tries_left <= 0:
                raise
        tries_left -= 1
        sleep(_POLL_S)


def _binding(study_id: str) -> JournalBinding:
    """A ledger belongs to a study, and to no plan or window of it."""
    own = digest(_DOMAIN, {"studyId": study_id})
    return JournalBinding(study_id, own, own, "ledger", 0, own)


def _event(record: JournalRecord) -> LedgerEvent:
    body: Mapping[str, Any] = record.body  # Any: JSON that this module wrote, MAC verified
    if record.kind is RecordKind.SETTLEMENT:
        run = body.get("givenBackBy")
        if run is not None:
            return GivenBack(record.trace_id, body["at"], run)
        return Settled(record.trace_id, body["at"], _from_json(body["used"]))
    spend, run = _from_json(body["worstCase"]), body.get("run", "")  # a ledger of an earlier version names no run
    return Reserved(record.trace_id, body["authorizationDigest"], body["at"], spend, run)


def _to_json(spend: Spend) -> dict[str, JsonValue]:
    return {
        "windows": spend.windows,
        "calls": spend.calls,
        "outputTokens": spend.output_tokens,
        "canaryCalls": spend.canary_calls,
        "costUsd": spend.cost_usd,
    }


def _from_json(value: Mapping[str, Any]) -> Spend:  # Any: see ``_event``
    return Spend(value["windows"], value["calls"], value["outputTokens"], value["canaryCalls"], value["costUsd"])
