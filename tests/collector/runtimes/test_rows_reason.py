"""Terminal reasons, identity, secrets and cancellation: rows R01 to R15, I01 to I07, S01 to S07 and C01 to C04."""

from __future__ import annotations

import pytest

from tasc_collector.canonical import canonical_bytes
from tasc_collector.errors import InputError
from tasc_collector.runtimes.profile import Framing, Route
from tasc_collector.runtimes.registry import get_profile
from tasc_collector.runtimes.request import Generation, build_request
from tasc_collector.runtimes.result import BuildMatch, OutputKind
from tasc_collector.runtimes.verdict import AnswerReason, FinishReason, Outcome
from tests.support.answers import AT_ONCE, MODEL, one, read, reader_for, sse

CHAT, TEXT, RESPONSES, NATIVE_CHAT = Route.CHAT_COMPLETIONS, Route.COMPLETIONS, Route.RESPONSES, Route.NATIVE_CHAT
SSE, JSON, NDJSON = Framing.SSE, Framing.JSON, Framing.NDJSON


def chat(chunks, finish):
    return sse(chunks.text("Hello", finish), chunks.usage(), "[DONE]")


def response(status, usage=3, **more):
    text = [{"type": "output_text", "text": "Hello"}]
    return {
        "model": MODEL,
        "status": status,
        "output": [{"type": "message", "content": text}],
        "usage": {"input_tokens": 5, "output_tokens": usage, "total_tokens": 5 + usage},
        **more,
    }


def ended(name, **snapshot):
    return sse(
        ("response.output_text.delta", {"type": "response.output_text.delta", "delta": "Hello"}),
        (name, {"type": name, "response": response(**snapshot)}),
    )


def ollama(**more):
    return canonical_bytes(
        {"model": MODEL, "message": {"content": "x"}, "eval_count": 3, "prompt_eval_count": 5, **more}
    )


@pytest.mark.parametrize("word", ["stop", "length", "tool_calls"])
def test_r01_the_three_common_reasons(reads, chunks, word):
    answer = reads("vllm", CHAT, SSE, chat(chunks, word))
    assert (answer.outcome, answer.finish_reason, answer.raw_finish_reason) == (
        Outcome.COMPLETED,
        FinishReason(word),
        word,
    )


@pytest.mark.parametrize("word", ["eos_token", "stop_sequence"])
def test_r02_raw_reasons_are_stop_on_the_runtime_that_has_them(reads, chunks, word):
    answer = reads("tgi", CHAT, SSE, chat(chunks, word))
    assert (answer.finish_reason, answer.raw_finish_reason) == (FinishReason.STOP, word)
    assert reads("vllm", CHAT, SSE, chat(chunks, word)).reason is AnswerReason.FINISH_REASON_UNKNOWN


def test_r03_an_empty_reason_is_not_terminal(reads, chunks):
    body = sse(chunks.text("Hello", ""), chunks.text("!", ""), chunks.usage(), "[DONE]")
    assert reads("vllm", CHAT, SSE, body).reason is AnswerReason.FINISH_REASON_MISSING


@pytest.mark.parametrize("runtime", ["vllm", "sglang"])
def test_r04_an_aborted_generation_is_not_complete(reads, chunks, runtime):
    answer = reads(runtime, CHAT, SSE, chat(chunks, "abort"))
    assert (answer.outcome, answer.reason) == (Outcome.TRUNCATED, AnswerReason.FINISH_ABORTED)
    assert answer.finish_reason is FinishReason.CANCELLED


def test_r05_error_is_a_provider_error_and_the_others_keep_their_names(reads, chunks):
    assert reads("vllm", CHAT, SSE, chat(chunks, "error")).reason is AnswerReason.FINISH_ERROR
    assert reads("vllm", CHAT, SSE, chat(chunks, "repetition")).finish_reason is FinishReason.REPETITION
    assert reads("vllm", CHAT, SSE, chat(chunks, "content_filter")).finish_reason is FinishReason.CONTENT_FILTER
    assert reads("vllm", CHAT, SSE, chat(chunks, "made_up")).reason is AnswerReason.FINISH_REASON_UNKNOWN


