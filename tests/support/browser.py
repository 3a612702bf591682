"""A real browser: Debian's Chromium, driven by Playwright for Python."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).resolve().parents[2]
SCREENSHOTS = ROOT / "build" / "ui"
"""Kept after the tests; git ignores the folder."""
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
"""Chromium as root, without a word to the outside."""


def missing() -> str | None:
    """Why no browser can be driven here, with the way out; None where one can."""
    try:
        import playwright.sync_api  # noqa: F401  # only whether it is there
    except ImportError:
        return "playwright is not installed -> run: make test-ui"
    if shutil.which("chromium") is None:
        return "there is no chromium -> run: apt-get install chromium (Debian)"
    return None


@contextmanager
def browser() -> Iterator[Browser]:
    """A headless Chromium with a new profile."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=list(FLAGS))
        try:
            yield opened
        finally:
            opened.close()
