"""In which order the profiles of a replicate are called, and what the replicate is called (original, sections 4.1,
4.3).

Rules:

1. The base order is the champion, then the candidates in the study's order; n profiles.
2. Replicate indexes are taken in blocks of n. In a block, each index has the digest of the seed digest, case, group and
   index; ranked by digest (ties by index), the rank is how far that replicate's order is rotated to the left. So a full
   block is a cyclic Latin square whose rows stand in a pseudo-random order.
3. The replicate id is a public digest: the payload key cannot steer membership or order.
4. The original project hashes the *plan's* digest, so whoever issues a plan can draw again by issuing another. A
   window of ours hashes its *declaration's* digest, under domains of its own. An embedded shadow run plan keeps the
   original's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from tasc_collector.canonical import JsonValue, digest
from tasc_collector.errors import InputError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class OrderDomains:
    """Digest domains of replicate ids and order, and the JSON name of the digest that seeds them."""

    replicate_id: str
    counterbalance: str
    seed_field: str


PLAN_ORDER: Final = OrderDomains("tasc/shadow-replicate-id/v2", "tasc/shadow-counterbalance/v2", "planDigest")
"""The original project's: seeded by a shadow run plan's digest."""
WINDOW_ORDER: Final = OrderDomains("tasc/window-replicate-id/v1", "tasc/window-counterbalance/v1", "declarationDigest")
"""Ours: seeded by a window declaration's digest."""


@dataclass(frozen=True, slots=True)
class OrderSeed:
    """What fixes replicate ids and order of a whole window.

    Args:
        seed_digest: digest of the declaration (``WINDOW_ORDER``) or of the shadow run plan (``PLAN_ORDER``).
        domains: which of the two.
    """

    seed_digest: str
    domains: OrderDomains = WINDOW_ORDER

    def _value(self, case_id: str, group_id: str, replicate_index: int) -> JsonValue:
        return {
            self.domains.seed_field: self.seed_digest,
            "caseId": case_id,
            "groupId": group_id,
            "replicateIndex": replicate_index,
        }

    def replicate_id(self, case_id: str, group_id: str, replicate_index: int) -> str:
        """``replicate-<64 hex>`` of the index-th replicate of a case (rule 3)."""
        return "replicate-" + digest(self.domains.replicate_id, self._value(case_id, group_id, replicate_index))[7:]

    def rotation(self, case_id: str, group_id: str, replicate_index: int, profiles: int) -> int:
        """How far the base order is rotated to the left for a replicate, 0 to ``profiles`` - 1 (rule 2).

        Raises:
            InputError: no profiles, or a negative index.
        """
        if profiles < 1 or replicate_index < 0:
            raise InputError(
                "an order needs at least one profile and an index from 0",
                way_out="give the study's profiles and a replicate's index",
            )
        start = replicate_index - replicate_index % profiles

        def rank_key(index: int) -> tuple[str, int]:
            return digest(self.domains.counterbalance, self._value(case_id, group_id, index)), index

        return sorted(range(start, start + profiles), key=rank_key).index(replicate_index)

    def order(self, case_id: str, group_id: str, replicate_index: int, base: Sequence[T]) -> tuple[T, ...]:
        """The profiles of a replicate in the order in which they are called (rules 1 and 2)."""
        offset = self.rotation(case_id, group_id, replicate_index, len(base))
        return (*base[offset:], *base[:offset])
