"""What a fresh machine is told: wrong Python, no venv, no compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def bootstrap(*words: str, code: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    program = f"import sys; sys.argv = ['bootstrap', *{list(words)!r}]\n{code}\nimport runpy"
    program += f"; runpy.run_path({str(ROOT / 'scripts/bootstrap.py')!r}, run_name='__main__')"
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "VENV": "never-made", **environment},
    )


def test_an_old_python_is_refused_with_the_way_out() -> None:
    done = bootstrap(code="sys.version_info = (3, 9, 2, 'final', 0)")
    assert done.returncode == 3
    assert done.stderr.startswith("refused: Python 3.9 is not supported") and "make PYTHON=" in done.stderr


def test_a_python_without_venv_is_refused_with_the_package_to_install() -> None:
    done = bootstrap(code="sys.modules['ensurepip'] = None")
    assert done.returncode == 3 and "apt-get install python3-venv" in done.stderr


def test_the_live_extra_without_a_compiler_is_refused_before_anything_is_installed(tmp_path: Path) -> None:
    done = bootstrap("live", PATH=str(tmp_path))
    assert done.returncode == 3 and "no C++ compiler" in done.stderr and "apt-get install g++ cmake" in done.stderr
    assert not (ROOT / "never-made").exists()
