"""Making the state folder: ``tasc init``. Running it again repairs what is missing and changes nothing else."""

from __future__ import annotations

import stat
from collections.abc import Callable
from datetime import datetime
from importlib import resources

from tasc_collector.errors import InputError
from tasc_pipeline.home.files import make_folder, write_file
from tasc_pipeline.home.key_changes import finish_rotation
from tasc_pipeline.home.keys import SIGNING_ROLES, create_missing
from tasc_pipeline.home.layout import FOLDERS, HOME_VARIABLE, Home, check_writable


def init_home(home: Home, now: datetime, say: Callable[[str], None]) -> None:
    """Create what is missing: folders (0700), Dagster's instance file, keys (0600), an empty warehouse.

    Raises:
        InputError: the folder is a symbolic link, a file is in its place, or it cannot be written.
    """
    if home.root.is_symlink():
        raise InputError(
            "the state folder is a symbolic link",
            where=str(home.root),
            way_out=f"set {HOME_VARIABLE} to the folder itself",
        )
    fresh = not home.root.exists()
    make_folder(home.root)
    if not fresh and not home.root.is_dir():
        raise InputError(
            "a file is in the place of the state folder",
            where=str(home.root),
            way_out=f"move it away, or set {HOME_VARIABLE}",
        )
    if stat.S_IMODE(home.root.stat().st_mode) & 0o077:
        raise InputError("others may read the folder", where=str(home.root), way_out=f"run: chmod 700 {home.root}")
    check_writable(home.root)
    for name in FOLDERS:
        make_folder(home.root / name)
    instance_file = home.dagster / "dagster.yaml"
    if not instance_file.exists():
        template = resources.files("tasc_pipeline.home").joinpath("dagster_single_host.yaml").read_bytes()
        write_file(instance_file, template)
        say("Dagster instance: dagster/dagster.yaml")
    for name in create_missing(home, now):
        say(f"new key: {name}")
    for role in SIGNING_ROLES:
        if finish_rotation(home, role):
            say(f"finished the rotation of the {role} key")
