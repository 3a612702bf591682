"""Evaluator evidence of a study: content-addressed files of canonical lines, each with its signed batch.

::

    studies/<study>/evidence/<sha256>.ndjson     the evidence, one canonical record per line
                             <sha256>.json       tasc-evidence-batch-v1: what was verified about it

A file counts once its batch is there, so an end between the two leaves nothing half. Neither is ever changed. What is not
what its name says, or has no batch of a collector key of the ring, is refused by name and never used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tasc_collector.canonical import canonical_bytes, sha256_hex
from tasc_collector.contracts.base import Parsed
from tasc_collector.contracts.evidence import EvaluatorEvidence
from tasc_collector.contracts.evidence_batch import EvidenceBatch
from tasc_collector.contracts.operations import KeyRing
from tasc_collector.errors import DigestMismatch
from tasc_collector.limits import RECORD_FILE_MAX_BYTES
from tasc_collector.wire.records import read_bounded, read_ndjson_records, read_record_file
from tasc_pipeline.home import keys
from tasc_pipeline.home.files import make_folder, write_file
from tasc_pipeline.home.layout import Home

_WAY_OUT: Final = "restore the file from a backup, or take it away and add the evidence again: tasc evidence add"


@dataclass(frozen=True, slots=True)
class StoredEvidence:
    """One piece of evidence and the public key under which its signature was verified when it was taken in."""

    parsed: Parsed[EvaluatorEvidence]
    digest: str
    spki: str


def content_of(evidence: Sequence[Parsed[EvaluatorEvidence]]) -> bytes:
    """The file's bytes: canonical lines, sorted."""
    return b"".join(sorted(canonical_bytes(item.value) + b"\n" for item in evidence))


def content_digest(content: bytes) -> str:
    """Digest of a file's bytes, as its batch names it."""
    return f"sha256:{sha256_hex(content)}"


def store(home: Home, batch: EvidenceBatch, content: bytes) -> Path:
    """Write a file and then its batch; the same again changes nothing."""
    folder = home.evidence(batch.study_id)
    make_folder(folder)
    name = batch.content_digest.removeprefix("sha256:")
    write_file(folder / f"{name}.ndjson", content)
    if not (folder / f"{name}.json").exists():
        write_file(folder / f"{name}.json", batch.canonical())
    return folder / f"{name}.ndjson"


def batches(home: Home, study_id: str, ring: KeyRing) -> list[EvidenceBatch]:
    """Every batch of a study, signatures checked, in order of their content's digest.

    Raises:
        InputError: a batch breaks a rule, or is in the place of another.
        SignatureError: no collector key of the ring signed it.
    """
    folder = home.evidence(study_id)
    found = []
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        parsed = read_record_file(EvidenceBatch, path)
        batch = parsed.record
        signer = keys.public_key(
            ring, batch.signature.authority_key_id, ("collector",), batch.added_at, where=str(path)
        )
        EvidenceBatch.check_signature(parsed, signer, where=str(path))
        if path.stem != batch.content_digest.removeprefix("sha256:") or batch.study_id != study_id:
            raise DigestMismatch("this batch belongs to another file or study", where=str(path), way_out=_WAY_OUT)
        found.append(batch)
    return found


def read(home: Home, batch: EvidenceBatch) -> Iterator[StoredEvidence]:
    """The evidence of a batch.

    Raises:
        DigestMismatch: the file is not the one that was taken in.
        InputError: it is missing.
    """
    path = home.evidence(batch.study_id) / f"{batch.content_digest.removeprefix('sha256:')}.ndjson"
    if content_digest(read_bounded(path, RECORD_FILE_MAX_BYTES)) != batch.content_digest:
        raise DigestMismatch("the evidence is not what was taken in", where=str(path), way_out=_WAY_OUT)
    spki = {key.key_id: key.public_key_spki for key in batch.keys}
    for parsed in read_ndjson_records(EvaluatorEvidence, path):
        yield StoredEvidence(parsed, EvaluatorEvidence.digest_of(parsed.value), spki[parsed.record.key_id])
