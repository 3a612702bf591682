"""The search that the leak tests rest on can fail: what is planted is found, in each spelling and wherever it hangs."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from urllib.parse import quote_plus

import pytest

from tests.support.canaries import everything_in, everything_of, found_in

CANARY = 'canary "Prompt" é 71f3'
UTF8 = CANARY.encode()


@pytest.mark.parametrize(
    "text",
    [
        f"before {CANARY} after",
        f"before {UTF8.hex()} after",
        f"before {UTF8.hex().upper()} after",
        json.dumps({"text": CANARY}),
        f"q={quote_plus(CANARY).replace('+', '%20')}&x=1",
        *(base64.b64encode(b"#" * before + UTF8 + b"beside").decode() for before in range(7)),
        *(base64.urlsafe_b64encode(b"\xff" * before + UTF8).decode() for before in range(3)),
    ],
)
def test_a_planted_canary_is_found_in_each_spelling(text: str) -> None:
    assert found_in(text, [CANARY, "another"]) == [CANARY]


def test_what_holds_no_canary_is_clean() -> None:
    assert found_in("canary Prompt 71f3" + base64.b64encode(b"nothing of it").decode(), [CANARY]) == []


def test_a_canary_in_a_file_its_name_or_a_suppressed_cause_is_found(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "journal").write_bytes(b"\0\1" + UTF8 + b"\0\0")
    (tmp_path / "named-needle").touch()
    shown = everything_in([tmp_path])
    assert found_in(shown, ["needle"]) == ["needle"] and CANARY.encode().decode("latin-1") in shown
    try:
        try:
            int(CANARY)
        except ValueError:
            raise KeyError("clean") from None
    except KeyError as error:
        assert found_in(everything_of(error), [CANARY]) == [CANARY], "from None hides it, and does not remove it"
