"""Request bodies, golden for every runtime, route and framing; rows Q01 to Q10 of the list of wire cases."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tasc_collector.errors import InputError
from tasc_collector.runtimes.profile import Framing, Route
from tasc_collector.runtimes.registry import get_profile, profiles
from tasc_collector.runtimes.request import Generation, Message, Role, build_request, framing_for

USER = (Message(Role.USER, " Say hello.\n"),)
CHAT = Generation("demo-1", 16, stream=False, messages=USER, temperature=0.5, top_p=0.9, seed=7, stop=("END",))
TEXT = Generation("demo-1", 16, stream=False, prompt=" Say hello.\n", temperature=0.5, top_p=0.9, seed=7, stop=("END",))
PLAIN_CHAT = replace(CHAT, seed=None, stop=())
PLAIN_TEXT = replace(TEXT, seed=None, stop=())

REST = ',"seed":7,"stop":["END"],"stream":%s'
MESSAGES = '"messages":[{"content":" Say hello.\\n","role":"user"}],"model":"demo-1"' + REST
PROMPT = '"model":"demo-1","prompt":" Say hello.\\n"' + REST
SAMPLING = ',"temperature":0.5,"top_p":0.9}'
USAGE = ',"stream_options":{"include_usage":true}'
ONE_USAGE = ',"stream_options":{"continuous_usage_stats":false,"include_usage":true}'
OPTIONS = '"options":{"num_predict":16,"seed":7,"stop":["END"],"temperature":0.5,"top_p":0.9}'
PARAMETERS = (
    '"parameters":{"details":true,"do_sample":true,"max_new_tokens":16,"return_full_text":false,"seed":7,"stop":["END"],'
    '"temperature":0.5,"top_p":0.9}'
)


def _openai(cap: str, body: str, usage: str = USAGE) -> tuple[str, str]:
    head = f'{{"{cap}":16,{body}'
    return head % "false" + SAMPLING, head % "true" + usage + SAMPLING


def _responses(*, store: bool) -> tuple[str, str]:
    body = '{"input":" Say hello.\\n","max_output_tokens":16,"model":"demo-1",' + ('"store":false,' if store else "")
    return body + '"stream":false' + SAMPLING, body + '"stream":true' + SAMPLING


def _both(body: str) -> tuple[str, str]:
    return body % "false", body % "true"


GOLDEN = {
    ("vllm", Route.CHAT_COMPLETIONS): (CHAT, *_openai("max_completion_tokens", MESSAGES)),
    ("vllm", Route.COMPLETIONS): (TEXT, *_openai("max_tokens", PROMPT)),
    ("vllm", Route.RESPONSES): (PLAIN_TEXT, *_responses(store=True)),
    ("sglang", Route.CHAT_COMPLETIONS): (CHAT, *_openai("max_completion_tokens", MESSAGES)),
    ("sglang", Route.COMPLETIONS): (TEXT, *_openai("max_tokens", PROMPT)),
    ("sglang", Route.RESPONSES): (PLAIN_TEXT, *_responses(store=True)),
    ("tensorrt-llm", Route.CHAT_COMPLETIONS): (CHAT, *_openai("max_completion_tokens", MESSAGES, ONE_USAGE)),
    ("tensorrt-llm", Route.COMPLETIONS): (TEXT, *_openai("max_tokens", PROMPT, ONE_USAGE)),
    ("tensorrt-llm", Route.RESPONSES): (PLAIN_TEXT, *_responses(store=True)),
    ("llama.cpp", Route.CHAT_COMPLETIONS): (CHAT, *_openai("max_tokens", MESSAGES)),
    ("llama.cpp", Route.COMPLETIONS): (TEXT, *_openai("max_tokens", PROMPT)),
    ("llama.cpp", Route.RESPONSES): (PLAIN_TEXT, *_responses(store=False)),
    ("ollama", Route.CHAT_COMPLETIONS): (CHAT, *_openai("max_tokens", MESSAGES)),
    ("ollama", Route.COMPLETIONS): (TEXT, *_openai("max_tokens", PROMPT)),
    ("ollama", Route.RESPONSES): (PLAIN_TEXT, *_responses(store=False)),
    ("ollama", Route.NATIVE_CHAT): (
        CHAT,
        *_both(
            '{"messages":[{"content":" Say hello.\\n","role":"user"}],"model":"demo-1",' + OPTIONS + ',"stream":%s}'
        ),
    ),
    ("ollama", Route.NATIVE_GENERATE): (
        TEXT,
        *_both('{"model":"demo-1",' + OPTIONS + ',"prompt":" Say hello.\\n","stream":%s}'),
    ),
    ("tgi", Route.CHAT_COMPLETIONS): (CHAT, *_openai("max_tokens", MESSAGES)),
    ("tgi", Route.NATIVE_GENERATE): (TEXT, *(('{"inputs":" Say hello.\\n",' + PARAMETERS + "}",) * 2)),
    ("lm-studio", Route.CHAT_COMPLETIONS): (CHAT, *_openai("max_tokens", MESSAGES)),
    ("lm-studio", Route.RESPONSES): (PLAIN_TEXT, *_responses(store=True)),
    ("lm-studio", Route.NATIVE_CHAT): (
        PLAIN_CHAT,
        *_both(
            '{"input":" Say hello.\\n","max_output_tokens":16,"model":"demo-1","store":false,"stream":%s' + SAMPLING
        ),
    ),
    ("mlx-lm", Route.CHAT_COMPLETIONS): (CHAT, *_openai("max_tokens", MESSAGES)),
    ("mlx-lm", Route.COMPLETIONS): (TEXT, *_openai("max_tokens", PROMPT)),
}
"""(runtime, route) -> generation, whole body, streamed body."""
PATHS = {
    Route.CHAT_COMPLETIONS: "/v1/chat/completions",
    Route.COMPLETIONS: "/v1/completions",
    Route.RESPONSES: "/v1/responses",
}


def profile_of(runtime):
    return next(profile for profile in profiles() if profile.runtime == runtime)


def body_of(runtime, route, generation):
    return json.loads(build_request(profile_of(runtime), route, generation).body)


def test_every_route_of_every_profile_has_a_golden_body():
    assert set(GOLDEN) == {(profile.runtime, route) for profile in profiles() for route in profile.routes}


@pytest.mark.parametrize(("runtime", "route"), GOLDEN, ids=lambda part: str(part))
def test_bodies_are_as_written(runtime, route):
    generation, whole, streamed = GOLDEN[runtime, route]
    profile = profile_of(runtime)
    built = build_request(profile, route, generation)
    assert (built.body.decode(), built.framing, built.accept) == (whole, Framing.JSON, "application/json")
    stream = build_request(profile, route, replace(generation, stream=True))
    assert stream.body.decode() == streamed
    assert stream.framing is framing_for(profile.routes[route], stream=True) is not Framing.JSON
    for request in (built, stream):
        assert (request.method, request.content_type) == ("POST", "application/json")
        assert request.path == PATHS.get(route, request.path)
        assert "Say hello" not in repr(request)


def test_native_paths_and_media_types():
    ollama, tgi, studio = profile_of("ollama"), profile_of("tgi"), profile_of("lm-studio")
    streamed = replace(TEXT, stream=True)
    line = build_request(ollama, Route.NATIVE_GENERATE, streamed)
    assert (line.path, line.accept) == ("/api/generate", "application/x-ndjson")
    assert build_request(ollama, Route.NATIVE_CHAT, CHAT).path == "/api/chat"
    assert build_request(tgi, Route.NATIVE_GENERATE, TEXT).path == "/generate"
    stream = build_request(tgi, Route.NATIVE_GENERATE, streamed)
    assert (stream.path, stream.accept) == ("/generate_stream", "text/event-stream")
    assert build_request(studio, Route.NATIVE_CHAT, PLAIN_CHAT).path == "/api/v1/chat"


def test_q01_a_strict_server_gets_no_field_that_it_does_not_know():
    known = {"model", "messages", "stream", "stream_options", "max_completion_tokens", "temperature", "top_p"}
    known |= {"seed", "stop"}
    assert set(body_of("tensorrt-llm", Route.CHAT_COMPLETIONS, replace(CHAT, stream=True))) == known
    least = Generation("demo-1", 1, stream=False, messages=USER)
    assert set(body_of("tensorrt-llm", Route.CHAT_COMPLETIONS, least)) == known - {
        "stream_options",
        "temperature",
        "top_p",
        "seed",
        "stop",
    }


def test_q02_ollama_gets_the_cap_that_it_honours():
    body = body_of("ollama", Route.CHAT_COMPLETIONS, CHAT)
    assert body["max_tokens"] == 16
    assert "max_completion_tokens" not in body


@pytest.mark.parametrize(("runtime", "route"), GOLDEN, ids=lambda part: str(part))
def test_q03_and_q06_stream_is_explicit_and_options_only_come_with_it(runtime, route):
    whole = body_of(runtime, route, GOLDEN[runtime, route][0])
    assert "stream_options" not in whole
    if runtime != "tgi" or route is not Route.NATIVE_GENERATE:
        assert whole["stream"] is False
        assert body_of(runtime, route, replace(GOLDEN[runtime, route][0], stream=True))["stream"] is True


def test_q04_tgi_gets_one_cap_and_a_list_of_stops():
    body = body_of("tgi", Route.CHAT_COMPLETIONS, CHAT)
    assert [name for name in body if name.startswith("max_")] == ["max_tokens"]
    assert body["stop"] == ["END"]


def test_q05_nothing_is_stored_where_it_would_be():
    stored = {key for key in GOLDEN if body_of(*key, GOLDEN[key][0]).get("store") is False}
    assert stored == {
        ("vllm", Route.RESPONSES),
        ("sglang", Route.RESPONSES),
        ("tensorrt-llm", Route.RESPONSES),
        ("lm-studio", Route.RESPONSES),
        ("lm-studio", Route.NATIVE_CHAT),
    }


def test_q07_mlx_options_have_the_usage_key():
    body = body_of("mlx-lm", Route.CHAT_COMPLETIONS, replace(CHAT, stream=True))
    assert body["stream_options"] == {"include_usage": True}


def test_q08_q09_and_q10_the_request_is_a_path_and_two_fixed_headers():
    for (runtime, route), (generation, *_) in GOLDEN.items():
        built = build_request(profile_of(runtime), route, generation)
        assert not set("?#%") & set(built.path)
        assert built.content_type == "application/json"
        assert [name for name in built.__slots__ if "header" in name] == []


def test_tgi_samples_only_with_a_temperature():
    greedy = body_of("tgi", Route.NATIVE_GENERATE, replace(PLAIN_TEXT, temperature=0.0, top_p=None))
    assert greedy["parameters"] == {
        "details": True,
        "do_sample": False,
        "max_new_tokens": 16,
        "return_full_text": False,
    }


def test_lm_studio_takes_a_system_prompt_and_several_inputs():
    messages = (Message(Role.SYSTEM, "Be brief."), Message(Role.USER, "One."), Message(Role.USER, "Two."))
    body = body_of("lm-studio", Route.NATIVE_CHAT, replace(PLAIN_CHAT, messages=messages))
    assert body["system_prompt"] == "Be brief."
    assert body["input"] == [{"type": "message", "content": "One."}, {"type": "message", "content": "Two."}]


@pytest.mark.parametrize(
    "messages",
    [
        (Message(Role.SYSTEM, "Be brief."),),
        (Message(Role.USER, "One."), Message(Role.ASSISTANT, "Yes?"), Message(Role.USER, "Two.")),
    ],
)
def test_lm_studio_refuses_what_it_has_no_place_for(messages):
    with pytest.raises(InputError) as refused:
        body_of("lm-studio", Route.NATIVE_CHAT, replace(PLAIN_CHAT, messages=messages))
    assert refused.value.field == "messages"


@pytest.mark.parametrize(
    ("runtime", "route", "generation", "field"),
    [
        ("vllm", Route.RESPONSES, replace(PLAIN_TEXT, seed=7), "seed"),
        ("ollama", Route.RESPONSES, replace(PLAIN_TEXT, stop=("END",)), "stop"),
        ("lm-studio", Route.NATIVE_CHAT, CHAT, "seed"),
        ("lm-studio", Route.NATIVE_CHAT, replace(PLAIN_CHAT, temperature=1.5), "temperature"),
        ("vllm", Route.CHAT_COMPLETIONS, TEXT, "messages"),
        ("vllm", Route.COMPLETIONS, CHAT, "prompt"),
        ("vllm", Route.NATIVE_CHAT, CHAT, "route"),
    ],
)
def test_what_a_route_cannot_do_is_refused_with_a_way_out_and_without_the_prompt(runtime, route, generation, field):
    with pytest.raises(InputError) as refused:
        build_request(profile_of(runtime), route, generation)
    assert refused.value.field == field
    assert refused.value.way_out
    assert "Say hello" not in str(refused.value)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 1_000_001}, "max_tokens"),
        ({"temperature": 2.1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": -0.1}, "top_p"),
        ({"model_id": ""}, "model_id"),
        ({"stop": ("",)}, "stop"),
        ({"stop": ("a", "a")}, "stop"),
        ({"stop": tuple("abcdefghi")}, "stop"),
        ({"messages": ()}, "messages"),
        ({"messages": None}, "messages"),
        ({"prompt": "x"}, "messages"),
        ({"messages": (Message(Role.USER, ""),)}, "prompt"),
        ({"messages": (Message(Role.USER, "x" * 524_289),)}, "prompt"),
    ],
)
def test_a_generation_out_of_bounds_is_refused(change, field):
    with pytest.raises(InputError) as refused:
        replace(CHAT, **change)
    assert refused.value.field == field


def test_prompts_and_stops_are_not_shown():
    assert "Say hello" not in repr(CHAT) + repr(TEXT)
    assert "END" not in repr(CHAT)


def test_a_route_of_another_build_goes_by_its_wire_base_table():
    assert build_request(get_profile("vllm", "0.26.0"), Route.COMPLETIONS, TEXT).path == "/v1/completions"
