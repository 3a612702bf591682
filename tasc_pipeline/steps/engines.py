"""Engines around a window: launched from recipes, checked against the study, and always stopped.

Rules of ``engines_running``:

1. Every recipe is read before the first engine is started; an engine that was running before is never taken over, and
   never stopped.
2. Where a study's endpoint takes its configuration from a launch plan, an engine of exactly that configuration must have
   been launched; otherwise nothing is collected.
3. Whatever was started is stopped, last one first, however the body ends, and signals do not cut that short. A stop that
   cannot be proved keeps its lease and is reported.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tasc_collector.errors import InputError, NotAuthorized, TascError
from tasc_compute.devices.snapshot import survey
from tasc_compute.errors import ComputeError, LaunchFailed
from tasc_compute.launchers.base import StopOutcome
from tasc_compute.lifecycle import check_known, stop
from tasc_compute.local import Launched, launch_recipe, local_compute
from tasc_compute.recipes import Recipe, read_recipe
from tasc_compute.render import render
from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.studies import LoadedStudy

STOP_TEXT: Final = {
    StopOutcome.STOPPED: "stopped",
    StopOutcome.ABSENT: "nothing of it was running",
    StopOutcome.NOT_PROVED: (
        "what lives under its reference cannot be proved to be ours, or its launch is under way: nothing was signalled "
        "and its lease is kept -> end the launch, or the process by hand, then stop again"
    ),
    StopOutcome.SURVIVED: "outlived SIGKILL in a driver; its lease is kept -> reset the device or restart the host",
    StopOutcome.UNREACHABLE: (
        "its daemon or node does not answer, or the extra docker is not installed here; its lease is kept "
        "-> start or install that, then stop again"
    ),
}


def read_recipes(home: Home, paths: Sequence[str]) -> tuple[Recipe, ...]:
    """Read recipes; a relative path is relative to the state folder.

    Raises:
        InputError: one breaks a rule, two have one name, or there is none.
    """
    try:
        recipes = tuple(read_recipe(home.root / Path(path)) for path in paths)
    except ComputeError as error:
        raise _as_input_error(error) from None
    names = [recipe.name for recipe in recipes]
    if not names or len(set(names)) != len(names):
        raise InputError(
            "the recipes must have names of their own, and there must be one",
            where=", ".join(names)[:200] or "recipes",
            way_out="name each recipe file once",
        )
    return recipes


def launch_engine(home: Home, recipe: Recipe, cancel: threading.Event) -> Launched:
    """Launch one recipe on this host and wait until it is ready.

    Args:
        home: the state folder.
        recipe: what to launch.
        cancel: set it to give up; the engine is then stopped.

    Raises:
        KeyboardInterrupt: it was given up.
        TascError: it was refused, did not start or did not get ready; the engine's own log is not in the message.
    """
    found = survey()
    try:
        return launch_recipe(
            recipe, home.root, accelerators=found.snapshot.accelerators, places=found.places, cancel=cancel
        )
    except LaunchFailed as failed:
        if cancel.is_set() and not failed.record_kept:
            raise KeyboardInterrupt from None
        raise TascError(render(failed, recipe.name).text) from None
    except ComputeError as error:
        raise _as_input_error(error) from None


def stop_engine(home: Home, name: str) -> StopOutcome:
    """Stop one instance and give its devices and port back.

    Raises:
        InputError: there is no such instance.
        TascError: it cannot be proved stopped, so its lease is kept; or its record cannot be used.
    """
    try:
        check_known(name, local_compute(home.root))
    except ComputeError as error:
        raise _as_input_error(error) from None
    return _stop(home, name)


@contextlib.contextmanager
def engines_running(home: Home, recipes: Sequence[Recipe]) -> Iterator[tuple[Launched, ...]]:
    """Launch every recipe, and stop what was launched at the end (rules 1 and 3).

    Yields:
        The engines, ready, in the recipes' order.

    Raises:
        KeyboardInterrupt: a signal came while engines were started or stopped.
        TascError: one did not get ready, or could not be proved stopped.
    """
    launched: list[Launched] = []
    try:
        with cancel_on_signal() as cancel:
            for recipe in recipes:
                launched.append(launch_engine(home, recipe, cancel))
        if cancel.is_set():
            raise KeyboardInterrupt
        yield tuple(launched)
    finally:
        with cancel_on_signal() as late:
            _stop_all(home, [item.record.name for item in reversed(launched)])
        if late.is_set():
            raise KeyboardInterrupt


def check_configurations(study: LoadedStudy, launched: Sequence[Launched]) -> None:
    """Rule 2.

    Args:
        study: the study whose window is meant.
        launched: what was launched for it.

    Raises:
        NotAuthorized: the study means an engine of another configuration.
    """
    running = {item.configuration_digest for item in launched}
    for target in study.study.targets:
        endpoint = study.endpoints[target.profile_id]
        if endpoint.configuration_basis == "launch-plan" and endpoint.configuration_digest not in running:
            raise NotAuthorized(
                "no engine of the configuration that the study names was launched",
                where=target.profile_id,
                field="configuration_digest",
                way_out="launch the recipe of the study, or make a study of this one",
            )


def _stop(home: Home, name: str) -> StopOutcome:
    try:
        outcome = stop(name, local_compute(home.root))
    except ComputeError as error:
        raise _as_input_error(error) from None
    if not outcome.proved:
        raise TascError(f"{name}: {STOP_TEXT[outcome]}")
    return outcome


def _stop_all(home: Home, names: Sequence[str]) -> None:
    """Stop each; one that fails does not keep the others from being stopped."""
    failed: list[str] = []
    for name in names:
        try:
            _stop(home, name)
        except TascError as error:
            failed.append(str(error))
    if failed:
        raise TascError("; ".join(failed), way_out="run: tasc engines list")


@contextlib.contextmanager
def cancel_on_signal() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set, instead of interrupting; only the main thread can be signalled.

    A launch then stops its engine before it returns, and a stop is not cut short: its ladder is bounded.
    """
    cancel = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield cancel
        return
    before = {number: signal.signal(number, lambda *_: cancel.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield cancel
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _as_input_error(error: ComputeError) -> InputError:
    return InputError(error.what, where=error.where, field=error.field, rule=error.rule, way_out=error.way_out)
