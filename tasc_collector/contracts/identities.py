"""How a record points at content without holding it: keyed identities and references (original, section 3)."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Tag

from tasc_collector.contracts.base import Model, SparseModel
from tasc_collector.contracts.rules import Omittable
from tasc_collector.contracts.scalars import Digest, Hex64, OpaqueId, Slug


class KeyedIdentity(Model):
    """HMAC-SHA-256 of content under a study's payload key: equal content is recognizable, the content is not."""

    algorithm: Literal["hmac-sha256"] = "hmac-sha256"
    key_id: Slug
    value: Hex64


class ControlledReference(SparseModel):
    """Where an operator's own store keeps content. Ids are opaque: they hold no ``..`` and no address."""

    omitted: ClassVar[frozenset[str]] = frozenset({"digest"})

    kind: Literal["controlled-reference"] = "controlled-reference"
    store_id: OpaqueId
    reference_id: OpaqueId
    digest: Omittable[Digest] = None


def _form(value: Any) -> str:  # Any: a JSON value or a model
    if isinstance(value, dict):
        return "reference" if "kind" in value else "identity"
    return "reference" if isinstance(value, ControlledReference) else "identity"


PayloadReference = Annotated[
    Annotated[KeyedIdentity, Tag("identity")] | Annotated[ControlledReference, Tag("reference")], Discriminator(_form)
]
"""A payload by its keyed identity or by a controlled reference."""
