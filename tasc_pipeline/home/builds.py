"""The operator's own builds: ``builds/<runtime>-<build>.json`` in the state folder."""

from __future__ import annotations

from pathlib import Path

from tasc_collector.contracts.build_profile import BuildProfile
from tasc_collector.runtimes.profile import RuntimeProfile
from tasc_collector.runtimes.registry import get_profile, operator_profile
from tasc_collector.wire.records import read_record_file
from tasc_pipeline.home.files import make_folder, write_file
from tasc_pipeline.home.layout import Home

FOLDER = "builds"


def build_file(home: Home, runtime: str, build: str) -> Path:
    """Where the file of a build is."""
    return home.root / FOLDER / f"{runtime}-{build}.json"


def load_builds(home: Home) -> tuple[BuildProfile, ...]:
    """All build files, by name.

    Raises:
        InputError: a file is not a build record; names it.
    """
    folder = home.root / FOLDER
    if not folder.is_dir():
        return ()
    return tuple(read_record_file(BuildProfile, path).record for path in sorted(folder.glob("*.json")))


def home_profile(home: Home, runtime: str, build: str) -> RuntimeProfile:
    """The profile of a build that is registered, or that a file of this state folder adds.

    Raises:
        InputError: nobody registered it; names what is known.
    """
    return get_profile(runtime, build, load_builds(home))


def add_build(home: Home, record: BuildProfile) -> Path:
    """Write a build file. An identical one is left as it is.

    Raises:
        InputError: its base is not registered, the build is, or another file is in its place.
    """
    operator_profile(record)
    path = build_file(home, record.runtime, record.build)
    make_folder(path.parent)
    write_file(path, record.canonical() + b"\n")
    return path
