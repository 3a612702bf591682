"""``tasc keys list | rotate | revoke | import | public``: the public keys, and changing them with dates."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final, get_args

import typer

from tasc_collector.contracts.operations import KeyRole
from tasc_collector.contracts.scalars import format_timestamp
from tasc_collector.errors import InputError
from tasc_pipeline.cli.common import home, now, out
from tasc_pipeline.home import keys
from tasc_pipeline.home.key_changes import import_public, new_hmac_key, public_part, rotate
from tasc_pipeline.home.key_changes import revoke as revoke_key
from tasc_pipeline.home.studies import studies_naming

ROLES: Final[tuple[KeyRole, ...]] = get_args(KeyRole)


def register(app: typer.Typer) -> None:
    """Add the commands; ``tasc keys`` alone lists."""
    group = typer.Typer(invoke_without_command=True, help="Public keys with role, validity and revocation.")
    group.callback()(_list_if_alone)
    group.command("list")(list_keys)
    group.command("rotate")(rotate_key)
    group.command("revoke")(revoke)
    group.command("import")(import_keys)
    group.command("public")(public)
    app.add_typer(group, name="keys")


def _list_if_alone(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        list_keys()


def list_keys() -> None:
    """Show the public keys with role, validity and revocation, and which may sign now."""
    from rich.table import Table

    at = format_timestamp(now())
    table = Table("role", "key id", "valid from", "valid until", "revoked", "now")
    for key in keys.read_ring(home()).keys:
        state = "valid" if keys.is_valid(key, at) else "signs no more"
        table.add_row(key.role, key.key_id, key.valid_from, key.valid_until, key.revoked_at or "", state)
    out().print(table)


def rotate_key(
    role: Annotated[
        str, typer.Argument(help="operator, dispatch or collector; payload-hmac or journal-hmac for new studies.")
    ],
    overlap_days: Annotated[
        float | None,
        typer.Option(help="How long the old key may still sign: 30 for dispatch and collector, else 0."),
    ] = None,
) -> None:
    """Make a new key for a role; what the old one signed keeps counting."""
    found = home()
    if role in keys.HMAC_KEYS:
        reference = new_hmac_key(found, role, now())
        out().print(f"new {role} key {reference}; name it in the study.toml of a new study", markup=False)
        return
    overlap = None if overlap_days is None else timedelta(days=overlap_days)
    done = rotate(found, _role(role), now(), overlap=overlap)
    console = out()
    console.print(f"new {role} key {done.new.key_id}, valid until {done.new.valid_until}", markup=False)
    if done.old is not None:
        console.print(f"{done.old.key_id} may sign until {done.old.valid_until}", markup=False)
        for study_id in studies_naming(found, done.old.key_id):
            console.print(f"{study_id} names the old key: before that, tasc study fork {study_id}", markup=False)


def revoke(
    key_id: Annotated[str, typer.Argument(help="Key id, as `tasc keys list` shows it.")],
    since: Annotated[
        str | None,
        typer.Option(help="Since when it is not trusted, UTC, like 2026-01-31T09:30:00.000Z; now if not given."),
    ] = None,
) -> None:
    """Take trust from a key: its signatures from that date on do not count."""
    found = home()
    entry = revoke_key(found, key_id, now(), since=since)
    console = out()
    console.print(f"{entry.key_id} ({entry.role}) is revoked from {entry.revoked_at}", markup=False)
    for study_id in studies_naming(found, key_id):
        console.print(
            f"{study_id} names it and collects nothing more; go on with tasc study fork {study_id}", markup=False
        )
    if entry.role in keys.SIGNING_ROLES:
        console.print(f"next: tasc keys rotate {entry.role}", markup=False)


def import_keys(
    file: Annotated[Path, typer.Argument(help="A ring file, as `tasc keys public` prints it.")],
    role: Annotated[str, typer.Option(help="Only keys of this role are taken.")],
) -> None:
    """Add public keys of one role that another machine made, and take over their revocations."""
    changed = import_public(home(), file, _role(role))
    for entry in changed:
        state = f"revoked from {entry.revoked_at}" if entry.revoked_at else f"valid until {entry.valid_until}"
        out().print(f"{entry.role} {entry.key_id}: {state}", markup=False)
    if not changed:
        out().print("nothing new", markup=False)


def public(
    key_ids: Annotated[list[str] | None, typer.Argument(help="Key ids; all if none is given.")] = None,
) -> None:
    """Print public keys as a ring file, to import on another machine."""
    out().print(public_part(keys.read_ring(home()), tuple(key_ids or ())).canonical().decode(), markup=False)


def _role(word: str) -> KeyRole:
    found = next((role for role in ROLES if role == word), None)
    if found is None:
        raise InputError(
            "there is no such role", where="tasc keys", rule=f"one of {', '.join(ROLES)}", way_out="name one"
        )
    return found
