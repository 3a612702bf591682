"""Real engines for the demo: launched from the example recipes, stopped however the demo ends.

Two llama.cpp servers are compared on their native route, which needs no receipt. Where MLX-LM is installed, it is a third
engine, on the same weights, for a window of chat completions that only canary receipts admit.

They are started in sessions of their own and outlive a demo that is killed; the next demo stops what the records say is
ours before it launches. On Ctrl-C and SIGTERM all are stopped before the demo ends.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tasc_collector.errors import InputError, TascError
from tasc_compute.binaries import package_file
from tasc_compute.errors import LaunchFailed, RecipeError
from tasc_compute.launchers.base import StopOutcome
from tasc_compute.lifecycle import stop
from tasc_compute.local import launch_recipe, local_compute
from tasc_compute.recipes import Recipe, parse_recipe, read_recipe
from tasc_compute.render import render
from tasc_pipeline.demo.gguf_model import mlx_folder
from tasc_pipeline.home.files import make_folder
from tasc_pipeline.home.layout import Home
from tasc_pipeline.steps.new_study import Server

RUNTIMES = {"llamacpp": "llama.cpp", "mlx": "mlx-lm"}
"""Engine that we launch to the runtime dialect it speaks, where the names differ."""
RECIPES = Path(__file__).resolve().parents[2] / "examples" / "live"
BUILDS = {"llamacpp": "b10156", "mlx": "0.31.3"}
"""Neither names its build on the wire (the packaged llama.cpp says ``b0-unknown``), so it is declared from the pinned package."""
CHAT = "chat-candidate"
"""Role and recipe of the third engine."""
MLX_PACKAGES = ("mlx_lm", "gguf", "safetensors", "tokenizers")
MLX_MODEL = Path("demo") / "mlx-model"
MLX_CACHE = Path("demo") / "huggingface"
"""In the state folder: the model, and an empty cache, so that MLX-LM lists no model of the machine's own."""


@contextmanager
def running(home: Home, say: Callable[[str], None]) -> Iterator[dict[str, Server]]:
    """Launch champion, candidate and, where MLX-LM is installed, the chat candidate; stop all at the end.

    Yields:
        How a study reaches them, by role.

    Raises:
        InputError: the extra ``live`` is not installed.
        TascError: an engine did not become ready; the other one is stopped.
    """
    recipes = {role: _recipe(role) for role in ("champion", "candidate")}
    if all(importlib.util.find_spec(name) for name in MLX_PACKAGES):
        recipes[CHAT] = _chat_recipe(home, say)
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
        if cancel.is_set():
            raise KeyboardInterrupt from None
        raise TascError(
            render(failed, recipe.name).text, where=recipe.name, way_out=f"see why: tasc engines logs {recipe.name}"
        ) from None
    return Server(
        f"http://127.0.0.1:{launched.record.port}",
        runtime=RUNTIMES.get(recipe.engine.value, recipe.engine.value),
        build=BUILDS[recipe.engine.value],
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
    path = _path(role)
    try:
        return read_recipe(path)
    except RecipeError as error:
        raise _refused(error, path) from None


def _chat_recipe(home: Home, say: Callable[[str], None]) -> Recipe:
    """The recipe of the chat candidate, with its model made if it is missing and its program beside this Python."""
    path = _path(CHAT)
    try:
        recipe = parse_recipe(path.read_bytes(), path.name, home.root)
        model = home.root / MLX_MODEL
        if not (model / "config.json").exists():
            say("making the model folder of MLX-LM out of the GGUF file")
            mlx_folder(package_file(_recipe("champion").model), model)
    except RecipeError as error:
        raise _refused(error, path) from None
    cache = home.root / MLX_CACHE
    make_folder(cache)
    make_folder(cache / "hub")
    return dataclasses.replace(
        recipe, binary=str(Path(sys.executable).parent / "mlx_lm.server"), env={**recipe.env, "HF_HOME": str(cache)}
    )


def _path(role: str) -> Path:
    path = RECIPES / f"{role}.toml"
    if not path.is_file():
        raise InputError("the example's recipes are not here", where=str(path), way_out="run the demo from a checkout")
    return path


def _refused(error: RecipeError, path: Path) -> InputError:
    return InputError(error.what, where=path.name, field=error.field, way_out=error.way_out)
