"""Probes of real llama.cpp and MLX-LM, and a chat window between them that their own receipts admit."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasc_collector.contracts.receipt import CapabilityReceipt
from tasc_collector.runtimes.profile import Capability, Effect
from tasc_pipeline.home import Home
from tasc_pipeline.steps import collect, plan, seal
from tasc_pipeline.steps.new_study import NewStudy, Server, new_study
from tasc_pipeline.steps.probe import ProbeOptions, probe_endpoint
from tests.support.live_engines import LiveServer, needs_llama, needs_mlx
from tests.support.window import fresh_home, now

pytestmark = [pytest.mark.live, needs_llama, needs_mlx]
CANARY = Effect.INFERENCE_CANARY


@pytest.fixture
def study(tmp_path: Path, llama: LiveServer, mlx: LiveServer) -> Home:
    home = fresh_home(tmp_path)
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("".join(f"Say one word about the number {number}.\n" for number in range(4)))
    candidate = Server(mlx.origin, runtime="mlx-lm", build="0.31.3", model=mlx.model)
    wanted = NewStudy(
        "first", "tests", Server(llama.origin), (candidate,), prompts, route="chatCompletions", replicates=1,
        concurrency=1, maximum_output_tokens=8, warm_up=0,
    )  # fmt: skip
    new_study(home, wanted, now())
    return home


def probed(home: Home, alias: str, capability: Capability, effect: Effect = CANARY) -> CapabilityReceipt:
    return probe_endpoint(home, "first", alias, capability, ProbeOptions(effect)).receipt


def test_passive_probes_of_real_servers(study: Home) -> None:
    passive = Effect.NON_MUTATING
    llama = {
        item: probed(study, "champion", item, passive).state
        for item in (Capability.MODEL_DISCOVERY, Capability.LIVENESS)
    }
    assert llama == {Capability.MODEL_DISCOVERY: "supported", Capability.LIVENESS: "supported"}
    assert probed(study, "candidate", Capability.LIVENESS, passive).state == "supported"
    listed = probed(study, "candidate", Capability.MODEL_DISCOVERY, passive)
    assert listed.state == "unknown", "its model cache is empty, so its list proves nothing"


@pytest.mark.parametrize("alias", ["champion", "candidate"])
@pytest.mark.parametrize(
    "capability", [Capability.CHAT_COMPLETIONS, Capability.STREAMING, Capability.FINAL_USAGE, Capability.CANCELLATION]
)
def test_stream_and_lifecycle_canaries_of_real_servers(study: Home, alias: str, capability: Capability) -> None:
    receipt = probed(study, alias, capability)
    assert (receipt.state, receipt.reason) == ("supported", "observed")
    assert receipt.identity_verification.model_revision.basis == "unverified"


def test_llama_cpp_shows_log_probabilities_and_structured_output(study: Home) -> None:
    assert probed(study, "champion", Capability.LOGPROBS).state == "supported"
    assert probed(study, "champion", Capability.STRUCTURED_OUTPUT).state == "supported"


def test_a_chat_window_runs_on_the_receipts_of_both(study: Home) -> None:
    for alias in ("champion", "candidate"):
        probed(study, alias, Capability.CHAT_COMPLETIONS)
    key = seal.seal(study, "first", seal.SealOptions(lead_s=0.3), now()).window_key
    made, _ = plan.make_plan(study, key, now(), write=True)
    assert [len(target.capability_receipt_digests) for target in made.targets] == [1, 1]
    plan.approve(study, key, made.digest, now())
    assert collect.collect(study, key, show=lambda _: None).states == {"success": 8}
