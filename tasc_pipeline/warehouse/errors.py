"""What can go wrong with the warehouse. The journal is the truth; everything here can be made again from it."""

from __future__ import annotations

from tasc_collector.errors import TascError


class WarehouseError(TascError):
    """A part, manifest or view file could not be written; what was published before still stands."""


class PartCorruptError(WarehouseError):
    """A part or manifest is not what was published: missing, cut, changed or signed by nobody known."""
