"""docs/runtimes.md, made from the tables of ``tasc_collector.runtimes``. Pure: the same tables give the same text."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence
from dataclasses import fields

import orjson

from tasc_collector.runtimes.flags import MEANING as FLAG_MEANING
from tasc_collector.runtimes.flags import UNREGISTERED, DialectFlags, UsagePosition
from tasc_collector.runtimes.profile import (
    CanonicalMetric,
    Capability,
    CapabilityClaim,
    InvocationRoute,
    MetricSource,
    ObservationRoute,
    RuntimeProfile,
)
from tasc_collector.runtimes.verdict import MEANING as REASON_MEANING
from tasc_collector.runtimes.verdict import OUTCOME_OF, AnswerReason, FinishReason, Outcome
from tasc_collector.runtimes.workflows import WORKFLOWS, Workflow

_INTRODUCTION = """\
# Runtimes

<!-- made by: tasc runtimes document. A test compares this page with the tables; change those. -->

Each registered runtime has a table for one pinned build. A state says what that build's documents, source or a live run
showed:

- `supported`: the build has it;
- `conditional`: model, backend or configuration decide; a signed receipt can show it for one endpoint;
- `unsupported`: the build does not have it;
- `unknown`: nobody established it.

A state is an expectation, never evidence about your server. A live probe is separate evidence, scoped to endpoint,
build, backend, model revision and configuration. Another build than the pinned one is refused until you add it with
`tasc runtimes try RUNTIME BUILD --endpoint ALIAS`; all its capabilities are then `unknown`, and its routes are admitted
by signed canary receipts only.
"""
_EFFECTS = """\
## Effects

| effect | what it does | what it needs |
|---|---|---|
| `non-mutating` | reads | the exact route in the trust policy |
| `consumptive` | a read that uses something up, such as queued statistics | the effect named by the operator |
| `inference-canary` | a real, possibly billed model call | the effect named by the operator |

Every invocation route is an `inference-canary` outside a planned window. Where a route may escalate, the stronger
effect must be authorized.
"""
_VERDICTS = """\
## How an answer is read

A stream is a success only if the transport ended cleanly, no error frame came at any position, every choice has a known
finish reason, the dialect's terminator came where it has one, and usage came where the table says. The first rule that
applies decides:

1. an error, at any position: `provider_error`;
2. something that the dialect does not allow: `protocol_violation`, and nothing after it is read;
3. a transport that did not end cleanly: `truncated`;
4. terminator, finish reason or usage missing: `truncated`;
5. otherwise `completed`. Where the dialect cannot say why an answer ended, its finish reason is `reason-unavailable`.
"""
_FLAGS = """\
## Dialect flags

What differs between servers of one dialect. `tasc wire answer --flags FILE` takes the same names from a JSON object, to
read a captured answer of a server that is not registered; what the file leaves out is as in the third column.

