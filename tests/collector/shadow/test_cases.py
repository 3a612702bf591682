from __future__ import annotations

import json

import pytest

from tasc_collector.errors import DigestMismatch, InputError
from tasc_collector.identity import PayloadKey
from tasc_collector.shadow.cases import case_root, case_set, check_cases, guess_format, read_cases

KEY = PayloadKey("study-a", "study-a-payload-1", b"\x07" * 32)


def read(*lines: str, form: str = "text-lines") -> tuple:  # type: ignore[type-arg]
    return read_cases([line.encode() for line in lines], form, where="cases.txt", replicates=2)  # type: ignore[arg-type]


def test_text_lines_keep_their_white_space_and_number_by_line() -> None:
    first, second = read("  leading and trailing  \n", "\n", "plain")
    assert (first.prompt, first.case_id, first.replicates) == ("  leading and trailing  ", "case-00001", 2)
    assert second.case_id == "case-00003", "the id names the line of the file"


def test_openai_messages_and_batch_lines() -> None:
    (chat,) = read(
        json.dumps({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]}),
        form="openai-messages",
    )
    assert (chat.messages, chat.mode, chat.characters) == ((("system", "s"), ("user", "u")), "chat", 2)
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "max_completion_tokens": 9,
        "temperature": 0.5,
        "stop": "x",
    }
    (batch,) = read(
        json.dumps({"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": body}),
        form="openai-batch",
    )
    assert (batch.max_tokens, batch.temperature, batch.stop) == (9, 0.5, ("x",))


def test_our_own_lines_carry_groups_weights_and_slices() -> None:
    line = {
        "caseId": "c-1",
        "groupId": "g-1",
        "replicates": 3,
        "generation": {"prompt": "p", "maxTokens": 4, "seed": -5},
        "slices": ["hard"],
        "workload": {"mode": "completion", "declaredTrafficWeight": 2.5, "inputTokenEstimate": 7},
        "routeSignal": None,
    }
    (case,) = read(json.dumps(line), form="tasc")
    assert (case.case_id, case.group_id, case.replicates, case.weight, case.slices, case.seed) == (
        "c-1",
        "g-1",
        3,
        2.5,
        ("hard",),
        -5,
    )


@pytest.mark.parametrize(
    ("line", "form", "place"),
    [
        ("", "text-lines", "cases.txt"),
        ('{"generation": {"prompt": "p"}}', "tasc", "cases.txt:1: caseId"),
        ('{"caseId": "A", "generation": {"prompt": "p"}}', "tasc", "cases.txt:1: caseId"),
        ('{"caseId": "a", "generation": {"prompt": "p", "messages": []}}', "tasc", "cases.txt:1: generation"),
        ('{"caseId": "a", "generation": {"prompt": "p"}, "speed": 1}', "tasc", "cases.txt:1: speed"),
        ('{"caseId": "a", "generation": {"prompt": "p", "maxTokens": true}}', "tasc", "cases.txt:1: maxTokens"),
        ('{"messages": []}', "openai-messages", "cases.txt:1: messages"),
        ('{"messages": [{"role": "robot", "content": "x"}]}', "openai-messages", "cases.txt:1: messages"),
        ("not json", "openai-messages", "cases.txt:1"),
        ('{"body": {"messages": [], "prompt": ""}}', "openai-batch", "cases.txt:1: body"),
    ],
)
def test_a_broken_line_is_refused_with_its_place_and_never_its_text(line: str, form: str, place: str) -> None:
    with pytest.raises(InputError) as caught:
        read(line, form=form)
    assert str(caught.value).startswith(place)
    assert " -> " in str(caught.value), "every refusal ends with the way out"


def test_no_error_repeats_a_prompt() -> None:
    canary = "canary-7c0ffee"
    with pytest.raises(InputError) as caught:
        read(json.dumps({"caseId": "a", "generation": {"prompt": canary}, canary: 1}), form="tasc")
    assert "unknown field" in str(caught.value)
    with pytest.raises(InputError) as other:
        read(json.dumps({"messages": [{"role": "user", "content": canary, "name": canary}]}), form="openai-messages")
    assert canary not in str(other.value)


def test_a_repeated_case_id_is_refused() -> None:
    line = json.dumps({"caseId": "a", "generation": {"prompt": "p"}})
    with pytest.raises(InputError, match="used before"):
        read(line, line, form="tasc")


@pytest.mark.parametrize(
    ("line", "form"),
    [
        (b"hello", "text-lines"),
        (b'{"messages": []}', "openai-messages"),
        (b'{"body": {}}', "openai-batch"),
        (b'{"generation": {}}', "tasc"),
        (b"[1]", "text-lines"),
    ],
)
def test_the_format_is_recognised_by_the_first_line(line: bytes, form: str) -> None:
    assert guess_format(line) == form


def test_the_case_root_binds_every_case_and_its_key() -> None:
    cases = read("one", "two", "three")
    planned = case_set(cases, "study-a", KEY, maximum_output_tokens=8)
    root = case_root(planned, KEY)
    changed = case_set(read("one", "two", "threE"), "study-a", KEY, maximum_output_tokens=8)
    assert case_root(changed, KEY) != root
    assert case_root(planned, PayloadKey("study-a", "study-a-payload-1", b"\x08" * 32)) != root
    check_cases(cases[:1], planned, KEY, where="cases.txt")
    with pytest.raises(DigestMismatch, match="case-00003"):
        check_cases(read("one", "two", "other"), planned, KEY, where="cases.txt")


def test_repr_of_a_case_hides_its_text() -> None:
    (case,) = read("canary-text")
    assert "canary-text" not in repr(case)
