"""Network extensions for tests."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from tasc_collector.contracts.network_extension import NetworkExtension


def extension_for(
    *, cidrs: list[str], ca: Path | None = None, spki_pin: str | None = None, **changes: Any
) -> NetworkExtension:
    """An extension for endpoint ``main``, valid for ten years."""
    ca_file = (
        None if ca is None else {"path": str(ca), "digest": "sha256:" + hashlib.sha256(ca.read_bytes()).hexdigest()}
    )
    return NetworkExtension.from_value(
        {
            "version": "tasc-network-extension-v1",
            "studyId": "study-1",
            "endpoints": [
                {
                    "alias": "main",
                    "privateNetworks": {"cidrs": cidrs, "caFile": ca_file, "spkiPin": spki_pin},
                    "clientCertificate": None,
                }
            ],
            "issuedAt": "2026-01-01T00:00:00.000Z",
            "expiresAt": "2036-01-01T00:00:00.000Z",
            **changes,
        }
    ).record
