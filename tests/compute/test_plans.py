"""Engines' plans: golden files, properties, and the rules of knobs and extra arguments."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasc_collector.canonical import digest as collector_digest
from tasc_compute.canonical import digest
from tasc_compute.contracts import Accelerator, EngineId, EngineRuntimeKind, LaunchRequest, Mount, ServingOptions
from tasc_compute.engines import ENGINES
from tasc_compute.engines.base import container_model
from tasc_compute.planning import configuration_digest, content_logging_flags, dropped_knobs, plan_launch, refusals
from tests.support.plan_cases import HOSTS, KNOBS, golden, host, request

GOLDEN = Path(__file__).parent / "golden"
CPU, CUDA = HOSTS["cpu"], HOSTS["cuda"]
PROCESS, DOCKER = EngineRuntimeKind.PROCESS, EngineRuntimeKind.DOCKER


def argv(engine: EngineId, options: dict[str, object], *extra: str, **changes: object) -> list[str]:
    profile = CUDA if engine in (EngineId.VLLM, EngineId.SGLANG, EngineId.EXLLAMAV3) else CPU
    item = request(engine, profile, PROCESS, options, extra_args=extra, **changes)
    return list(plan_launch(item).argv)


@pytest.mark.parametrize("engine", list(EngineId))
def test_plans_are_those_of_the_golden_file(engine):
    """The goldens were read by eye; ``python -m tests.compute.golden.make`` writes them anew."""
    assert golden(engine) == json.loads((GOLDEN / f"{engine}.json").read_text())


TEXTS = st.none() | st.sampled_from(["", "auto", "fp8", "q8_0", "awq", "ünïcode", "a b", "-x"])
OPTIONS = st.builds(
    ServingOptions,
    tensor_parallel=st.integers(-1, 16),
    pipeline_parallel=st.integers(-1, 16),
    max_context_length=st.integers(-1, 1 << 20),
    memory_fraction=st.floats(0, 1),
    max_concurrent_requests=st.integers(-1, 4096),
    kv_cache_dtype=TEXTS,
    dtype=TEXTS,
    quantization=TEXTS,
    trust_remote_code=st.booleans(),
    tool_call_parser=TEXTS,
    reasoning_parser=TEXTS,
)
REQUESTS = st.builds(
    LaunchRequest,
    engine=st.sampled_from(list(EngineId)),
    host=st.sampled_from(list(HOSTS.values())),
    runtime=st.sampled_from(list(EngineRuntimeKind)),
    devices=st.lists(st.sampled_from(["GPU-a", "0", "metal:0", ""]), max_size=3).map(tuple),
    port=st.integers(0, 70_000),
    model_path=st.sampled_from(["/m/x.gguf", "/m/x", "/", "relative", "/c/models--o--n/snapshots/r", ""]),
    served_model_name=st.text(max_size=8),
    options=OPTIONS,
    extra_args=st.lists(
        st.sampled_from(["--ctx-size", "-np", "4", "--tp=2", "--no-x", "-", "", "--", "-kvu", "--max_model_len", "9"]),
        max_size=5,
    ).map(tuple),
    env=st.dictionaries(st.sampled_from(["A", "CUDA_VISIBLE_DEVICES"]), st.text(max_size=4), max_size=2),
    docker_image=st.none() | st.just("image"),
    binary=st.sampled_from(["x", "/opt/tabbyAPI/main.py", ""]),
)


@given(REQUESTS)
@settings(max_examples=300, deadline=None)
def test_a_plan_exists_for_every_request_and_is_always_the_same(item):
    first, second = plan_launch(item), plan_launch(item)
    assert first == second
    assert tuple(first.argv)[len(first.argv) - len(item.extra_args) :] == item.extra_args
    assert digest("d", {"argv": list(first.argv)}) == digest("d", {"argv": list(second.argv)})
    refusals(item)


@given(REQUESTS)
@settings(max_examples=200, deadline=None)
def test_every_set_knob_is_written_dropped_with_a_reason_or_overridden(item):
    bare = plan_launch(dataclasses.replace(item, options=ServingOptions(), extra_args=()))
    full = plan_launch(dataclasses.replace(item, extra_args=()))
    if full.argv == bare.argv:
        unset = {None, "", "auto"}
        options = item.options
        asked = [
            name
            for name in KNOBS
            if getattr(options, name) not in unset
            and getattr(options, name) is not False
            and (
                not isinstance(getattr(options, name), int | float)
                or isinstance(getattr(options, name), bool)
                or getattr(options, name) > (1 if name.endswith("_parallel") else 0)
            )
        ]
        assert [str(item.knob) for item in dropped_knobs(item)] == asked


def test_unset_knobs_write_nothing():
    options = {
        "tensor_parallel": 1,
        "pipeline_parallel": 1,
        "kv_cache_dtype": "auto",
        "dtype": "",
        "memory_fraction": 0.0,
    }
    assert argv(EngineId.VLLM, options) == argv(EngineId.VLLM, {})


@pytest.mark.parametrize(
    ("engine", "options", "extra", "gone"),
    [
        (EngineId.VLLM, {"tensor_parallel": 4}, ("-tp", "2"), "--tensor-parallel-size"),
        (EngineId.VLLM, {"max_context_length": 4096}, ("--max_model_len=1k",), "--max-model-len"),
        (EngineId.VLLM, {"trust_remote_code": True}, ("--no-trust-remote-code",), "--trust-remote-code"),
        (EngineId.VLLM, {"quantization": "awq"}, ("-q", "fp8"), "--quantization"),
        (EngineId.VLLM, {}, ("--served-model-name", "a", "b"), None),
        (EngineId.SGLANG, {"tensor_parallel": 4}, ("--tp-size", "2"), "--tensor-parallel-size"),
        (EngineId.SGLANG, {}, ("--model", "/other"), "--model-path"),
        (EngineId.LLAMACPP, {"max_context_length": 4096}, ("-c", "512"), "--ctx-size"),
        (EngineId.LLAMACPP, {"max_concurrent_requests": 4}, ("-np", "2"), "--parallel"),
        (EngineId.LLAMACPP, {"kv_cache_dtype": "q8_0"}, ("-ctk", "f16"), "--cache-type-k"),
        (EngineId.MLX, {"max_concurrent_requests": 4}, ("--decode-concurrency=8",), "--decode-concurrency"),
        (EngineId.EXLLAMAV3, {}, ("--disable-auth", "false"), None),
        (EngineId.VLLM, {"max_context_length": 4096}, ("--max_model", "1k"), "--max-model-len"),
        (EngineId.VLLM, {"tool_call_parser": "hermes"}, ("--tool-call=openai",), "--enable-auto-tool-choice"),
        (EngineId.SGLANG, {"max_context_length": 4096}, ("--context", "512"), "--context-length"),
        (EngineId.MLX, {"max_concurrent_requests": 4}, ("--decode=8",), "--decode-concurrency"),
        (EngineId.EXLLAMAV3, {"kv_cache_dtype": "Q8"}, ("--cache-m", "Q4"), "--cache-mode"),
    ],
)
def test_an_extra_argument_replaces_the_base_flag_with_all_its_values(engine, options, extra, gone):
    """Aliases, underscores, ``=``, negations and cut options name the same flag; the extra stays verbatim and last."""
    written = argv(engine, options, *extra)
    assert written[-len(extra) :] == list(extra)
    base = written[: -len(extra)]
    if gone is not None:
        assert gone not in base
    names = [token for token in written if token.startswith("--")]
    assert len(names) == len(set(names))


def test_a_companion_flag_goes_with_the_flag_it_belongs_to():
    options = {"tool_call_parser": "hermes"}
    assert argv(EngineId.VLLM, options)[-3:] == ["--tool-call-parser", "hermes", "--enable-auto-tool-choice"]
    replaced = argv(EngineId.VLLM, options, "--tool-call-parser=openai")
    assert "--enable-auto-tool-choice" not in replaced
    assert replaced[-1] == "--tool-call-parser=openai"


def test_vllm_model_is_first_and_never_follows_the_served_names():
    """``--served-model-name`` takes any number of values and would swallow the model."""
    assert argv(EngineId.VLLM, {})[:5] == ["vllm", "serve", "/data/models/qwen3-8b", "--served-model-name", "qwen3-8b"]
    assert "/data/models/qwen3-8b" not in argv(EngineId.VLLM, {}, "--model", "/other")


@pytest.mark.parametrize(
    ("options", "extra", "context"),
    [
        ({"max_context_length": 2048}, (), "2048"),  # automatic slots share one unified cache
        ({"max_context_length": 2048, "max_concurrent_requests": 2}, (), "4096"),
        ({"max_context_length": 2048, "max_concurrent_requests": 2}, ("--kv-unified",), "2048"),
        ({"max_context_length": 2048, "max_concurrent_requests": 2}, ("-kvu",), "2048"),
        ({"max_context_length": 2048}, ("-np", "3"), "6144"),
        ({"max_context_length": 2048}, ("--parallel", "3", "-kvu"), "2048"),
        ({"max_context_length": 2048}, ("--no-kv-unified",), "8192"),
        ({"max_context_length": 2048}, ("-no-kvu",), "8192"),
        ({"max_context_length": 2048, "max_concurrent_requests": 1}, (), "2048"),
    ],
)
def test_llamacpp_context_is_a_promise_to_each_request(options, extra, context):
    """``--ctx-size`` is divided among the slots unless their cache is unified."""
    written = argv(EngineId.LLAMACPP, options, *extra)
    assert written[written.index("--ctx-size") + 1] == context


def test_what_the_pinned_engines_do_not_know_is_dropped_and_reported():
    sglang = request(EngineId.SGLANG, CUDA, PROCESS, {"kv_cache_dtype": "fp8", "reasoning_parser": "deepseek_r1"})
    assert [(str(d.knob), d.reason) for d in dropped_knobs(sglang)] == [
        ("kv_cache_dtype", "--kv-cache-dtype does not take this value"),
        ("reasoning_parser", "--reasoning-parser does not take this value"),
    ]
    llama = request(EngineId.LLAMACPP, CPU, PROCESS, {"kv_cache_dtype": "fp8", "tensor_parallel": 2})
    assert [str(d.knob) for d in dropped_knobs(llama)] == ["tensor_parallel", "kv_cache_dtype"]
    mlx = request(EngineId.MLX, CPU, PROCESS, {"max_context_length": 4096})
    assert [d.reason for d in dropped_knobs(mlx)] == [
        "mlx_lm.server has no context limit (--max-tokens caps completions)"
    ]
    vllm = request(EngineId.VLLM, CPU, PROCESS, {"memory_fraction": 0.9})
    assert "VLLM_CPU_KVCACHE_SPACE" in dropped_knobs(vllm)[0].reason
    assert dropped_knobs(request(EngineId.VLLM, CUDA, PROCESS, KNOBS)) == ()


def test_tabbyapi_gets_parent_and_folder_and_a_cache_of_whole_pages():
    written = argv(EngineId.EXLLAMAV3, {"max_context_length": 1000})
    assert written[:6] == ["python3", "main.py", "--model-dir", "/data/models", "--model-name", "qwen3-8b"]
    assert written[-4:] == ["--max-seq-len", "1000", "--cache-size", "1024"]


@pytest.mark.parametrize(
    ("path", "is_file", "mount", "inside"),
    [
        ("/data/qwen", False, Mount("/data/qwen", "/models/qwen", True), "/models/qwen"),
        (
            "/data/qwen/x-00001-of-00002.gguf",
            True,
            Mount("/data/qwen", "/models", True),
            "/models/x-00001-of-00002.gguf",
        ),
        (
            "/c/models--o--n/snapshots/abc",
            False,
            Mount("/c/models--o--n", "/models", True),
            "/models/snapshots/abc",
        ),
    ],
)
def test_a_container_sees_what_a_model_path_links_to(path, is_file, mount, inside):
    assert container_model(path, is_file=is_file) == (mount, inside)


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        (request(EngineId.LLAMACPP, CPU, PROCESS, {}, served_model_name="a,b"), "splits a served model name at commas"),
        (request(EngineId.LLAMACPP, CPU, PROCESS, {}, model_path="/m"), "needs the .gguf file itself"),
        (request(EngineId.EXLLAMAV3, CUDA, PROCESS, {}, binary="tabbyapi"), "name the main.py of its checkout"),
        (request(EngineId.EXLLAMAV3, CUDA, PROCESS, {}, served_model_name="x"), "must be qwen3-8b"),
        (request(EngineId.EXLLAMAV3, HOSTS["rocm"], PROCESS, {}), "this host computes with rocm"),
        (request(EngineId.VLLM, HOSTS["rocm"], PROCESS, {}), "only as docker; change the recipe's runtime"),
        (request(EngineId.VLLM, CUDA, PROCESS, {}, devices=("GPU-6d2a",)), "GPU-6d2a is no full device UUID"),
        (
            request(
                EngineId.VLLM,
                CUDA,
                PROCESS,
                {},
                devices=("MIG-6d2a3c1e-0b7f-5f0e-9f5a-3b8f1c7a9e21", "MIG-6d2a3c1e-0b7f-5f0e-9f5a-3b8f1c7a9e22"),
            ),
            "at most one MIG slice",
        ),
        (request(EngineId.LLAMACPP, HOSTS["xpu"], PROCESS, {}), "the driver's number of"),
    ],
)
def test_requests_that_must_not_be_launched_say_why(item, reason):
    """Lessons 24 and 25: ids are checked in the form that the driver takes."""
    assert reason in "; ".join(refusals(item))


@pytest.mark.parametrize(
    ("engine", "extra", "flags"),
    [
        (EngineId.VLLM, ("--enable_log_requests",), ("--enable-log-requests",)),
        (EngineId.VLLM, ("--enable-log-outputs",), ("--enable-log-outputs",)),
        (EngineId.SGLANG, ("--log-requests", "--crash-dump-folder=/x"), ("--crash-dump-folder", "--log-requests")),
        (EngineId.LLAMACPP, ("-v",), ("-v",)),
        (EngineId.LLAMACPP, ("--log-prompts-dir", "/x"), ("--log-prompts-dir",)),
        (EngineId.MLX, ("--log-level", "DEBUG"), ("--log-level",)),
        (EngineId.EXLLAMAV3, ("--log-prompt", "true"), ("--log-prompt",)),
        (EngineId.LLAMACPP, ("--threads", "2"), ()),
        (EngineId.VLLM, ("--no-enable-log-requests",), ()),  # it switches the logging off
        # argparse takes an option that is cut short; llama-server does not
        (EngineId.SGLANG, ("--crash-dump", "/x"), ("--crash-dump-folder",)),
        (EngineId.SGLANG, ("--log-requests",), ("--log-requests",)),
        (EngineId.SGLANG, ("--log-level", "info"), ()),
        (EngineId.VLLM, ("--enable_log_o",), ("--enable-log-outputs",)),
        (EngineId.MLX, ("--log-le=DEBUG",), ("--log-level",)),
        (EngineId.EXLLAMAV3, ("--log-p", "true"), ("--log-prompt",)),
        (EngineId.LLAMACPP, ("--log-prompts", "/x"), ()),
        (EngineId.MLX, ("--", "DEBUG"), ()),
    ],
)
def test_flags_that_write_prompts_or_answers_are_known(engine, extra, flags):
    assert content_logging_flags(request(engine, CPU, PROCESS, {}, extra_args=extra)) == flags


@pytest.mark.parametrize(
    ("engine", "name"),
    [
        (EngineId.VLLM, "VLLM_DEBUG_LOG_API_SERVER_RESPONSE"),
        (EngineId.LLAMACPP, "LLAMA_ARG_LOG_VERBOSITY"),
        (EngineId.EXLLAMAV3, "TABBY_LOGGING_LOG_PROMPT"),
    ],
)
def test_variables_that_do_the_same_are_known_too(engine, name):
    item = request(engine, CUDA, PROCESS, {}, env={name: "1", "OMP_NUM_THREADS": "2"})
    assert content_logging_flags(item) == (name,)
    assert f"{name} writes prompts or answers to disk" in "; ".join(refusals(item))


@pytest.mark.parametrize("engine", list(EngineId))
@pytest.mark.parametrize("extra", [("--port", "9"), ("--port=9",)], ids=["two-words", "one-word"])
def test_an_extra_argument_that_leaves_the_leased_port_is_planned_verbatim_and_never_launched(engine, extra):
    profile = CPU if engine in (EngineId.LLAMACPP, EngineId.MLX) else CUDA
    item = request(engine, profile, PROCESS, {}, extra_args=extra)
    assert plan_launch(item).argv[-len(extra) :] == extra
    assert plan_launch(item).argv.count("--port") == extra.count("--port")
    assert "--port as an extra argument would leave the port that is leased" in "; ".join(refusals(item))


@pytest.mark.parametrize("engine", [item for item in EngineId if item is not EngineId.LLAMACPP])
@pytest.mark.parametrize("extra", [("--por", "9000"), ("--po=9000",)], ids=["two-words", "one-word"])
def test_a_port_that_is_cut_short_is_refused_where_the_parser_takes_it(engine, extra):
    item = request(engine, CPU if engine is EngineId.MLX else CUDA, PROCESS, {}, extra_args=extra)
    assert "--port as an extra argument would leave the port that is leased" in "; ".join(refusals(item))


def test_llama_server_takes_no_option_that_is_cut_short():
    item = request(EngineId.LLAMACPP, CPU, PROCESS, {}, extra_args=("--por", "9000"))
    assert plan_launch(item).argv.count("--port") == 1
    assert refusals(item) == ()


def test_every_engine_has_a_health_check_within_its_deadline():
    """Lessons 38 and 39: a probe that is shorter than SGLang's second can never pass."""
    for spec in ENGINES.values():
        assert spec.probes.timeout_ms < spec.health.ready_deadline_ms
    assert ENGINES[EngineId.SGLANG].probes.timeout_ms > 20_000


