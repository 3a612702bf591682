"""The same inputs give the same bytes on every supported Python that is on this machine and has the libraries.

``TASC_PYTHONS`` names further interpreters (of virtual environments, say), separated as in ``PATH``.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import same_bytes

ROOT = Path(__file__).resolve().parents[3]
SUPPORTED = ("3.11", "3.12", "3.13")


def pythons() -> dict[str, list[str]]:
    """Interpreters by version; the one that runs this test counts too, as another process with other hashes."""
    named = os.environ.get("TASC_PYTHONS", "").split(os.pathsep)
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found: dict[str, list[str]] = {}
    for version in SUPPORTED:
        places = [shutil.which(f"python{version}"), *map(str, sorted(versions.glob(f"{version}.*/bin/python")))]
        found[version] = [place for place in places if place]
    for place in filter(None, named):
        done = subprocess.run(
            [place, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        found.setdefault(done.stdout.strip(), []).insert(0, place)
    found.setdefault(f"{sys.version_info.major}.{sys.version_info.minor}", []).insert(0, sys.executable)
    return found


@pytest.mark.parametrize("version", SUPPORTED)
def test_decisions_have_the_same_bytes_on_every_python(version: str) -> None:
    own = {name: hashlib.sha256(data).hexdigest() for name, data in same_bytes.decisions().items()}
    assert len(own) == 3
    reasons = []
    for place in pythons().get(version, []):
        done = subprocess.run(
            [place, "-P", "-m", "tests.support.same_bytes"],
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
            env={"PATH": os.defpath, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "7", "PYTHONDONTWRITEBYTECODE": "1"},
            timeout=300,
        )
        if done.returncode == 0:
            assert json.loads(done.stdout) == own
            return
        reasons.append(f"{place}: {done.stderr.strip().splitlines()[-1][:120]}")
    pytest.skip(f"no other Python {version} with our libraries: {'; '.join(reasons) or 'none is installed'}")
