"""The table of faults: unique names, every row of the wire test list, and nothing that harms the server itself."""

from __future__ import annotations

import itertools
import json

import pytest

from tasc_collector.contract_servers import CONTRACTS, FAULTS, Behaviour, Ledger
from tasc_collector.contract_servers.faults import (
    framing,
    identity,
    probes,
    reasons,
    statuses,
    streams,
    transport,
    usage,
)
from tasc_collector.contract_servers.http import Request, RequestHead
from tasc_collector.contract_servers.responder import Responder
from tests.support.wire_client import PROMPTS


def test_fault_names_are_unique_over_all_tables() -> None:
    tables = (transport, framing, statuses, streams, usage, reasons, identity, probes)
    names = [fault.name for module in tables for fault in module.FAULTS]
    assert sorted(names) == sorted(FAULTS)


ROWS_WITHOUT_FAULT = {
    "R10": "Responses of every runtime but vLLM: a cut answer is completed",
    "S03": "SGLang GET /server_info",
    "S04": "llama.cpp GET /props",
    "S06": "Responses and LM Studio terminal events repeat the whole text",
    "P01": "SGLang GET /health is entered as inference",
    "P03": "TensorRT-LLM GET /metrics drains",
    "P10": "SGLang GET /flush_cache is entered as mutating",
    "C03": "llama.cpp GET /metrics after a client left",
    "C04": "vLLM GET /metrics after a client left",
    "Q01": "TensorRT-LLM refuses unknown fields",
    "Q02": "Ollama honours max_tokens only",
    "Q03": "vLLM refuses stream_options without stream",
    "Q04": "TGI refuses both caps, and a stop that is no array",
    "Q05": "LM Studio gives a response_id unless store is false",
    "Q06": "Ollama native routes stream by default",
    "Q07": "MLX-LM sends no [DONE] after stream_options without include_usage",
    "Q08": "the ledger has the names of request headers that a client must not send",
    "Q09": "MLX-LM knows no path with a query",
    "Q10": "vLLM refuses another content type",
}
"""Rows that the servers show without any fault, and where."""

ROWS = {
    f"{series}{number:02d}"
    for series, last in {"T": 21, "U": 15, "R": 15, "I": 7, "S": 7, "P": 11, "C": 4, "Q": 10}.items()
    for number in range(1, last + 1)
}


def test_every_row_of_the_wire_test_list_has_a_fault_or_is_shown_without_one() -> None:
    served = {row for fault in FAULTS.values() for row in fault.rows} | set(ROWS_WITHOUT_FAULT)
    assert ROWS - served == set()
    assert served - ROWS == set()


@pytest.mark.parametrize("runtime", sorted(CONTRACTS))
def test_every_fault_gives_timed_writes_on_every_route_and_form(runtime: str) -> None:
    """What is odd must be on the wire, never in the server: no fault raises, and due times never decrease."""
    contract, ledger = CONTRACTS[runtime], Ledger()
    made = 0
    for name in FAULTS:
        responder = Responder(contract, Behaviour(tokens=3, fault=name), ledger)
        for path, route in contract.inference.items():
            for stream in (True, False):
                body = {"model": contract.model, route.fields.prompt: PROMPTS[route.fields.prompt], "stream": stream}
                data = json.dumps(body).encode()
                head = RequestHead("POST", path, "", {"content-type": "application/json"}, len(data))
                wire = responder.answer(Request(head, data), 1, 1).wire
                dues = [write.due_s for write in itertools.islice(wire.writes, 50)]
                assert dues == sorted(dues), (name, path, stream)
                made += 1
    assert made == len(FAULTS) * len(contract.inference) * 2 == ledger.inference_calls