@pytest.mark.parametrize("word", ["load", "unload"])
def test_r06_loading_a_model_is_no_inference(reads, word):
    answer = reads("ollama", NATIVE_CHAT, JSON, ollama(done=True, done_reason=word))
    assert (answer.outcome, answer.reason) == (Outcome.PROTOCOL_VIOLATION, AnswerReason.NOT_AN_INFERENCE)


@pytest.mark.parametrize("more", [{}, {"done_reason": ""}])
def test_r07_done_without_a_reason_is_truncated(reads, more):
    assert reads("ollama", NATIVE_CHAT, JSON, ollama(done=True, **more)).reason is AnswerReason.FINISH_REASON_MISSING
    assert reads("ollama", NATIVE_CHAT, NDJSON, ollama(done=True, **more)).reason is AnswerReason.FINISH_REASON_MISSING


def test_r08_a_whole_body_that_is_not_done_is_truncated(reads):
    assert reads("ollama", NATIVE_CHAT, JSON, ollama(done=False)).reason is AnswerReason.NOT_DONE
    assert reads("vllm", RESPONSES, JSON, canonical_bytes(response("in_progress"))).reason is AnswerReason.NOT_DONE


def test_r09_completed_with_status_incomplete_is_length(reads):
    body = ended("response.completed", status="incomplete", incomplete_details={"reason": "max_output_tokens"})
    answer = reads("vllm", RESPONSES, SSE, body)
    assert (answer.outcome, answer.finish_reason) == (Outcome.COMPLETED, FinishReason.LENGTH)
    assert not answer.length_suspected


@pytest.mark.parametrize("runtime", ["llama.cpp", "ollama", "sglang"])
def test_r10_completed_at_the_token_limit_is_suspected_not_proved(reads, runtime):
    body = ended("response.completed", status="completed", usage=3)
    at_limit = reads(runtime, RESPONSES, SSE, body, max_tokens=3)
    assert (at_limit.outcome, at_limit.finish_reason) == (Outcome.COMPLETED, FinishReason.UNAVAILABLE)
    assert at_limit.length_suspected
    assert not reads(runtime, RESPONSES, SSE, body, max_tokens=4).length_suspected
    assert not reads("vllm", RESPONSES, SSE, body, max_tokens=3).length_suspected


def test_r11_an_incomplete_event_is_length(reads):
    body = ended("response.incomplete", status="incomplete", incomplete_details={"reason": "max_output_tokens"})
    assert reads("vllm", RESPONSES, SSE, body).finish_reason is FinishReason.LENGTH
    other = ended("response.incomplete", status="incomplete", incomplete_details={"reason": "made_up"})
    assert reads("vllm", RESPONSES, SSE, other).reason is AnswerReason.FINISH_REASON_UNKNOWN
    none = ended("response.incomplete", status="incomplete", incomplete_details=None)
    assert reads("vllm", RESPONSES, SSE, none).reason is AnswerReason.FINISH_REASON_MISSING


def test_r12_a_failed_response_is_a_provider_error(reads):
    assert reads("vllm", RESPONSES, SSE, ended("response.failed", status="failed")).outcome is Outcome.PROVIDER_ERROR
    body = canonical_bytes(response("failed", error={"message": "made-up failure text"}))
    assert reads("vllm", RESPONSES, JSON, body).reason is AnswerReason.RESPONSE_FAILED


def test_r13_a_stream_without_a_terminal_event_is_truncated():
    item = one("ollama", RESPONSES, SSE)
    cut = item.body[: item.body.index(b"event: response.completed")]
    assert read(item, cut).reason is AnswerReason.TERMINATOR_MISSING


def test_r14_an_error_before_chat_end_is_a_provider_error():
    answer = read(one("lm-studio", NATIVE_CHAT, SSE, "failure"))
    assert (answer.outcome, answer.reason, answer.usage) == (Outcome.PROVIDER_ERROR, AnswerReason.ERROR_FRAME, None)


