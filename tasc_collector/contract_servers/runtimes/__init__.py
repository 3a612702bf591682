"""One module per runtime: its contract, a table. ``CONTRACTS`` holds them by runtime name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tasc_collector.contract_servers.contract import Contract
from tasc_collector.contract_servers.runtimes import (
    llama_cpp,
    lm_studio,
    mlx_lm,
    ollama,
    sglang,
    tensorrt_llm,
    tgi,
    vllm,
)

CONTRACTS: Final[Mapping[str, Contract]] = {
    contract.runtime: contract
    for contract in (
        llama_cpp.CONTRACT,
        lm_studio.CONTRACT,
        mlx_lm.CONTRACT,
        ollama.CONTRACT,
        sglang.CONTRACT,
        tensorrt_llm.CONTRACT,
        tgi.CONTRACT,
        vllm.CONTRACT,
    )
}
"""The eight pinned builds, by runtime name."""
