"""Which Parquet parts make up one table of one window: ``tasc-part-manifest-v1``. Readers follow it, never a glob."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import StringConstraints

from tasc_collector.contracts.base import Model
from tasc_collector.contracts.scalars import Count, Digest, Hex64, Slug, WindowKey
from tasc_collector.contracts.signed import SignedRecord

PartFile = Annotated[str, StringConstraints(pattern=r"^part-[0-9a-f]{8}\.parquet$")]


class Part(Model):
    """One file: its name beside the manifest, rows, bytes and SHA-256."""

    file: PartFile
    rows: Count
    bytes: Count
    sha256: Hex64


class PartManifest(SignedRecord):
    """The parts of one table and window, signed with the collector key."""

    domain: ClassVar[str] = "tasc/part-manifest/v1"

    version: Literal["tasc-part-manifest-v1"] = "tasc-part-manifest-v1"
    table: Slug
    schema_id: Slug
    window_key: WindowKey
    source_digest: Digest | None
    """What the rows were derived from (the trace set, a record), where there is one."""
    parts: tuple[Part, ...]


class CoveredWindow(Model):
    """A window whose part is inside a compacted one, and which part that was."""

    window_key: WindowKey
    sha256: Hex64
    rows: Count


class CompactedManifest(SignedRecord):
    """``tasc-compacted-manifest-v1``: parts that hold the rows of many windows of one table, signed with the collector key."""

    domain: ClassVar[str] = "tasc/compacted-manifest/v1"

    version: Literal["tasc-compacted-manifest-v1"] = "tasc-compacted-manifest-v1"
    table: Slug
    schema_id: Slug
    generation: Count
    """Of two compactions that cover a window the one of the higher generation holds."""
    covers: tuple[CoveredWindow, ...]
    parts: tuple[Part, ...]
