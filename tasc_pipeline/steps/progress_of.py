"""How far a window's run is, read from its journal without disturbing it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tasc_collector.journal import JournalBinding, OsFileSystem, held_by, journal_exists, scan
from tasc_collector.shadow.executions import planned_pairs
from tasc_collector.shadow.ledger import FINAL, fold
from tasc_pipeline.home import keys
from tasc_pipeline.home.layout import Home
from tasc_pipeline.steps.approved import load_approved


@dataclass(frozen=True, slots=True)
class RunState:
    """Executions by state (they add up to the planned ones), and who holds the lock."""

    counts: dict[str, int]
    owner: str | None


def run_state(home: Home, window_key: str) -> RunState:
    """The state of a window's run; empty counts where none has begun."""
    folder = home.run(window_key)
    if not folder.is_dir() or not journal_exists(folder):
        return RunState({}, None)
    approved = load_approved(home, window_key)
    plan = approved.plan.record
    binding = JournalBinding(plan.study_id, plan.protocol_digest, plan.digest, window_key, 0, plan.declaration_digest)
    ledger = fold(scan(folder, binding, keys.hmac_key(home, approved.study.study.keys.journal_hmac)))
    counts: Counter[str] = Counter()
    for pair in planned_pairs(plan, approved.declaration.record, approved.case_set):
        for key in pair.executions():
            execution = ledger.executions.get(key)
            counts[execution.final_state if execution is not None and execution.stage in FINAL else "pending"] += 1
    return RunState(dict(counts), held_by(OsFileSystem(), folder))
