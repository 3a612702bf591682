"""Keys in use: a window before and one after a rotation, a successor with the new keys, and what a revocation refuses."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from tasc_collector.contracts.envelope import TraceEnvelope
from tasc_collector.contracts.scalars import format_timestamp
from tasc_collector.errors import NotAuthorized, TascError
from tasc_collector.wire.records import read_record
from tasc_pipeline.home import keys
from tasc_pipeline.home.key_changes import revoke, rotate
from tasc_pipeline.home.windows import WindowFolder
from tasc_pipeline.steps import close, collect, plan, publish, seal, verify
from tasc_pipeline.steps.approved import load_approved
from tasc_pipeline.steps.collected import read_collected
from tasc_pipeline.steps.fork_study import fork_study
from tests.support.authorized import MovedClock
from tests.support.window import World, now, world


def nothing(_: object) -> None:
    """Progress that nobody looks at."""


def approved(made: World, study_id: str) -> str:
    key = seal.seal(made.home, study_id, seal.SealOptions(lead_s=0.2), now()).window_key
    issued, _ = plan.make_plan(made.home, key, now(), write=True)
    plan.approve(made.home, key, issued.digest, now())
    return key


def finished(made: World, study_id: str) -> str:
    key = approved(made, study_id)
    assert collect.collect(made.home, key, show=nothing).status == "complete"
    publish.publish(made.home, key)
    close.close(made.home, key)
    return key


def signers(made: World, window_key: str) -> set[tuple[str, str]]:
    """Dispatch and collector key ids of the window's envelopes."""
    found = load_approved(made.home, window_key)
    journal_key = keys.hmac_key(made.home, found.study.study.keys.journal_hmac)
    envelopes = [
        read_record(TraceEnvelope, item.envelope_bytes).record
        for item in read_collected(found, made.home.run(window_key), journal_key).executions
        if item.envelope_bytes is not None
    ]
    return {(item.dispatch_intent.authority_key_id, item.collector_attestation.authority_key_id) for item in envelopes}


def named(made: World, study_id: str) -> tuple[str, str]:
    rules = plan.load_study(made.home, study_id).rules
    return rules.dispatch_authority.key_id, rules.collector_authority.key_id


def sound(made: World, window_key: str) -> list[str]:
    lines = verify.verify_window(made.home, window_key)
    assert "both signatures of each, by keys that were valid then" in lines[2]
    return lines


def test_windows_before_and_after_a_rotation_verify_and_a_revocation_refuses_from_its_date(tmp_path: Path) -> None:
    with world(tmp_path, cases=2, warm_up=0) as made:
        home = made.home
        before = finished(made, "first")
        old = named(made, "first")
        new = [rotate(home, role, now()).new.key_id for role in ("dispatch", "collector")]
        operator = rotate(home, "operator", now()).new.key_id

        # within the overlap a study goes on with the keys that it names; everything else is signed by the new ones
        after = finished(made, "first")
        ring = keys.read_ring(home)
        assert signers(made, before) == signers(made, after) == {old}
        folder = WindowFolder(home, after)
        assert folder.link(ring).record.signature.authority_key_id == new[1]
        assert folder.approval(ring).record.signature.authority_key_id == operator
        for key in (before, after):
            sound(made, key)

        # a successor names the new keys; nothing else needs to change
        fork = fork_study(home, "first", (), now()).fork
        assert {change.field for change in fork.changes} == {"dispatch_authority.key_id", "collector_authority.key_id"}
        successor = finished(made, fork.study_id)
        assert named(made, fork.study_id) == tuple(new)
        assert signers(made, successor) == {tuple(new)}
        for key in (before, after, successor):
            sound(made, key)

        # revoked from now: what was signed before keeps counting, and nothing more is sent under it
        pending = approved(made, "first")
        calls = made.inference_calls
        revoke(home, old[1], now())
        with pytest.raises(NotAuthorized, match="the collector key that the study names may not sign now") as caught:
            collect.collect(home, pending, show=nothing)
        assert caught.value.rule is not None and caught.value.rule.startswith("revoked from ")
        assert caught.value.way_out == "make a successor that names the new keys: tasc study fork first"
        assert made.inference_calls == calls
        for key in (before, after, successor):
            sound(made, key)

        # revoked from an earlier date, because it had been lost: its signatures from then on do not count
        revoke(home, old[1], now(), since=format_timestamp(now() - timedelta(days=1)))
        with pytest.raises(TascError, match="revoked from"):
            verify.verify_window(home, before)
        with pytest.raises(NotAuthorized, match="was revoked when it signed"):
            WindowFolder(home, before).link(keys.read_ring(home))
        with pytest.raises(TascError, match=r"signatures: trace .* was revoked when it signed .*revoked from"):
            verify.verify_window(home, after)
        sound(made, successor)


def test_a_window_is_settled_after_its_dispatch_key_has_ended(tmp_path: Path) -> None:
    with world(tmp_path, cases=2, warm_up=0) as made:
        key = approved(made, "first")
        revoke(made.home, named(made, "first")[0], now())
        with pytest.raises(NotAuthorized, match="dispatch key"):
            collect.collect(made.home, key, show=nothing)
        over = MovedClock()
        over.ahead = timedelta(hours=25)
        settled = collect.collect(made.home, key, show=nothing, send=False, clock=over)
        assert (settled.status, settled.states, made.inference_calls) == ("complete", {"not_attempted": 4}, (0, 0))
