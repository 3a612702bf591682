"""Scrapes around and inside a block, against contract servers."""

from __future__ import annotations

import threading

import pytest

from tasc_collector.contract_servers import Behaviour, ContractServer
from tasc_collector.contract_servers.behaviour import FaultScope
from tasc_collector.probes.metrics import NOTHING
from tasc_collector.probes.sampler import Sampler, Scrape, can_scrape
from tasc_collector.runtimes.profile import CanonicalMetric
from tasc_collector.transport.clock import SystemClock
from tests.support.probing import RUNTIMES, subject


class Sink:
    """Keeps scrapes and lets a test wait for the n-th."""

    def __init__(self) -> None:
        self.scrapes: list[Scrape] = []
        self._changed = threading.Condition()

    def __call__(self, scrape: Scrape) -> None:
        with self._changed:
            self.scrapes.append(scrape)
            self._changed.notify_all()

    def wait_for(self, phase: str) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: any(item.phase == phase for item in self.scrapes), 10)


def test_a_block_is_bracketed_however_short_it_is() -> None:
    sink = Sink()
    with ContractServer("vllm") as server:
        with Sampler([subject(server)], sink, every_s=60, clock=SystemClock()):
            assert [item.phase for item in sink.scrapes] == ["before"]
        assert [item.phase for item in sink.scrapes] == ["before", "after"]
    assert not any(item.failed for item in sink.scrapes)
    assert sink.scrapes[0].wall_ns < sink.scrapes[1].wall_ns
    assert sink.scrapes[0].reading.value(CanonicalMetric.REQUESTS_RUNNING) == 0.0


def test_every_server_is_scraped_inside_the_block_too() -> None:
    sink = Sink()
    with ContractServer("vllm") as one, ContractServer("llama.cpp") as other:
        with Sampler([subject(one), subject(other)], sink, every_s=0.02, clock=SystemClock()):
            assert sink.wait_for("during")
        assert one.ledger.inference_calls == other.ledger.inference_calls == 0
    runtimes = [item.subject.profile.runtime for item in sink.scrapes if item.phase == "before"]
    assert runtimes == ["vllm", "llama.cpp"]


def test_a_server_that_fails_is_a_gap_of_nulls_and_no_reason_to_stop() -> None:
    sink = Sink()
    behaviour = Behaviour(fault="server-error", fault_scope=FaultScope.OBSERVATION)
    with ContractServer("vllm", behaviour=behaviour) as server:
        with Sampler([subject(server)], sink, every_s=60, clock=SystemClock()):
            pass
    assert [(item.failed, item.reading) for item in sink.scrapes] == [(True, NOTHING), (True, NOTHING)]


def test_text_that_is_no_exposition_is_a_gap_too() -> None:
    sink = Sink()
    behaviour = Behaviour(fault="null-body", fault_scope=FaultScope.OBSERVATION)
    with ContractServer("vllm", behaviour=behaviour) as server:
        with Sampler([subject(server)], sink, every_s=60, clock=SystemClock()):
            pass
    assert [item.failed for item in sink.scrapes] == [True, True]


def test_what_the_sink_raises_comes_out_where_the_block_ends() -> None:
    def full(scrape: Scrape) -> None:
        raise OSError(28, "no space")

    with ContractServer("vllm") as server:
        with pytest.raises(OSError, match="no space"):
            with Sampler([subject(server)], full, every_s=60, clock=SystemClock()):
                pass


def test_only_passive_listed_routes_are_ever_sampled() -> None:
    able = set()
    for runtime in RUNTIMES:
        with ContractServer(runtime) as server:
            if can_scrape(subject(server)):
                able.add(runtime)
    assert able == {"llama.cpp", "sglang", "tensorrt-llm", "tgi", "vllm"}
    with ContractServer("vllm") as server:
        assert not can_scrape(subject(server, leave_out=["/metrics"]))


def test_a_draining_route_is_never_read_by_a_sampler() -> None:
    sink = Sink()
    with ContractServer("tensorrt-llm") as server:
        with Sampler([subject(server)], sink, every_s=60, clock=SystemClock()):
            pass
        assert set(server.ledger.by_route) == {"GET /prometheus/metrics"}
