"""Capability receipts: content-addressed files, unpartitioned; a plan pins their digests.

A receipt's file is named by its digest. A file that is not what its name says, or that no collector key of the ring
signed, is never used: it is left where it is, and whoever needed it is told its name.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tasc_collector.contracts.base import Parsed
from tasc_collector.contracts.collection import CollectionPlan, PlanTarget
from tasc_collector.contracts.operations import KeyRing
from tasc_collector.contracts.receipt import CapabilityReceipt
from tasc_collector.errors import DigestMismatch, InputError, NotAuthorized, TascError
from tasc_collector.probes.receipts import Scope
from tasc_collector.wire.records import read_record_file
from tasc_pipeline.home import keys
from tasc_pipeline.home.files import write_file
from tasc_pipeline.home.layout import Home


def path_of(home: Home, digest: str) -> Path:
    """File of a receipt."""
    return home.receipts / f"{digest.removeprefix('sha256:')}.json"


def store(home: Home, receipt: CapabilityReceipt) -> Path:
    """Write a receipt under its digest."""
    path = path_of(home, receipt.digest)
    write_file(path, receipt.canonical())
    return path


def probe_command(study_id: str, alias: str, route: str) -> str:
    """The command that obtains the receipt for a route."""
    return f"tasc probe {study_id}/{alias} {route} --effect inference-canary"


def load(home: Home, ring: KeyRing, digest: str, target: PlanTarget, plan: CollectionPlan) -> CapabilityReceipt:
    """Load and verify one pinned receipt for one target of a plan.

    Raises:
        InputError: it is missing, altered, expired before the plan was issued, or for another endpoint, build or model.
        SignatureError: no collector key of the ring signed it.
    """
    path = path_of(home, digest)
    way_out = f"run: {probe_command(plan.study_id, target.endpoint_alias, target.route)}, then seal and plan again"
    if not path.is_file():
        raise InputError(
            "a receipt that the plan pins is missing", where=target.profile_id, field=digest, way_out=way_out
        )
    receipt = _verified(ring, path, digest, way_out).record
    other = Scope.of(target).differs(receipt)
    if other is not None:
        raise NotAuthorized(
            "the receipt is for something else than the plan's target",
            where=target.profile_id,
            field=other,
            way_out=way_out,
        )
    if not receipt.observed_at <= plan.issued_at < receipt.valid_until:
        raise NotAuthorized(
            "the receipt was not valid when the plan was issued",
            where=target.profile_id,
            field="validUntil",
            way_out=way_out,
        )
    return receipt


@dataclass(frozen=True, slots=True)
class StoredReceipts:
    """What the folder holds.

    Args:
        receipts: those that can be trusted, oldest observation first.
        untrusted: names of files that cannot.
    """

    receipts: tuple[CapabilityReceipt, ...]
    untrusted: tuple[str, ...]


def stored(home: Home, ring: KeyRing) -> StoredReceipts:
    """Read and verify every receipt of the state folder."""
    found: list[CapabilityReceipt] = []
    untrusted: list[str] = []
    for path in sorted(home.receipts.glob("*.json")):
        try:
            found.append(_verified(ring, path, f"sha256:{path.stem}", "probe again").record)
        except TascError:
            untrusted.append(path.name)
    return StoredReceipts(tuple(sorted(found, key=lambda item: (item.observed_at, item.digest))), tuple(untrusted))


def _verified(ring: KeyRing, path: Path, digest: str, way_out: str) -> Parsed[CapabilityReceipt]:
    parsed = read_record_file(CapabilityReceipt, path)
    receipt = parsed.record
    if receipt.digest != digest:
        raise DigestMismatch("the receipt is not what its name says", where=path.name, way_out=way_out)
    key = keys.public_key(
        ring, receipt.signature.authority_key_id, ("collector",), receipt.observed_at, where=path.name
    )
    CapabilityReceipt.check_signature(parsed, key, where=path.name)
    return parsed
