"""Paths of the state folder. Every room asks here; nobody joins these names himself.

::

    dagster/                       the Dagster instance
    keys/                          private keys, 0600; key-ring.json holds the public ones
    studies/<study>/               study.toml, comparison or protocol, trust policy, endpoints/, authorizations/
        ledger/  controller/       what authorizations have spent; the controller's log
        evidence/                  evaluator evidence, content-addressed, with its signed batches
    windows/<window key>/          declaration, case set, plan, approval, link, manifest, report
    runs/<window key>/             journal segments and owner lock
    receipts/                      capability receipts by digest
    warehouse/<table>/window_key=<key>/part-<digest8>.parquet, signed manifests
    instances/  logs/              engines
    tasc.sql  warehouse.duckdb     views for analysts
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from tasc_collector.errors import InputError

HOME_VARIABLE = "TASC_HOME"
FOLDERS = ("dagster", "keys", "studies", "windows", "runs", "receipts", "warehouse", "instances", "logs")


@dataclass(frozen=True, slots=True)
class Home:
    """The state folder at ``root`` (absolute)."""

    root: Path

    @property
    def dagster(self) -> Path:
        """Dagster's instance folder (``DAGSTER_HOME``)."""
        return self.root / "dagster"

    @property
    def keys(self) -> Path:
        """Private keys."""
        return self.root / "keys"

    @property
    def key_ring(self) -> Path:
        """Public keys with role and validity."""
        return self.keys / "key-ring.json"

    @property
    def windows(self) -> Path:
        """All windows."""
        return self.root / "windows"

    @property
    def receipts(self) -> Path:
        """Content-addressed capability receipts."""
        return self.root / "receipts"

    @property
    def warehouse(self) -> Path:
        """Parquet parts and their manifests."""
        return self.root / "warehouse"

    @property
    def instances(self) -> Path:
        """Engine instance records: the leases."""
        return self.root / "instances"

    @property
    def logs(self) -> Path:
        """Engine logs."""
        return self.root / "logs"

    def study(self, study_id: str) -> Path:
        """Folder of one study."""
        return self.root / "studies" / study_id

    def authorizations(self, study_id: str) -> Path:
        """Standing authorizations of one study, and their revocations."""
        return self.study(study_id) / "authorizations"

    def ledger(self, study_id: str) -> Path:
        """Journal of what a study's authorizations have spent."""
        return self.study(study_id) / "ledger"

    def evidence(self, study_id: str) -> Path:
        """Evaluator evidence of one study."""
        return self.study(study_id) / "evidence"

    def window(self, window_key: str) -> Path:
        """Folder of one window's records."""
        return self.windows / window_key

    def run(self, window_key: str) -> Path:
        """Folder of one window's journal."""
        return self.root / "runs" / window_key

    def check(self) -> None:
        """Refuse a folder that is not ours to trust.

        Raises:
            InputError: missing, a symbolic link, not a folder, readable by others, or not writable; says what to do.
        """
        where = str(self.root)
        for part in (self.root, *self.root.parents):
            if part.is_symlink() and part == self.root:
                raise InputError(
                    "the state folder is a symbolic link",
                    where=where,
                    way_out=f"set {HOME_VARIABLE} to the folder itself",
                )
        if not self.root.exists():
            raise InputError("there is no state folder", where=where, way_out="run: tasc init")
        if not self.root.is_dir():
            raise InputError(
                "a file is in the place of the state folder",
                where=where,
                way_out=f"move it away, or set {HOME_VARIABLE}",
            )
        if stat.S_IMODE(self.root.stat().st_mode) & 0o077:
            raise InputError("others may read the state folder", where=where, way_out=f"run: chmod 700 {where}")
        missing = [name for name in FOLDERS if not (self.root / name).is_dir()]
        if missing:
            raise InputError(f"the state folder has no {missing[0]}/", where=where, way_out="run: tasc init")
        check_writable(self.root)


def default_home(environ: dict[str, str] | None = None) -> Home:
    """The state folder that the environment names, or ``.tasc`` in the current folder."""
    named = (environ if environ is not None else dict(os.environ)).get(HOME_VARIABLE)
    return Home(Path(named or ".tasc").absolute())


def check_writable(folder: Path) -> None:
    """Try to make a file (root passes every permission bit, so only trying tells).

    Raises:
        InputError: the folder cannot be written; names the reason.
    """
    probe = folder / f".write-probe-{os.getpid()}"
    try:
        descriptor = os.open(probe, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600)
        os.close(descriptor)
        probe.unlink()
    except OSError as error:
        raise InputError(
            f"the folder cannot be written ({os.strerror(error.errno or 0).lower()})",
            where=str(folder),
            way_out=f"mount it writable or free some space, or set {HOME_VARIABLE} to another folder",
        ) from None
