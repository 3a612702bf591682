"""``tasc runtimes``: what each registered build can do, and adding a build of one's own. Nothing is sent."""

from __future__ import annotations

import getpass
import re
from typing import Annotated

import orjson
import typer

from tasc_collector.contracts.build_profile import BuildProfile
from tasc_collector.contracts.scalars import format_timestamp
from tasc_collector.contracts.study import EndpointFile
from tasc_collector.errors import InputError
from tasc_collector.runtimes.profile import Capability, RuntimeProfile
from tasc_collector.runtimes.registry import operator_profile, profiles
from tasc_pipeline.cli.common import home, now, out
from tasc_pipeline.cli.runtime_document import document, profile_section
from tasc_pipeline.home import Home, default_home
from tasc_pipeline.home.builds import add_build, load_builds
from tasc_pipeline.home.toml_records import read_toml

_MARKS = {"supported": "S", "conditional": "C", "unsupported": "-", "unknown": "?"}
_LEGEND = "S supported   C conditional   - unsupported   ? unknown"
_NOT_SLUG = re.compile(r"[^a-z0-9._-]+")


def register(app: typer.Typer) -> None:
    """Add the group to the command line."""
    group = typer.Typer(invoke_without_command=True, help="Registered runtimes and what their pinned builds can do.")
    group.callback()(matrix)
    group.command("show")(show)
    group.command("document")(print_document)
    group.command("try")(try_build)
    app.add_typer(group, name="runtimes")


def matrix(
    context: typer.Context, as_json: Annotated[bool, typer.Option("--json", help="One JSON line per runtime.")] = False
) -> None:
    """Print the matrix of runtimes and capabilities."""
    if context.invoked_subcommand is not None:
        return
    found = _known()
    if as_json:
        for profile in found:
            typer.echo(orjson.dumps(_line(profile)))
        return
    rows = [["", *(item.runtime for item in found)], ["capability", *(item.build for item in found)]]
    rows += [[name.value, *(_MARKS[item.state(name)] for item in found)] for name in Capability]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    typer.echo(f"\n{_LEGEND}\nreasons, routes and metrics: tasc runtimes show RUNTIME")


def show(
    runtime: Annotated[str, typer.Argument(help="Runtime id.")],
    build: Annotated[str | None, typer.Option(help="Build; all of them by default.")] = None,
) -> None:
    """Print everything that is known about one runtime, as Markdown."""
    found = [item for item in _known() if item.runtime == runtime and build in (None, item.build)]
    if not found:
        known = ", ".join(f"{item.runtime} {item.build}" for item in _known())
        raise InputError("there is no such runtime or build", where=runtime, way_out=f"choose one of {known}")
    typer.echo("\n".join(profile_section(profile) for profile in found))


def print_document() -> None:
    """Print docs/runtimes.md, made from the tables."""
    typer.echo(document(profiles()), nl=False)


def try_build(
    runtime: Annotated[str, typer.Argument(help="Registered runtime.")],
    build: Annotated[str, typer.Argument(help="The build that your server runs.")],
    endpoint: Annotated[str, typer.Option(help="Alias of the endpoint that runs it, or STUDY/ALIAS.")],
    base: Annotated[str | None, typer.Option(help="Registered build whose wire it is assumed to speak.")] = None,
    declared_by: Annotated[str | None, typer.Option(help="Who declares it; your user name by default.")] = None,
) -> None:
    """Add a build of a registered runtime: a file that claims nothing, so that receipts can."""
    found = home()
    record = BuildProfile.from_value(
        {
            "version": "tasc-build-profile-v1",
            "runtime": runtime,
            "build": build,
            "wireBase": {"runtime": runtime, "build": base or _pinned(runtime).build},
            "declaredBy": declared_by or _user(),
            "createdAt": format_timestamp(now()),
        }
    ).record
    profile = operator_profile(record)
    names = _endpoints(found, runtime, endpoint)
    known = next((item for item in load_builds(found) if (item.runtime, item.build) == (runtime, build)), None)
    path = add_build(found, known or record)
    out().print(f"{'kept' if known else 'wrote'} {path}", markup=False)
    out().print(
        "every capability of this build is unknown; its routes are admitted by signed receipts only", markup=False
    )
    for name in names or [f"STUDY/{endpoint.rpartition('/')[2]}"]:
        out().print(f'next: set runtime.build = "{build}" in the endpoint file of {name}, then one of', markup=False)
        for route in profile.routes:
            out().print(f"  tasc probe {name} {route} --effect inference-canary", markup=False)


def _known() -> list[RuntimeProfile]:
    """The pins, and the builds of the state folder where there is one."""
    found = default_home()
    own = load_builds(found) if found.root.is_dir() else ()
    return sorted(
        [*profiles(), *map(operator_profile, own)],
        key=lambda item: (item.runtime, item.wire_base is not None, item.build),
    )


def _pinned(runtime: str) -> RuntimeProfile:
    for profile in profiles():
        if profile.runtime == runtime:
            return profile
    raise InputError(
        "the runtime is not registered",
        where=runtime,
        way_out="choose one of " + ", ".join(profile.runtime for profile in profiles()),
    )


def _user() -> str:
    """The user's name as a slug."""
    return _NOT_SLUG.sub("-", getpass.getuser().lower()).strip("-._") or "operator"


def _endpoints(found: Home, runtime: str, endpoint: str) -> list[str]:
    """``STUDY/ALIAS`` of every endpoint of that name, after checking that it is of this runtime."""
    study, _, alias = endpoint.rpartition("/")
    names = []
    for path in sorted((found.root / "studies").glob(f"{study or '*'}/endpoints/*.toml")):
        known = read_toml(EndpointFile, path)
        if known.alias != alias:
            continue
        if known.runtime.profile_id != runtime:
            raise InputError(
                f"the endpoint is a {known.runtime.profile_id} server",
                where=str(path),
                field="runtime",
                way_out=f"run: tasc runtimes try {known.runtime.profile_id} BUILD --endpoint {endpoint}",
            )
        names.append(f"{path.parent.parent.name}/{alias}")
    return names


def _line(profile: RuntimeProfile) -> dict[str, object]:
    return {
        "runtime": profile.runtime,
        "build": profile.build,
        "tier": profile.tier,
        "locality": profile.locality,
        "wire_base": profile.wire_base,
        "capabilities": {name.value: profile.state(name).value for name in Capability},
        "routes": {
            route.value: {framing.value: path for framing, path in invocation.paths.items()}
            for route, invocation in profile.routes.items()
        },
    }
