"""Rules that many records share: left-out fields, order, uniqueness, time order. Each message names the rule."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BeforeValidator, ValidationInfo

from tasc_collector.canonical import utf16_key
from tasc_collector.contracts.scalars import Digest, OpaqueId, Slug

T = TypeVar("T")
H = TypeVar("H", bound=Hashable)


def _absent_not_null(value: Any, info: ValidationInfo) -> Any:  # Any: a value before its own check
    if value is None and info.mode == "json":
        raise ValueError("leave the field out rather than null")
    return value


Omittable = Annotated[T | None, BeforeValidator(_absent_not_null)]
"""A field of a ``SparseModel`` that may be absent in JSON, and is then ``None``; null is refused."""


def unique(items: tuple[H, ...]) -> tuple[H, ...]:
    """``items``, or ``ValueError`` where one occurs twice."""
    if len(set(items)) != len(items):
        raise ValueError("must not repeat an item")
    return items


def ascending(items: tuple[str, ...]) -> tuple[str, ...]:
    """``items``, or ``ValueError`` where they are not sorted by UTF-16 unit or one occurs twice."""
    if list(unique(items)) != sorted(items, key=utf16_key):
        raise ValueError("must be sorted")
    return items


def sorted_unique(items: tuple[str, ...]) -> tuple[str, ...]:
    """``items`` sorted by UTF-16 unit, or ``ValueError`` where one occurs twice."""
    return tuple(sorted(unique(items), key=utf16_key))


UniqueSlugs = Annotated[tuple[Slug, ...], AfterValidator(unique)]
AscendingDigests = Annotated[tuple[Digest, ...], AfterValidator(ascending)]
SortedIds = Annotated[tuple[OpaqueId, ...], AfterValidator(sorted_unique)]
"""Opaque ids, put in order when read."""


def require(condition: bool, rule: str) -> None:  # noqa: FBT001  # an assertion reads as one
    """Raise ``ValueError`` with the rule where the condition does not hold."""
    if not condition:
        raise ValueError(rule)


def require_unique(items: Iterable[Hashable], rule: str) -> None:
    """Raise ``ValueError`` with the rule where an item occurs twice."""
    seen = list(items)
    require(len(set(seen)) == len(seen), rule)


def require_in_order(instants: Sequence[str | None], rule: str) -> None:
    """Raise ``ValueError`` where the known timestamps decrease. Their fixed form makes text order time order."""
    known = [instant for instant in instants if instant is not None]
    require(known == sorted(known), rule)