"""


def document(profiles: Sequence[RuntimeProfile]) -> str:
    """The whole page."""
    return "\n".join(
        (
            _INTRODUCTION,
            _matrix(profiles),
            _EFFECTS,
            _verdicts(),
            _flags(),
            *(profile_section(item) for item in profiles),
            _workflows(WORKFLOWS),
        )
    )


def profile_section(profile: RuntimeProfile) -> str:
    """Everything about one build."""
    base = f" on the wire of {profile.wire_base[1]}" if profile.wire_base else ""
    lines = [
        f"## {profile.display_name} {profile.build}{base}",
        "",
        f"Id `{profile.runtime}`, tier `{profile.tier}`, `{profile.locality}`, dialect `{profile.dialect}`, usual port"
        f" {profile.port}. " + " ".join(f"[{item.title}]({item.url})." for item in profile.references),
        "",
    ]
    if profile.locality_note:
        lines += [profile.locality_note, ""]
    lines += _table(
        ("capability", "state", "why", "known by"),
        (
            (f"`{name}`", _state(claim), _why(claim), f"[{claim.evidence}]({claim.reference.url})")
            for name, claim in profile.capabilities.items()
        ),
    )
    lines += _table(
        ("invocation route", "paths", "token cap", "flags", "note"),
        (
            (f"`{route}`", _paths(item), f"`{item.request.cap_field}`", _flag_words(item.flags), item.note)
            for route, item in profile.routes.items()
        ),
    )
    lines += _table(("observation", "path", "effect", "kept", "note"), map(_observation, profile.observations))
    lines += _table(
        ("metric", "source", "how"), ((f"`{name}`", *_metric(profile.metrics.get(name))) for name in CanonicalMetric)
    )
    return "\n".join(lines)


def _matrix(profiles: Sequence[RuntimeProfile]) -> str:
    """The matrix of capabilities, and that of the runtimes."""
    runtimes = _table(
        ("runtime", "build", "tier", "locality", "invocation routes", "observation routes"),
        (
            (
                item.display_name,
                f"`{item.build}`",
                item.tier,
                item.locality,
                ", ".join(f"{route} ({'/'.join(invocation.framings)})" for route, invocation in item.routes.items()),
                ", ".join(dict.fromkeys(f"`{route.path}`" for route in item.observations)),
            )
            for item in profiles
        ),
    )
    states = _table(
        ("capability", *(item.runtime for item in profiles)),
        ((f"`{name}`", *(item.state(name) for item in profiles)) for name in Capability),
    )
    return "\n".join(("## Matrix", "", *runtimes, *states))


def _verdicts() -> str:
    return "\n".join(
        (
            _VERDICTS,
            *_table(
                ("outcome", "reason", "meaning"),
                (
                    (f"`{outcome}`", f"`{reason}`", REASON_MEANING[reason])
                    for outcome in Outcome
                    for reason in AnswerReason
                    if OUTCOME_OF[reason] is outcome
                ),
            ),
        )
    )


def _flags() -> str:
    described = dict(_described_flags())
    usual = DialectFlags()
    return _FLAGS + "\n".join(
        (
            *_table(
                ("flag", "default in a table", "default in a file", "meaning"),
                (
                    (
                        f"`{item.name}`",
                        f"`{_shown(getattr(usual, item.name))}`",
                        f"`{_shown(getattr(UNREGISTERED, item.name))}`",
                        described[item.name],
                    )
                    for item in fields(DialectFlags)
                ),
            ),
            f"Canonical finish reasons, to which `reason_map` maps: {', '.join(f'`{reason}`' for reason in FinishReason)}.",
            "",
            *_table(
                ("value of", "value", "meaning"),
                (
                    (
                        "`usage_position`" if isinstance(item, UsagePosition) else "`error_frame_shape`",
                        f"`{item}`",
                        meaning,
                    )
                    for item, meaning in FLAG_MEANING.items()
                ),
            ),
        )
    )


def _described_flags() -> Iterable[tuple[str, str]]:
    """Name and meaning of each flag, from the class's own documentation."""
    text = inspect.cleandoc(DialectFlags.__doc__ or "").partition("Args:\n")[2]
    for line in re.sub(r"\n {5,}", " ", text).splitlines():
        name, _, meaning = line.strip().partition(": ")
        yield name, meaning.replace("|", "\\|").replace("``", "`")


def _workflows(workflows: Iterable[Workflow]) -> str:
    rows = _table(
        ("workflow", "standing", "why", "reading a captured answer"),
        (
            (
                item.name,
                item.standing,
                item.reason,
                "; ".join(f"{route}: `--flags` `{orjson.dumps(flags).decode()}`" for route, flags in item.flags.items())
                or "not known",
            )
            for item in workflows
        ),
    )
    return (
        "\n".join(
            (
                "## Twelve other workflows",
                "",
                "None is registered; nothing is sent to them. What a profile needs: [adding a runtime](adding-a-runtime.md).",
                "",
                *rows,
            )
        ).rstrip("\n")
        + "\n"
    )


def _state(claim: CapabilityClaim) -> str:
    return f"`{claim.state}`" + (f" ({', '.join(claim.depends_on)})" if claim.depends_on else "")


def _why(claim: CapabilityClaim) -> str:
    return claim.reason + (f" Needs `{claim.requirement}`." if claim.requirement else "")


def _paths(item: InvocationRoute) -> str:
    framings: dict[str, list[str]] = {}
    for framing in item.framings:
        framings.setdefault(item.paths[framing], []).append(framing)
    return ", ".join(f"POST `{path}` ({', '.join(names)})" for path, names in framings.items())


def _flag_words(flags: DialectFlags) -> str:
    """The flags that are not the defaults."""
    usual = DialectFlags()
    changed = [
        f"`{item.name}: {_shown(getattr(flags, item.name))}`"
        for item in fields(DialectFlags)
        if getattr(flags, item.name) != getattr(usual, item.name)
    ]
    return ", ".join(changed) or "defaults"


def _observation(route: ObservationRoute) -> tuple[str, ...]:
    effect = f"`{route.effect}`" + (f", may escalate to `{route.escalates_to}`" if route.escalates_to else "")
    kept = ", ".join(f"`{name}`" for name in route.fields) or route.expects.value
    note = " ".join(part for part in (f"Needs `{route.requirement}`." if route.requirement else "", route.note) if part)
    return (route.kind.value, f"GET `{route.path}`", effect, kept, note)


def _metric(source: MetricSource | None) -> tuple[str, str]:
    if source is None:
        return "none at this build: null, never zero", ""
    names = " / ".join(f"`{name}`" for name in source.names)
    return f"{names} ({source.format})", f"{source.reduce}. {source.note}".strip()


def _shown(value: object) -> str:
    """A flag's value as it stands in a file."""
    if isinstance(value, frozenset):
        value = sorted(value)
    elif not isinstance(value, bool | int | str | None):
        value = dict(value)  # type: ignore[call-overload]  # the only other type is the map of reasons
    return orjson.dumps(value).decode().replace("|", "\\|")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return [*lines, ""]