def test_r15_every_choice_needs_its_reason(reads, chunks):
    body = sse(chunks.text("a", "stop"), chunks.text("b", index=1), chunks.usage(), "[DONE]")
    for expected in (2, None):
        assert reads("vllm", CHAT, SSE, body, expected_choices=expected).reason is AnswerReason.FINISH_REASON_MISSING
    assert reads("vllm", CHAT, SSE, body).reason is AnswerReason.CHOICE_UNEXPECTED
    one_of_two = sse(chunks.text("a", "stop"), chunks.usage(), "[DONE]")
    assert reads("vllm", CHAT, SSE, one_of_two, expected_choices=2).reason is AnswerReason.FINISH_REASON_MISSING


def test_a_choice_ends_once(reads, chunks):
    more = sse(chunks.text("a", "stop"), chunks.text("b"), chunks.usage(), "[DONE]")
    assert reads("vllm", CHAT, SSE, more).reason is AnswerReason.OUTPUT_AFTER_FINISH
    other = sse(chunks.text("a", "stop"), chunks.delta({}, "length"), chunks.usage(), "[DONE]")
    assert reads("vllm", CHAT, SSE, other).reason is AnswerReason.FINISH_REASON_CONFLICT
    again = sse(chunks.text("a", "stop"), chunks.delta({}, "stop"), chunks.usage(), "[DONE]")
    assert reads("vllm", CHAT, SSE, again).outcome is Outcome.COMPLETED


def test_i01_another_model_is_a_violation(reads, chunks):
    body = sse({**chunks.text("Hello"), "model": "other-1"}, chunks.usage(), "[DONE]")
    answer = reads("vllm", CHAT, SSE, body)
    assert (answer.reason, answer.resolved_model) == (AnswerReason.MODEL_MISMATCH, None)
    assert "other-1" not in repr(answer)


def test_i02_an_answer_that_names_no_model_is_a_violation_where_the_dialect_has_one(reads, chunks):
    body = sse({**chunks.text("Hello", "stop"), "model": None}, {**chunks.usage(), "model": ""}, "[DONE]")
    assert reads("vllm", CHAT, SSE, body).reason is AnswerReason.MODEL_MISSING
    nameless = read(one("tgi", Route.NATIVE_GENERATE, JSON))
    assert (nameless.outcome, nameless.resolved_model) == (Outcome.COMPLETED, None)


@pytest.mark.parametrize("path", ["/srv/models/a.gguf", "./a.gguf", "C:\\models\\a", "models/a.gguf", "~/a", "a/b/c"])
def test_i03_a_file_path_is_dropped_where_it_may_be_one(reads, chunks, path):
    body = sse({**chunks.text("Hello", "stop"), "model": path}, {**chunks.usage(), "model": path}, "[DONE]")
    answer = reads("llama.cpp", CHAT, SSE, body)
    assert (answer.outcome, answer.resolved_model, answer.model_redacted) == (Outcome.COMPLETED, None, True)
    assert path not in repr(answer)
    assert reads("vllm", CHAT, SSE, body).reason is AnswerReason.MODEL_MISMATCH


def test_i03_an_alias_that_is_not_a_path_must_be_the_one_asked_for(reads, chunks):
    body = sse({**chunks.text("Hello", "stop"), "model": "org/other"}, chunks.usage(), "[DONE]")
    assert reads("llama.cpp", CHAT, SSE, body).reason is AnswerReason.MODEL_MISMATCH


def test_i04_and_i07_ids_and_creation_times_are_never_looked_at(reads, chunks):
    body = sse(
        chunks.text("Hello", id="", created=1),
        chunks.text("!", "stop", id="x", created=2),
        {**chunks.usage(), "id": 7, "created": "never"},
        "[DONE]",
    )
    assert reads("tgi", CHAT, SSE, body).outcome is Outcome.COMPLETED


