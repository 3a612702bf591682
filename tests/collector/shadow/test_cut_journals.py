"""A finished journal that is cut after one record of its last execution, and resumed.

An outcome, its envelope and its completion share one commit, so a crash seldom leaves a part of them; a disk may.
"""

from __future__ import annotations

import pytest

from tasc_collector.journal import RecordKind
from tasc_collector.journal.format import SEAL_NAME, segment_name
from tasc_collector.shadow.context import RunContext
from tests.support.memory_disk import MemoryDisk
from tests.support.memory_server import MemoryServer
from tests.support.run_contexts import Setup
from tests.support.runs import FOLDER, ORIGINS, envelopes, memory_run, records, run

ONE_CASE = Setup(ORIGINS, cases=["one"], plan={"load_model": {"kind": "closed", "concurrency": 1}})


def cut_after(context: RunContext, disk: MemoryDisk, kind: RecordKind) -> str:
    """Keep the journal up to the last record of this kind, and no seal; returns the trace of that record."""
    found = records(context)
    last = max(index for index, record in enumerate(found) if record.kind is kind)
    end = found[last + 1].offset
    inode = disk.names[FOLDER / segment_name(1)]
    del inode.seen[end:], inode.kept[end:]
    for names in (disk.names, disk.kept_names):
        del names[FOLDER / SEAL_NAME]
    return found[last].trace_id


@pytest.mark.parametrize("kind", [RecordKind.OUTCOME, RecordKind.ACCEPTED, RecordKind.COMPLETE])
def test_a_cut_journal_is_finished_without_a_send_and_with_one_envelope(kind: RecordKind) -> None:
    disk, server = MemoryDisk(), MemoryServer()
    context = memory_run(server, disk, setup=ONE_CASE)
    first, before = run(context), {envelope.trace_id: envelope for envelope in envelopes(context)}
    assert first.states == {"success": 2} and server.connects == 2
    trace = cut_after(context, disk, kind)
    kinds = [record.kind for record in records(context) if record.trace_id == trace]
    assert kinds[-1] is kind, "the cut is where it should be"

    again = run(context)
    assert (again.status, again.states, again.reasons, again.sent_calls) == ("complete", first.states, {}, 0)
    assert server.connects == 2
    after = envelopes(context)
    assert sorted(envelope.trace_id for envelope in after) == sorted(before), "one for each execution"
    (finished,) = [envelope for envelope in after if envelope.trace_id == trace]
    assert finished.attempts == before[trace].attempts
    assert finished.dispatch_intent == before[trace].dispatch_intent
    kinds = [record.kind for record in records(context) if record.trace_id == trace]
    assert [word.value for word in kinds] == ["intent", "lease", "outcome", "accepted", "complete"]
    sealed = run(context)
    assert (sealed.states, sealed.sent_calls) == (first.states, 0)
