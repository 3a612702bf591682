"""Secrets taken out of an engine's output before a person sees it. Pure."""

from __future__ import annotations

import re
from typing import Final

from tasc_compute.contracts import LaunchPlan

_SECRET_NAME: Final = re.compile(r"key|token(?!s|iz)|secret|passw|auth|credential", re.IGNORECASE)
_KNOWN_FORMS: Final = re.compile(
    r"(?:\b(?:sk|hf|ghp|gho|github_pat|xox[abp]|nvapi)[-_][A-Za-z0-9_\-]{8,}"
    r"|\bAKIA[A-Z0-9]{16}\b|(?<=[Bb]earer )[^\s\"']+|(?<=://)[^\s/@:]+:[^\s/@]+(?=@))"
)
_ASSIGNED: Final = re.compile(
    r"((?:api[_-]?key|auth[_-]?token|access[_-]?token|password|secret)[\"']?\s*[=:]\s*[\"']?)([^\s\"',}]+)",
    re.IGNORECASE,
)
_SHORTEST: Final = 4
MASK: Final = "[redacted]"


def is_secret_name(name: str) -> bool:
    """Whether a variable or option of this name holds a secret."""
    return _SECRET_NAME.search(name) is not None


def secrets_of(plan: LaunchPlan) -> tuple[str, ...]:
    """Values in a plan that are secret by their name: of variables, and of options such as ``--api-key``."""
    found = {value for name, value in plan.env.items() if is_secret_name(name)}
    for index, token in enumerate(plan.argv):
        if not (token.startswith("--") and is_secret_name(token.split("=", 1)[0])):
            continue
        if "=" in token:
            found.add(token.split("=", 1)[1])
        elif index + 1 < len(plan.argv):
            found.add(plan.argv[index + 1])
    # a one-letter "secret" would only blank out ordinary text
    return tuple(sorted((value for value in found if len(value) >= _SHORTEST), key=len, reverse=True))


def redact(text: str, secrets: tuple[str, ...] = ()) -> str:
    """Text without the given secrets and without what looks like a key, a bearer token or a password."""
    for secret in secrets:
        text = text.replace(secret, MASK)
    return _ASSIGNED.sub(rf"\1{MASK}", _KNOWN_FORMS.sub(MASK, text))
