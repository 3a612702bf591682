"""`tasc` in this process: words in, exit code and both outputs out, as its entry point gives them."""

from __future__ import annotations

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tasc_pipeline.cli import main


def tasc(home: Path, *words: str) -> CompletedProcess[str]:
    """Run a command on a state folder, without the second that a new process takes to load it."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setenv("TASC_HOME", str(home))
        patch.setattr(sys, "argv", ["tasc", *words])
        with pytest.raises(SystemExit) as end:
            main()
    code = end.value.code
    return CompletedProcess(words, code if isinstance(code, int) else 1, out.getvalue(), err.getvalue())
