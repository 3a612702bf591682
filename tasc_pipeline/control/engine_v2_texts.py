"""Canonical JSON of the executions and pairs of an engine v2 table, made a block at a time from columns. Pure.

A table has up to a million executions, and each holds an envelope and a piece of evidence whole. Both are at hand in
canonical form, so an execution is a few short texts around two long ones: every text is one template filled from
columns, and the texts of a block are laid out by slices and joined once.

Ids, digests, instants and signatures are ASCII without anything to escape, so they stand in JSON as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np
import orjson

from tasc_collector.canonical import canonical_bytes
from tasc_collector.contracts.base import Parsed
from tasc_collector.contracts.envelope import TraceEnvelope
from tasc_collector.contracts.evidence import Scored
from tasc_collector.contracts.membership import SplitMembership
from tasc_collector.shadow.membership import group_bucket
from tasc_pipeline.control.engine_v2_diagnostics import Backings, Json
from tasc_pipeline.control.engine_v2_evidence import numbers, scored_evidence
from tasc_pipeline.control.identifiers import Codes, Ids, at, texts
from tasc_pipeline.control.joined_rows import SPLITS, Evidence, Executions, JoinedRows, Outcome
from tasc_pipeline.control.stored import StoredReceipts, StoredTraces, Text

_Reader: TypeAlias = Callable[[Sequence[int]], Sequence[Text]]
_BLOCK: Final = 4_096
"""Rows of a block: little beside the columns, and much beside what it costs to hand a block to another thread."""
_SPLITS: Final = tuple(name.encode() for name in SPLITS)
_ONLINE: Final = SPLITS.index("online")
_OUTCOME_KIND: Final = {
    Outcome.FAILURE_ZERO: "protocol-failure-zero",
    Outcome.AMBIGUOUS: "ambiguous-execution",
    Outcome.ABSTAINED: "abstained",
    Outcome.MISSING: "missing-evidence",
    Outcome.INVALID: "invalid-evidence",
}
_HEAD: Final = b'{"caseId":"%b","executionKey":"sha256:%b","groupId":"%b","outcome":'
_SCORED: Final = b'{"evidence":'
_SCORE: Final = (
    b',"evidenceAccepted":true,"evidenceDigest":"sha256:%b","kind":"scored","range":{"maximum":1,"minimum":0},"score":%b,'
    b'"verification":%b}'
)
_PLACE: Final = b',"profileId":"%b","replicateId":"%b","split":"%b","splitBucket":%b,"terminalStatus":"%b","trace":'
_TAIL: Final = b',"traceId":"%b"}'
_PIECES: Final = 7
"""Head, start of a score, evidence, rest of the score, place, envelope, tail."""
_PAIR: Final = (
    b'{"caseId":"%b","declaredTrafficWeight":%b,"executionKeys":["sha256:%b"],"groupId":"%b","pairKey":"sha256:%b",'
    b'"profileIds":%b,"replicateId":"%b","slices":%b,"split":"%b"}'
)
_NEXT_KEY: Final = b'","sha256:'


@dataclass(frozen=True)
class ExecutionTexts:
    """The executions of a table.

    Args:
        rows: the joined rows.
        evidence: what the executions were joined with.
        membership: how groups become buckets.
        traces: the envelopes, in the order in which they were given.
        backings: the evidence itself.
    """

    rows: JoinedRows
    evidence: Evidence
    membership: SplitMembership
    traces: Sequence[Parsed[TraceEnvelope]]
    backings: Backings

    def blocks(self) -> Iterator[bytes]:
        """The executions in the order of the rows, blocks of them with commas between."""
        envelopes, evidence = _envelopes(self.traces), _scored_evidence(self.backings)
        for start in range(0, len(self.rows), _BLOCK):
            yield self._block(slice(start, min(start + _BLOCK, len(self.rows))), envelopes, evidence)

    def _block(self, block: slice, envelopes: _Reader, evidence: _Reader) -> bytes:
        rows, own = self.rows, self.rows.executions
        found: list[Text] = [b""] * (_PIECES * (block.stop - block.start))
        held = envelopes(rows.source[block].tolist())
        identity = zip(own.case_id[block].tolist(), own.key[block].tolist(), own.group_id[block].tolist(), strict=True)
        found[0::_PIECES] = [_HEAD % item for item in identity]
        self._outcomes(found, block, evidence)
        place = zip(
            map(self._profiles.__getitem__, own.profile[block].tolist()),
            own.replicate_id[block].tolist(),
            map(_SPLITS.__getitem__, own.split[block].tolist()),
            self._bucket_texts(block),
            _statuses(own.succeeded[block].tolist(), held),
            strict=True,
        )
        found[4::_PIECES] = [_PLACE % item for item in place]
        found[5::_PIECES] = held
        tails = [_TAIL % item for item in own.trace_id[block].tolist()]
        found[6::_PIECES] = [*(item + b"," for item in tails[:-1]), tails[-1]]
        return b"".join(found)

    def _outcomes(self, found: list[Text], block: slice, evidence: _Reader) -> None:
        """What each row counts as, with the evidence behind it, into its pieces."""
        rows = self.rows
        is_scored = rows.outcome[block] == Outcome.SCORED
        behind, scored = rows.evidence[block][is_scored], is_scored.tolist()
        held = iter(evidence(behind.tolist()))
        digests, scores = at(self.evidence.digest, behind).tolist(), numbers(rows.score[block][is_scored])
        written = iter([_SCORE % item for item in zip(digests, scores, self._verifications(behind), strict=True)])
        found[1::_PIECES] = [_SCORED] * len(scored)
        found[2::_PIECES] = [next(held) if one else b"" for one in scored]
        found[3::_PIECES] = [next(written) if one else b"" for one in scored]
        for row in np.flatnonzero(~is_scored).tolist():
            found[_PIECES * row + 1] = self._without_score(block.start + row)

    def _without_score(self, row: int) -> bytes:
        rows, outcome = self.rows, Outcome(self.rows.outcome[row])
        found: Json = {"kind": _OUTCOME_KIND[outcome]}
        if outcome is Outcome.FAILURE_ZERO:
            return canonical_bytes({**found, "score": 0, "evidence": None})
        reason = rows.reason_words[rows.reason[row]]
        if outcome is Outcome.AMBIGUOUS:
            return canonical_bytes({**found, "reasonCode": reason, "score": None, "evidence": None})
        found |= self.backings.of(int(rows.evidence[row])) | {"evidenceAccepted": bool(rows.accepted[row])}
        return canonical_bytes({**found, "reasonCode": reason})

    @cached_property
    def _verified(self) -> dict[int, bytes]:
        return {}

    def _verifications(self, evidence: Codes) -> list[bytes]:
        """What the check of each piece found; made once for all of which it found the same."""
        checks = self.evidence.check[evidence]
        for check, first in zip(*np.unique(checks, return_index=True), strict=True):
            if check not in self._verified:
                self._verified[int(check)] = canonical_bytes(self.backings.verification(int(evidence[first])))
        return [self._verified[check] for check in checks.tolist()]

    @cached_property
    def _profiles(self) -> tuple[bytes, ...]:
        return tuple(name.encode() for name in self.rows.executions.profile_ids)

    @cached_property
    def _buckets(self) -> list[bytes]:
        """Of each group."""
        return [b"%d" % group_bucket(self.membership, name) for name in texts(self.rows.group_ids)]

    def _bucket_texts(self, block: slice) -> list[bytes]:
        splits, groups = self.rows.executions.split[block].tolist(), self.rows.group[block].tolist()
        return [
            b"null" if split == _ONLINE else self._buckets[group] for split, group in zip(splits, groups, strict=True)
        ]


def pair_texts(rows: JoinedRows, units: Codes, keys: Ids) -> Iterator[bytes]:
    """The pairs of a table, blocks of them with commas between.

    Args:
        rows: the joined rows.
        units: those with all profiles, in their order.
        keys: pair key of each, hex.
    """
    own, slices = rows.executions, _Slices(rows.executions)
    profiles = canonical_bytes(list(own.profile_ids))
    for start in range(0, len(units), _BLOCK):
        block = slice(start, start + _BLOCK)
        members = rows.unit_rows[units[block]]
        first = members[:, 0]
        executions = np.sort(at(own.key, members.ravel()).reshape(members.shape), axis=1)
        columns = zip(
            at(own.case_id, first).tolist(),
            numbers(own.weight[first]),
            map(_NEXT_KEY.join, executions.tolist()),
            at(own.group_id, first).tolist(),
            keys[block].tolist(),
            [profiles] * len(first),
            at(own.replicate_id, first).tolist(),
            slices.of(first),
            map(_SPLITS.__getitem__, own.split[first].tolist()),
            strict=True,
        )
        yield b",".join([_PAIR % item for item in columns])


class _Slices:
    """Canonical JSON of each row's slices."""

    def __init__(self, executions: Executions) -> None:
        self._executions = executions
        self._known: dict[bytes, bytes] = {}

    def of(self, rows: Codes) -> list[bytes]:
        """The slices of these rows, sorted."""
        return [self._text(within) for within in map(bytes, self._executions.slices[rows])]

    def _text(self, within: bytes) -> bytes:
        if within not in self._known:
            names = zip(self._executions.slice_ids, within, strict=True)
            self._known[within] = canonical_bytes([name for name, member in names if member])
        return self._known[within]


def _statuses(succeeded: Sequence[bool], envelopes: Sequence[Text]) -> list[bytes]:
    """How the last attempt of each ended."""
    return [
        b"success" if well else orjson.loads(envelope)["attempts"][-1]["status"].encode()
        for well, envelope in zip(succeeded, envelopes, strict=True)
    ]


def _envelopes(traces: Sequence[Parsed[TraceEnvelope]]) -> _Reader:
    if isinstance(traces, StoredTraces):
        return traces.canonical
    return lambda places: [canonical_bytes(traces[place].value) for place in places]


def _scored_evidence(backings: Backings) -> _Reader:
    """Evidence that gave a score; only such is asked for."""
    receipts = backings.receipts
    if isinstance(receipts, StoredReceipts):
        return receipts.canonical

    def read(places: Sequence[int]) -> Sequence[Text]:
        found = []
        for item in (receipts[place].evidence for place in places):
            assert isinstance(item.outcome, Scored)  # noqa: S101 - the join takes a score from nothing else
            found.append(scored_evidence(item, item.outcome))
        return found

    return read
