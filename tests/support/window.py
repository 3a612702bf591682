"""A state folder with a study on two contract servers: what most window tests start from."""

from __future__ import annotations

import atexit
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tasc_collector.contract_servers import Behaviour, ContractServer
from tasc_pipeline.home import Home
from tasc_pipeline.home.setup import init_home
from tasc_pipeline.steps import plan, seal
from tasc_pipeline.steps.new_study import NewStudy, Server, new_study
from tasc_pipeline.warehouse.database import build_views

_MADE_ONCE = TemporaryDirectory()
atexit.register(_MADE_ONCE.cleanup)

QUICK = Behaviour(ttft_ms=2, itl_ms=0.5, tokens=6)


def now() -> datetime:
    return datetime.now(UTC)


@dataclass
class World:
    """A home, two servers and a study named ``first``."""

    home: Home
    champion: ContractServer
    candidate: ContractServer
    prompts: Path

    def approved_window(self, lead_s: float = 0.3) -> str:
        """Seal, plan and approve a window; returns its key."""
        key = seal.seal(self.home, "first", seal.SealOptions(lead_s=lead_s), now()).window_key
        made, _ = plan.make_plan(self.home, key, now(), write=True)
        plan.approve(self.home, key, made.digest, now())
        return key

    @property
    def inference_calls(self) -> tuple[int, int]:
        """What each server counted on inference routes."""
        return self.champion.ledger.inference_calls, self.candidate.ledger.inference_calls


def fresh_home(folder: Path) -> Home:
    """An initialised state folder."""
    home = Home(folder / "home")
    init_home(home, now(), lambda _: None)
    shutil.copytree(_empty_warehouse(), home.root, dirs_exist_ok=True)
    return home


@cache
def _empty_warehouse() -> Path:
    """What `tasc init` builds beside keys and settings, once for all tests of a process: it says nothing of its folder."""
    root = Path(_MADE_ONCE.name) / "warehouse"
    root.mkdir(mode=0o700)
    build_views(root, clock=now)
    return root


def with_instance(home: Home) -> Home:
    """The same home with Dagster's own tables, which it else makes when it is opened first."""
    shutil.copytree(_empty_instance(), home.dagster, dirs_exist_ok=True)
    return home


@cache
def _empty_instance() -> Path:
    """What Dagster makes in a new instance, once for all tests of a process; it takes it half a second."""
    from tasc_pipeline.instance import instance_of

    home = Home(Path(_MADE_ONCE.name) / "instance")
    init_home(home, now(), lambda _: None)
    with instance_of(home):
        return home.dagster


@contextmanager
def world(
    folder: Path,
    *,
    cases: int = 6,
    champion: Behaviour = QUICK,
    candidate: Behaviour = QUICK,
    runtimes: tuple[str, str] = ("vllm", "llama.cpp"),
    **options: object,
) -> Iterator[World]:
    """Two servers, a home and a study over ``cases`` text prompts."""
    home = fresh_home(folder)
    prompts = folder / "prompts.txt"
    prompts.write_text("".join(f"Case {number}: say something about the number {number}.\n" for number in range(cases)))
    settings: dict[str, object] = {
        "replicates": 1,
        "warm_up": 1,
        "maximum_output_tokens": 8,
        "concurrency": 2,
    } | options
    with (
        ContractServer(runtimes[0], behaviour=champion) as first,
        ContractServer(runtimes[1], behaviour=candidate) as second,
    ):
        wanted = NewStudy("first", "tests", Server(first.origin), (Server(second.origin),), prompts, **settings)  # type: ignore[arg-type]  # options of NewStudy
        new_study(home, wanted, now())
        yield World(home, first, second, prompts)
