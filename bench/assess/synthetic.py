"""A window of any size as the columns that the product reads executions and evidence into. Seeded."""

from __future__ import annotations

import numpy as np

from tasc_collector.contracts.evidence_trust import EvidenceStatus
from tasc_pipeline.control.decisions.building import Calls
from tasc_pipeline.control.decisions.units import Lack
from tasc_pipeline.control.decisions.units import Outcome as CallOutcome
from tasc_pipeline.control.identifiers import Codes, Ids, constant
from tasc_pipeline.control.joined_rows import STATUSES, Backing, Evidence, Executions, Outcome, State

PROFILE_IDS = ("candidate", "champion")
REPLICATES = 5
TRUSTED = STATUSES.index(EvidenceStatus.TRUSTED)


def _numbered(prefix: str, numbers: Codes, width: int) -> Ids:
    """``prefix`` and a decimal number of fixed width, without a Python step per row."""
    digits = (numbers[:, None] // 10 ** np.arange(width - 1, -1, -1)) % 10 + ord("0")
    head = np.broadcast_to(np.frombuffer(prefix.encode(), dtype=np.uint8), (len(numbers), len(prefix)))
    joined = np.concatenate([head, digits.astype(np.uint8)], axis=1)
    return np.ascontiguousarray(joined).view(f"S{len(prefix) + width}")[:, 0]


def _hex(prefix: str, rng: np.random.Generator, rows: int) -> Ids:
    """``prefix`` and 64 random hex digits, as trace ids and outputs are."""
    alphabet = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
    digits = alphabet[rng.integers(0, 16, (rows, 64))]
    head = np.broadcast_to(np.frombuffer(prefix.encode(), dtype=np.uint8), (rows, len(prefix)))
    return np.ascontiguousarray(np.concatenate([head, digits], axis=1)).view(f"S{len(prefix) + 64}")[:, 0]


def window(executions: int, groups: int, seed: int = 7) -> tuple[Executions, Evidence]:
    """A window in random order: two profiles, five replicates per case, 1 % failures, every answer scored once."""
    rng = np.random.default_rng(seed)
    units = executions // 2
    unit = np.repeat(np.arange(units), 2)
    case = unit // REPLICATES
    profile = np.tile(np.arange(2), units)
    order = rng.permutation(executions)
    case, unit, profile = case[order], unit[order], profile[order]
    group = case % groups
    failed = rng.random(executions) < 0.01
    slow = 1.0 + 0.15 * (profile == 1)
    ttft = rng.lognormal(3.5, 0.4, executions) * slow
    e2e = ttft + rng.lognormal(5.5, 0.3, executions) * slow
    signal = rng.random(int(case.max()) + 1)[case]
    trace, output = _hex("trace-", rng, executions), _hex("payload-key:", rng, executions)
    output[failed] = b""
    made = Executions(
        profile_ids=PROFILE_IDS,
        slice_ids=("hard",),
        case_id=_numbered("case-", case, 7),
        replicate_id=_numbered("replicate-", unit % REPLICATES, 2),
        group_id=_numbered("group-", group, 5),
        profile=profile,
        trace_id=trace,
        trace_digest=_hex("", rng, executions),
        key=_hex("", rng, executions),
        output_id=output,
        split=np.full(executions, 2, dtype=np.int8),
        state=np.where(failed, State.FAILURE, State.SUCCESS).astype(np.int8),
        succeeded=~failed,
        weight=np.ones(executions),
        workload=constant("w", executions),
        signal_key=_numbered("s-", case, 7),
        policy=constant("p", executions),
        window=constant("w/m", executions),
        slices=(case % 4 == 0)[:, None],
        signal=signal,
        ttft_ms=np.where(failed, np.nan, ttft),
        e2e_ms=e2e,
        cost_usd=rng.random(executions) * 0.01,
        cost_class=np.full(executions, Backing.MODELED, dtype=np.int8),
        completed_ms=np.full(executions, 1_000, dtype=np.int64),
    )
    answered = rng.permutation(np.flatnonzero(~failed))
    rows = len(answered)
    scored = Evidence(
        reason_words=(),
        digest=_hex("", rng, rows),
        source_digest=_hex("", rng, rows),
        check=np.zeros(rows, dtype=np.int64),
        trace_id=trace[answered],
        profile_id=np.array([name.encode() for name in PROFILE_IDS])[profile[answered]],
        output_id=output[answered],
        case_id=made.case_id[answered],
        replicate_id=made.replicate_id[answered],
        split=made.split[answered],
        status=np.full(rows, TRUSTED, dtype=np.int8),
        key_pinned=np.ones(rows, dtype=bool),
        terms_match=np.ones(rows, dtype=bool),
        context=np.zeros(rows, dtype=np.int64),
        outcome=np.full(rows, Outcome.SCORED, dtype=np.int8),
        declared=np.full(rows, -1, dtype=np.int64),
        score=rng.beta(8, 2, rows),
        produced_ms=np.full(rows, 2_000, dtype=np.int64),
    )
    return made, scored


def calls(made: Executions, seed: int = 8) -> Calls:
    """The same executions with timelines and tokens, not scored and not priced yet."""
    rng = np.random.default_rng(seed)
    rows = len(made)
    unknown = np.full(rows, np.nan)
    return Calls(
        profile_ids=made.profile_ids,
        slice_ids=made.slice_ids,
        case_id=made.case_id,
        group_id=made.group_id,
        enveloped=np.ones(rows, dtype=bool),
        replicate=np.char.replace(made.replicate_id, b"replicate-", b"").astype(np.int64),
        profile=made.profile,
        outcome=np.where(made.succeeded, int(CallOutcome.SUCCESS), int(CallOutcome.FAILURE)),
        lack=np.full(rows, int(Lack.NONE)),
        slices=made.slices,
        weight=made.weight,
        signal=made.signal,
        started_ms=np.sort(rng.random(rows)) * 3_600_000,
        ttft_ms=made.ttft_ms,
        itl_ms=np.where(made.succeeded, made.e2e_ms / 100, np.nan),
        tpot_ms=np.where(made.succeeded, made.e2e_ms / 100, np.nan),
        e2e_ms=np.where(made.succeeded, made.e2e_ms, np.nan),
        input_tokens=np.where(made.succeeded, rng.integers(50, 2_000, rows), np.nan),
        cached_tokens=unknown,
        output_tokens=np.where(made.succeeded, rng.integers(10, 128, rows), np.nan),
        cost_usd=unknown,
        score=unknown,
    )
