"""Two real engines for the demo: launched from the example recipes, stopped however the demo ends.

They are started in sessions of their own and outlive a demo that is killed; the next demo stops what the records say is
ours before it launches. On Ctrl-C and SIGTERM both are stopped before the demo ends.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tasc_collector.errors import InputError, TascError
from tasc_compute.errors import LaunchFailed, RecipeError
from tasc_compute.launchers.base import StopOutcome
from tasc_compute.lifecycle import stop
from tasc_compute.local import launch_recipe, local_compute
from tasc_compute.recipes import Recipe, read_recipe
from tasc_compute.render import render
from tasc_pipeline.home.layout import Home
from tasc_pipeline.steps.new_study import Server

RUNTIMES = {"llamacpp": "llama.cpp", "mlx": "mlx-lm"}
"""Engine that we launch to the runtime dialect it speaks, where the names differ."""
RECIPES = Path(__file__).resolve().parents[2] / "examples" / "live"
LLAMA_CPP_BUILD = "b10156"
"""The packaged binary names its build ``b0-unknown`` on the wire, so the build is declared from the pinned package."""


@contextmanager
def running(home: Home, say: Callable[[str], None]) -> Iterator[dict[str, Server]]:
    """Launch champion and candidate and stop both at the end.

    Yields:
        How a study reaches them, by role.

    Raises:
        InputError: the extra ``live`` is not installed.
        TascError: an engine did not become ready; the other one is stopped.
    """
    recipes = {role: _recipe(role) for role in ("champion", "candidate")}
    cancel = threading.Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def interrupted(number: int, frame: object) -> None:
        del number, frame
        cancel.set()
        raise KeyboardInterrupt

    started: list[Recipe] = []
    try:
        for number in before:
            signal.signal(number, interrupted)
        servers: dict[str, Server] = {}
        for role, recipe in recipes.items():
            _stop(home, recipe)
            started.append(recipe)
            say(f"starting {recipe.name} on 127.0.0.1:{recipe.port}")
            servers[role] = _launch(home, recipe, cancel)
        yield servers
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for recipe in reversed(started):
            say(f"stopping {recipe.name}")
            _stop(home, recipe)


def _launch(home: Home, recipe: Recipe, cancel: threading.Event) -> Server:
    try:
        launched = launch_recipe(recipe, home.root, cancel=cancel)
    except LaunchFailed as failed:
        raise TascError(
            render(failed, recipe.name).text, where=recipe.name, way_out=f"see why: tasc engines logs {recipe.name}"
        ) from None
    return Server(
        f"http://127.0.0.1:{launched.record.port}",
        runtime=RUNTIMES.get(recipe.engine.value, recipe.engine.value),
        build=LLAMA_CPP_BUILD,
        model=recipe.served_model_name,
        configuration_digest=launched.configuration_digest,
    )


def _stop(home: Home, recipe: Recipe) -> None:
    outcome = stop(recipe.name, local_compute(home.root))
    if outcome not in (StopOutcome.STOPPED, StopOutcome.ABSENT):
        raise TascError(
            f"the engine could not be proved stopped ({outcome.value}); its lease is kept",
            where=recipe.name,
            way_out=f"run: tasc engines stop {recipe.name}",
        )


def _recipe(role: str) -> Recipe:
    path = RECIPES / f"{role}.toml"
    if not path.is_file():
        raise InputError("the example's recipes are not here", where=str(path), way_out="run the demo from a checkout")
    try:
        return read_recipe(path)
    except RecipeError as error:
        raise InputError(error.what, where=path.name, way_out=error.way_out) from None
