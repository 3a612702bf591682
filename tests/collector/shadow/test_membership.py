"""Group split and window sample against published buckets, and who belongs to a sealed window."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasc_collector.canonical import digest
from tasc_collector.contracts.envelope import TraceEnvelope
from tasc_collector.contracts.membership import MembershipRule, SplitMembership
from tasc_collector.contracts.protocol import ExperimentProtocol
from tasc_collector.shadow.membership import group_bucket, group_split, is_selected, sample_bucket
from tasc_collector.wire.records import read_ndjson_records, read_record_file


def _split(count: int, holdout: tuple[int, ...]) -> SplitMembership:
    return SplitMembership(
        seed="support-routing-split-2",
        bucket_count=count,
        development_buckets=tuple(bucket for bucket in range(count) if bucket not in holdout),
        holdout_buckets=holdout,
    )


@pytest.mark.parametrize(
    ("group", "count", "bucket"),
    [
        ("conversation-1", 10, 0),
        ("conversation-1", 256, 154),
        ("conversation-2", 10, 7),
        ("conversation-2", 2, 1),
        ("holdout-group", 10, 8),
    ],
)
def test_published_group_buckets(group: str, count: int, bucket: int) -> None:
    assert group_bucket(_split(count, (count - 1,)), group) == bucket


def test_a_bucket_decides_the_split() -> None:
    membership = _split(10, (8, 9))
    assert group_split(membership, "conversation-2") == "dev"
    assert group_split(membership, "holdout-group") == "holdout"


def test_published_sample_bucket_and_its_edge() -> None:
    rule = MembershipRule(seed="support-routing-shadow-2", sample_basis_points=5841)
    assert sample_bucket(rule, "case-1", "replicate-0") == 5841
    assert not is_selected(rule, "case-1", "replicate-0")
    assert is_selected(rule.model_copy(update={"sample_basis_points": 5842}), "case-1", "replicate-0")
    assert is_selected(rule.model_copy(update={"sample_basis_points": 8969}), "case-1", "replicate-0")


def test_all_and_none() -> None:
    cases = [(f"case-{number}", f"replicate-{number % 3}") for number in range(200)]
    everything = MembershipRule(seed="seed", sample_basis_points=10_000)
    nothing = MembershipRule(seed="seed", sample_basis_points=0)
    assert all(is_selected(everything, *case) for case in cases)
    assert not any(is_selected(nothing, *case) for case in cases)


def test_a_sample_of_half_takes_about_half() -> None:
    rule = MembershipRule(seed="seed", sample_basis_points=5_000)
    taken = sum(is_selected(rule, f"case-{number}", "replicate-0") for number in range(2_000))
    assert 900 < taken < 1_100


def test_published_digests_are_hashed_over_exactly_these_members() -> None:
    sample = {
        "algorithm": "tasc-seeded-sha256-case-replicate-basis-points-v1",
        "caseId": "case-1",
        "replicateId": "replicate-0",
        "seed": "support-routing-shadow-2",
    }
    assert digest("tasc/seeded-sha256-case-replicate-basis-points/v1", sample) == (
        "sha256:9d65698377545936aabeb42efe95375f31feb19f005732ffb54458867baf8da1"
    )
    group = {
        "algorithm": "tasc-seeded-sha256-group-bucket-v1",
        "groupId": "conversation-2",
        "seed": "support-routing-split-2",
    }
    assert digest("tasc/seeded-sha256-group-bucket/v1", group) == (
        "sha256:cc800acd15546082879ebf7ba666b88d6910420ff75fd16599a8adebe9c0dc8d"
    )


def test_the_split_of_every_published_trace_is_found_again(shared: Path) -> None:
    folder = shared / "interop"
    protocol = read_record_file(ExperimentProtocol, folder / "protocol.json").record
    traces = [
        parsed.record
        for path in sorted(folder.glob("*-traces.ndjson"))
        for parsed in read_ndjson_records(TraceEnvelope, path)
    ]
    offline = [trace for trace in traces if trace.split != "online"]
    assert offline
    assert [group_split(protocol.split_membership, trace.group_id) for trace in offline] == [
        trace.split for trace in offline
    ]
