"""Small deterministic servers, one per pinned runtime build, with every fault that we know of.

They are the demo's engines and the tests' other side: real HTTP/1.1 on real sockets, written byte by byte here, with a
ledger of what they received. They import nothing of the profiles, the wire or the transport that they test.
"""

from __future__ import annotations

from tasc_collector.contract_servers.behaviour import Behaviour, FaultScope, TlsFiles
from tasc_collector.contract_servers.faults import FAULTS
from tasc_collector.contract_servers.generation import case_digest
from tasc_collector.contract_servers.ledger import Entry, EntryKind, Ledger
from tasc_collector.contract_servers.runtimes import CONTRACTS
from tasc_collector.contract_servers.server import ContractServer

__all__ = [
    "CONTRACTS",
    "FAULTS",
    "Behaviour",
    "ContractServer",
    "Entry",
    "EntryKind",
    "FaultScope",
    "Ledger",
    "TlsFiles",
    "case_digest",
]
