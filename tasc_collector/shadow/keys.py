"""What names one planned execution. Pure, and apart from the ledger, so that the deciding side need not see a journal."""

from __future__ import annotations

from typing import NamedTuple


class ExecutionKey(NamedTuple):
    """One planned execution: which case, which replicate, which profile."""

    case_id: str
    replicate_id: str
    profile_id: str