def test_i05_a_fingerprint_of_another_build_is_recorded(reads, chunks):
    def with_print(text):
        return sse(chunks.text("Hello", "stop"), {**chunks.usage(), "system_fingerprint": text}, "[DONE]")

    assert reads("vllm", CHAT, SSE, with_print("vllm-0.27.0-tp1-aa")).build_match is BuildMatch.DIFFERS
    assert reads("vllm", CHAT, SSE, with_print("vllm-0.26.0-tp1-aa")).build_match is BuildMatch.MATCHES
    assert reads("llama.cpp", CHAT, SSE, with_print("b0-unknown")).build_match is BuildMatch.UNAVAILABLE
    assert reads("llama.cpp", CHAT, SSE, with_print("b10156-aa")).build_match is BuildMatch.MATCHES
    assert reads("llama.cpp", CHAT, SSE, with_print("b10155-aa")).build_match is BuildMatch.DIFFERS
    assert reads("vllm", CHAT, SSE, with_print("vllm-0.27.0-tp1-aa")).outcome is Outcome.COMPLETED


@pytest.mark.parametrize("more", [{"remote_model": "big"}, {"remote_host": "https://example.invalid"}])
def test_i06_an_answer_of_a_remote_host_is_refused_where_the_runtime_is_local(reads, chunks, more):
    answer = reads("ollama", NATIVE_CHAT, JSON, ollama(done=True, done_reason="stop", **more))
    assert (answer.outcome, answer.reason) == (Outcome.PROTOCOL_VIOLATION, AnswerReason.REMOTE_MODEL)
    assert "example" not in repr(answer)
    body = sse(chunks.text("Hello", "stop", **more), chunks.usage(), "[DONE]")
    assert reads("ollama", CHAT, SSE, body).reason is AnswerReason.REMOTE_MODEL


@pytest.mark.parametrize("model", ["big:cloud", "big:480b-cloud", "big:Cloud"])
def test_i06_a_model_id_that_leaves_the_machine_is_never_asked_for(model):
    ollama_profile = get_profile("ollama", "0.32.5")
    generation = Generation(model, 8, stream=True, prompt="Hello")
    with pytest.raises(InputError, match="remote host") as refused:
        build_request(ollama_profile, Route.NATIVE_GENERATE, generation)
    assert model not in str(refused.value)


@pytest.mark.parametrize("runtime", ["vllm", "sglang", "tensorrt-llm", "llama.cpp", "mlx-lm"])
def test_s01_a_validation_message_that_repeats_the_prompt_leaves_nothing(reads, runtime):
    canary = "canary-7f3a"
    body = canonical_bytes(
        {"error": {"message": canary, "type": canary, "code": canary}, "detail": canary, "object": canary}
    )
    answer = reads(runtime, CHAT, JSON, body)
    assert answer.outcome is Outcome.PROVIDER_ERROR
    assert canary not in repr(answer)


def test_s02_the_head_is_compared_and_never_kept():
    reader = reader_for(one("vllm", CHAT, JSON))
    reader.head(status=200, content_type="application/json; canary-7f3a=1")
    assert "canary" not in repr(reader.finish(clean_end=True))


@pytest.mark.parametrize(
    ("runtime", "path", "secret"),
    [
        ("sglang", "/server_info", "api_key"),
        ("sglang", "/server_info", "admin_api_key"),
        ("sglang", "/server_info", "ssl_keyfile_password"),
        ("llama.cpp", "/props", "chat_template"),
        ("llama.cpp", "/props", "model_path"),
    ],
)
def test_s03_and_s04_secrets_and_templates_are_outside_the_allowlist(runtime, path, secret):
    (profile,) = (get_profile(r, b) for r, b in (("sglang", "0.5.16"), ("llama.cpp", "b10156")) if r == runtime)
    found = [route for route in profile.observations if route.path == path]
    assert found
    for route in found:
        assert route.fields
        assert secret not in {name.split(".")[-1] for name in route.fields}


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_s05_reasoning_is_counted_and_never_kept(reads, chunks, field):
    body = sse(chunks.delta({field: "canary-7f3a"}), chunks.text("Hello", "stop"), chunks.usage(), "[DONE]")
    answer = reads("vllm", CHAT, SSE, body)
    assert [event.kind for event in answer.events] == [OutputKind.REASONING, OutputKind.ANSWER]
    assert (answer.reasoning_bytes, answer.reasoning_events, answer.text) == (11, 1, "Hello")
    assert "canary" not in repr(answer)


