"""Make the two pictures of the README from a state folder with an assessed window: the report and the asset graph.

Usage: python -m scripts.pictures HOME (needs the extra `ui` and Debian's chromium)
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page

from tests.support.browser import browser

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
GROUPS = ("authority", "evidence", "decision", "compute")


def main(home: Path) -> None:
    """Shoot both pictures."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    report = sorted(home.glob("windows/*/report.html"))[-1]
    with browser() as chromium:
        page = chromium.new_page(viewport={"width": 1120, "height": 1250})
        page.goto(report.absolute().as_uri())
        page.screenshot(path=PICTURES / "report.png", clip={"x": 0, "y": 0, "width": 1120, "height": 1250})
        _graph(chromium.new_page(viewport={"width": 1880, "height": 760}), home)
    for picture in (PICTURES / "report.png", PICTURES / "assets.png"):
        with Image.open(picture) as drawn:
            drawn.convert("RGB").quantize(128).save(picture, optimize=True)


def _graph(page: Page, home: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {
        **os.environ,
        "DAGSTER_HOME": str(home.absolute() / "dagster"),
        "TASC_HOME": str(home.absolute()),
        "DAGSTER_DISABLE_TELEMETRY": "1",
    }
    workspace = str(ROOT / "workspace.yaml")
    command = [sys.executable, "-m", "dagster_webserver", "-h", "127.0.0.1", "-p", str(port), "-w", workspace]
    command.append("--read-only")
    server = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        page.set_default_timeout(120_000)
        opened = ",".join(f"global@global:{group}" for group in GROUPS)
        query = urllib.parse.urlencode({"expanded": opened})
        page.goto(_when_up(f"http://127.0.0.1:{port}/server_info", f"http://127.0.0.1:{port}/asset-groups?{query}"))
        page.get_by_text("window_catalogue", exact=True).last.wait_for()
        page.wait_for_timeout(3000)  # the graph glides into place; nothing says when it has
        page.screenshot(path=PICTURES / "assets.png", clip={"x": 541, "y": 130, "width": 1293, "height": 530})
    finally:
        server.terminate()
        server.wait(30)


def _when_up(ready: str, url: str) -> str:
    """``url``, once the server answers on ``ready``."""
    for _ in range(240):
        try:
            with urllib.request.urlopen(ready, timeout=2):
                return url
        except OSError:
            time.sleep(0.5)
    raise SystemExit("the web server did not start")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
