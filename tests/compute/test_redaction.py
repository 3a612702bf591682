"""Secrets in an engine's output."""

from __future__ import annotations

import pytest

from tasc_compute.contracts import EngineRuntimeKind, HealthCheck, LaunchPlan
from tasc_compute.redaction import redact, secrets_of


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("token hf_AbCdEfGh1234 used", "token [redacted] used"),
        ("sk-proj-abcdefgh12345", "[redacted]"),
        ("Authorization: Bearer abc.def-1", "Authorization: Bearer [redacted]"),
        ("GET https://user:pass@host/x", "GET https://[redacted]@host/x"),
        ('{"api_key": "abc"}', '{"api_key": "[redacted]"}'),
        ("password=hunter2 next", "password=[redacted] next"),
        ("AKIAABCDEFGHIJKLMNOP", "[redacted]"),
        ("loaded 12 tokens, max_tokens = 5", "loaded 12 tokens, max_tokens = 5"),
        ("task-id sketch", "task-id sketch"),
    ],
)
def test_what_looks_like_a_secret_is_masked_and_nothing_else(text, shown):
    assert redact(text) == shown


def test_secrets_of_a_plan_are_masked_wherever_they_appear():
    plan = LaunchPlan(
        EngineRuntimeKind.PROCESS,
        ("x", "--api-key", "first-one", "--admin-api-key=second-one", "--max-tokens", "5000", "--port", "8000"),
        {"MY_SECRET": "third-one", "HOME": "/root", "SHORT_KEY": "abc"},
        (),
        (),
        (),
        HealthCheck("/", 1, 1),
    )
    assert set(secrets_of(plan)) == {"first-one", "second-one", "third-one"}
    assert redact("first-one second-one third-one 5000 /root", secrets_of(plan)) == (
        "[redacted] [redacted] [redacted] 5000 /root"
    )