def test_s05_thinking_and_encrypted_reasoning_are_never_kept(reads):
    lines = b"".join(
        canonical_bytes(line) + b"\n"
        for line in (
            {"model": MODEL, "message": {"content": "", "thinking": "canary-7f3a"}, "done": False},
            {"model": MODEL, "message": {"content": "Hello"}, "done": False},
            {"model": MODEL, "message": {"content": ""}, "done": True, "done_reason": "stop", "eval_count": 3},
        )
    )
    answer = reads("ollama", NATIVE_CHAT, NDJSON, lines)
    assert [event.kind for event in answer.events] == [OutputKind.REASONING, OutputKind.ANSWER]
    item = {"type": "reasoning", "encrypted_content": "canary-7f3a", "content": [{"type": "t", "text": "canary-7f3a"}]}
    body = response("completed")
    body["output"].insert(0, item)
    whole = reads("ollama", RESPONSES, JSON, canonical_bytes(body))
    assert (whole.text, whole.reasoning_bytes) == ("Hello", 11)
    assert "canary" not in repr((answer, whole))


def test_s06_text_that_is_repeated_at_the_end_is_not_taken_twice():
    for runtime, route in (("vllm", RESPONSES), ("lm-studio", NATIVE_CHAT)):
        item = one(runtime, route, SSE)
        assert item.body.count(b"Hello there!") >= 1
        assert read(item).text == "Hello there!"


def test_s06_a_stream_without_deltas_takes_its_text_from_the_last_event(reads):
    body = sse(("response.completed", {"type": "response.completed", "response": response("completed")}))
    answer = reads("vllm", RESPONSES, SSE, body)
    assert (answer.text, len(answer.events)) == ("Hello", 1)


def test_s07_log_probabilities_are_counted_and_their_tokens_dropped(reads, chunks):
    body = sse(chunks.text("Hello", "stop"), chunks.usage(), "[DONE]")
    listed = {"content": [{"token": "canary-7f3a", "logprob": -0.1}, {"token": "b", "logprob": -0.2}]}
    body = body.replace(b'"delta":', b'"logprobs":' + canonical_bytes(listed) + b',"delta":', 1)
    answer = reads("vllm", CHAT, SSE, body)
    assert [event.tokens for event in answer.events] == [2]
    assert "canary" not in repr(answer)


def test_c01_and_c02_an_abort_is_never_an_answer():
    item = one("llama.cpp", CHAT, SSE)
    for size in (0, 1, len(item.body) // 2, len(item.body)):
        answer = read(item, item.body[:size], clean_end=False)
        assert (answer.outcome, answer.reason) == (Outcome.TRUNCATED, AnswerReason.TRANSPORT_CUT)


def test_c03_and_c04_what_counters_do_on_cancel_is_written_beside_them():
    llama, vllm = get_profile("llama.cpp", "b10156"), get_profile("vllm", "0.26.0")
    assert "ancelled" in llama.metrics["generationTokensTotal"].note  # type: ignore[index]  # StrEnum keys
    assert "abort counter" in vllm.capabilities["cancellation"].reason  # type: ignore[index]  # StrEnum keys


def test_a_reader_gives_its_verdict_once():
    reader = reader_for(one("vllm", CHAT, SSE))
    reader.feed(b"data: [DONE]\n\n", AT_ONCE)
    reader.finish(clean_end=True)
    with pytest.raises(InputError, match="already finished"):
        reader.finish(clean_end=True)
