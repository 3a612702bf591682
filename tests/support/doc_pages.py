"""Runs the commands of a page of the documentation, as a reader would type them: every ``$`` line of its console blocks.

A word in capitals stands for what an earlier command printed (KEY, DIGEST, AUTHORIZATION); an address for one of the
test's servers. What cannot run in a test is listed here with the test that covers it, and nothing else is left out.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tasc_pipeline.cli.app import main
from tests.support.window import World

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
ELSEWHERE = {
    "make demo": "tests/pipeline/test_demo.py",
    "make demo-live": "tests/live/test_demo_live.py",
    "make ui": "tests/ui/test_dagster_ui.py",
    "make test": "this run",
    "tasc demo": "tests/pipeline/test_demo.py",
    "tasc ui": "tests/ui/test_dagster_ui.py",
    "tasc init": "tests/pipeline/cli/test_newcomer.py",
    "tasc study new --study first": "tests/pipeline/cli/test_newcomer.py",
    "tasc launch": "tests/pipeline/test_docs_with_dagster.py",
    "tasc collect KEY &": "tests/pipeline/steps/test_resume.py",
    "dagster job launch": "tests/pipeline/test_docs_with_dagster.py",
    "dagster sensor": "tests/pipeline/test_docs_with_dagster.py",
    "sudo": "tests/pipeline/test_deployment.py",
    "systemd-analyze": "tests/pipeline/test_deployment.py",
    "journalctl": "a log viewer",
    ".": "activates the environment of this run",
}
"""Beginnings of commands that this runner leaves to another test."""
_FOUND = {
    "KEY": re.compile(r"\b[a-z0-9-]+\.\d{8}t\d{6}\.r\d\d-[0-9a-f]{8}\b"),
    "DIGEST": re.compile(r"sha256:[0-9a-f]{64}"),
    "AUTHORIZATION": re.compile(r"\bfirst-auth-[a-z0-9-]+\b|\bauth-[a-z0-9-]+\b"),
}
"""What a command's output gives to the commands after it."""
_GIVES = {"KEY": "tasc seal", "DIGEST": "tasc plan", "AUTHORIZATION": "tasc authorize new"}


@dataclass
class Reader:
    """Somebody who types the commands of a page into a shell whose state folder is a test's."""

    made: World
    folder: Path
    patch: pytest.MonkeyPatch
    values: dict[str, str] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    elsewhere: Mapping[str, str] = field(default_factory=lambda: ELSEWHERE)

    def read(self, page: Path) -> None:
        """Run every command of a page; each must succeed."""
        self.patch.chdir(self.folder)
        link = self.folder / ".tasc"
        if not link.exists():
            link.symlink_to(self.made.home.root)
        self.patch.setenv("TASC_HOME", str(self.made.home.root))
        self.patch.setenv("DAGSTER_HOME", str(self.made.home.dagster))
        self.patch.setenv("PYTHONPATH", str(ROOT))
        for command in commands(page):
            reason = next((begin for begin in self.elsewhere if begun(command, begin)), None)
            if reason is not None:
                self.left.append(command)
                continue
            printed = self._run(self._filled(command), command)
            self.ran.append(command)
            for name, begin in _GIVES.items():
                if command.startswith(begin) and (found := _FOUND[name].search(printed)):
                    self.values[name] = found[0]

    def _filled(self, command: str) -> str:
        known = {
            "http://127.0.0.1:8000": self.made.champion.origin,
            "http://127.0.0.1:8001": self.made.candidate.origin,
            "examples/": f"{ROOT}/examples/",
            "workspace.yaml": f"{ROOT}/workspace.yaml",
            **self.values,
        }
        for name, value in known.items():
            command = re.sub(rf"(?<![\w/]){re.escape(name)}(?!-|(?<=\w)\w)", lambda _, new=value: new, command)  # type: ignore[misc]
        return command

    def _run(self, command: str, shown: str) -> str:
        if command.startswith("tasc ") and "|" not in command and ">" not in command:
            code, printed = self._tasc(shlex.split(command)[1:])
        else:
            environment = {
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            }
            shell = (
                f'tasc() {{ {shlex.quote(sys.executable)} -c "from tasc_pipeline.cli import main; main()" "$@"; }}\n'
            )
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", shell + command],
                env=environment, cwd=self.folder, capture_output=True, text=True, check=False, timeout=240,
            )  # fmt: skip
            code, printed = done.returncode, done.stdout + done.stderr
        assert code == 0, f"$ {shown}\n{printed}"
        return printed

    def _tasc(self, words: list[str]) -> tuple[int, str]:
        self.patch.setattr(sys, "argv", ["tasc", *words])
        output = io.StringIO()
        with redirect_stdout(output), redirect_stderr(output):
            try:
                main()
            except SystemExit as end:
                return int(end.code or 0), output.getvalue()
        return 0, output.getvalue()


def begun(command: str, begin: str) -> bool:
    """Whether a command begins with these words."""
    return command == begin or command.startswith(begin + " ")


def commands(page: Path) -> list[str]:
    """The commands of a page, comments and line ends taken out."""
    found = []
    for block in re.findall(r"```console\n(.*?)```", page.read_text(), flags=re.DOTALL):
        joined = re.sub(r"\s*\\\n\s*", " ", block)
        lines = [line.strip()[2:] for line in joined.splitlines() if line.strip().startswith("$ ")]
        found += [re.sub(r"\s{2,}#.*$", "", line).strip().replace(".venv/bin/", "") for line in lines]
    return found
