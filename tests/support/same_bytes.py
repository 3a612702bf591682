"""Three decisions from inputs that are the same in every process: run as a module, it prints their SHA-256 as JSON."""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import replace

from tests.support.decision_windows import decided, failed, lost, protocol, rows


def decisions() -> dict[str, bytes]:
    """Canonical reports of our own analysis: plain, with gaps, and in another order of the same rows."""
    rules = protocol()
    plain = rows(3, groups=80, replicates=2, signal=0.4)
    gaps = [
        lost(row) if place % 37 == 5 else failed(row) if place % 41 == 7 else row for place, row in enumerate(plain)
    ]
    dear = [
        replace(row, observation=replace(row.observation, output_tokens=100 + place % 9))
        for place, row in enumerate(plain)
    ]
    return {
        "plain": decided(plain, rules=rules).canonical(),
        "gaps": decided(gaps[::-1], rules=rules).canonical(),
        "cascade": decided(dear, rules=rules, kind="cascade").canonical(),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps({name: hashlib.sha256(data).hexdigest() for name, data in decisions().items()}))