def test_the_configuration_digest_names_plan_and_model_but_no_secret():
    item = request(EngineId.LLAMACPP, CPU, PROCESS, {}, env={"HF_TOKEN": "one", "OMP_NUM_THREADS": "2"})
    model = "sha256:" + "0" * 64
    first = configuration_digest(plan_launch(item), model)
    written_by_hand = {
        "modelSha256": model,
        "plan": {
            "kind": "process",
            "argv": [
                "llama-server",
                "--model",
                "/data/models/qwen3-8b/qwen3-8b.gguf",
                "--alias",
                "qwen3-8b",
                "--host",
                "127.0.0.1",
                "--port",
                "8081",
                "--metrics",
            ],
            "env": {"HF_TOKEN": "[redacted]", "OMP_NUM_THREADS": "2"},
            "ports": [{"container": 8081, "host": 8081}],
            "mounts": [],
            "devices": [],
            "health": {"path": "/health", "readyDeadlineMs": 600_000, "intervalMs": 2_000},
        },
    }
    # the collector's canonical form is another implementation
    assert first == collector_digest("tasc/engine-configuration/v1", written_by_hand)
    other = dataclasses.replace(item, env={"HF_TOKEN": "two", "OMP_NUM_THREADS": "2"})
    assert configuration_digest(plan_launch(other), model) == first
    other = dataclasses.replace(item, env={"HF_TOKEN": "one", "OMP_NUM_THREADS": "4"})
    assert configuration_digest(plan_launch(other), model) != first
    assert configuration_digest(plan_launch(item), "sha256:" + "1" * 64) != first


def test_a_host_without_the_accelerators_image_needs_one_named():
    item = request(
        EngineId.VLLM, host(Accelerator.CUDA, docker=True, docker_gpu=True), DOCKER, {}, docker_image="mine:1"
    )
    assert plan_launch(item).image == "mine:1"
