"""The random numbers of engine v2: mulberry32, all at once (original project, sections 6.3 and 9.1). Pure.

The generator's state grows by a constant, so its n-th number depends on seed and n alone, and numpy computes a whole
block of them. They are the original's numbers to the last bit.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tasc_collector.canonical import digest_int
from tasc_pipeline.control.identifiers import Codes
from tasc_pipeline.control.pairing import Floats

SEED_DOMAIN: Final = "tasc/paired-group-bootstrap-seed/v1"
_STEP: Final = 0x6D2B79F5
_RANGE: Final = 2**32


def bootstrap_seed(seed: str) -> int:
    """The 32-bit seed of a protocol's seed text: its whole digest modulo 2^32."""
    return digest_int(SEED_DOMAIN, seed) % _RANGE


def uniforms(seed: int, start: int, count: int) -> Floats:
    """Numbers ``start`` to ``start + count - 1`` of the generator, each in [0, 1).

    Args:
        seed: 0 to 2^32 - 1.
        start: how many numbers come before.
        count: how many.
    """
    steps = np.arange(start + 1, start + 1 + count, dtype=np.uint64).astype(np.uint32)
    state = steps * np.uint32(_STEP) + np.uint32(seed)
    value = (state ^ (state >> np.uint32(15))) * (state | np.uint32(1))
    value ^= value + (value ^ (value >> np.uint32(7))) * (value | np.uint32(61))
    found: Floats = (value ^ (value >> np.uint32(14))).astype(np.float64) / _RANGE
    return found


def indices(seed: int, start: int, draws: int, groups: int) -> Codes:
    """Which group each place of each draw takes: ``(draws, groups)``.

    Args:
        seed: 0 to 2^32 - 1.
        start: draws that come before.
        draws: how many draws.
        groups: groups to draw from, and how many are drawn each time.
    """
    found = uniforms(seed, start * groups, draws * groups)
    return np.floor(found * groups).astype(np.int64).reshape(draws, groups)
