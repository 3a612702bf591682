"""A study's successor: the same but for what the operator names, with a record of what changed.

Rules:

1. A successor is a study of its own, with its own rules digest, receipts and windows. ``fork.json`` names the study that
   it goes on from, the first study of the line, and every field that changed.
2. Aliases, profile ids, case file, seeds and split stay, so that an analyst can unite the windows of a line.
3. A changed server is another server: its configuration digest changes with it, unless the operator names one. What he
   sets is marked declared. Nothing is asked of any server.
4. Digests that depend on what changed are computed again: rules, trust policy, policies, analysis plan.
5. A successor names the dispatch and collector keys that are valid now. Where they were rotated or revoked since, that
   is a change, and enough to make a successor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from tasc_collector.canonical import canonical_bytes, digest
from tasc_collector.contracts.base import Record, input_error
from tasc_collector.contracts.comparison import Comparison
from tasc_collector.contracts.instance import RuntimeBuild
from tasc_collector.contracts.operations import KeyRole
from tasc_collector.contracts.protocol import ExperimentProtocol
from tasc_collector.contracts.scalars import format_timestamp
from tasc_collector.contracts.study import EndpointFile, Study, StudyChange, StudyFork
from tasc_collector.errors import InputError
from tasc_collector.runtimes.profile import Framing, Route
from tasc_pipeline.home import keys
from tasc_pipeline.home.builds import home_profile
from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.studies import LoadedStudy, load_study
from tasc_pipeline.steps.decision_answers import toml_value
from tasc_pipeline.steps.new_decision import policy_files
from tasc_pipeline.steps.new_study import LIFE
from tasc_pipeline.steps.study_parts import ANALYSIS_PLAN, COST_MODEL, EVALUATOR_TRUST, StudyFiles, requirements
from tasc_pipeline.steps.study_servers import trust_policy

R = TypeVar("R", bound=Record)

SERVER_SETTINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "url": ("origin",),
    "runtime": ("runtime", "profile_id"),
    "build": ("runtime", "build"),
    "backend": ("backend", "name"),
    "backend_build": ("backend", "build"),
    "model": ("model", "id"),
    "revision": ("model", "revision"),
    "configuration": ("configuration_digest",),
    "secret": ("authentication_secret",),
}
"""What can be set of a server, as ``ALIAS.NAME``, and where it stands in its endpoint file."""
_NAMED_KEYS: Final[tuple[KeyRole, ...]] = ("dispatch", "collector")
_HIDDEN: Final = frozenset({"url", "secret"})
"""Settings whose values stay in the endpoint file alone."""
_FIXED: Final = frozenset(
    {
        "version",
        "study_id",
        "kind",
        "protocol",
        "trust_policy",
        "predecessor_digest",
        "created_at",
        "expires_at",
        "dispatch_authority",
        "collector_authority",
        "profiles",
        "champion_profile_id",
        "candidate_profile_ids",
        "endpoint_requirements",
        "cost_allocation",
        "targets",
        "keys",
    }
)
"""Fields that follow from the rest, or that make another study altogether."""


@dataclass(frozen=True, slots=True)
class ForkOutcome:
    """What was written."""

    folder: Path
    fork: StudyFork


def fork_study(
    home: Home, study_id: str, settings: Sequence[str], now: datetime, *, successor: str | None = None
) -> ForkOutcome:
    """Write the successor of a study.

    Args:
        home: the state folder.
        study_id: the study that it goes on from.
        settings: ``NAME=VALUE`` each: ``ALIAS.build`` and the like for a server, else a field of the comparison, the
            protocol or ``study.toml``.
        now: the wall clock.
        successor: its id; the next number if None.

    Raises:
        InputError: a setting names nothing, changes nothing or breaks a rule, or the id is taken; nothing was written.
    """
    loaded = load_study(home, study_id)
    new_id = successor or _next_id(home, study_id)
    folder = home.study(new_id)
    if folder.exists():
        raise InputError(
            "a study with this id exists", where=str(folder), field="--study", way_out="choose another id: --study ID"
        )
    draft = _Draft.of(loaded)
    for setting in settings:
        draft.set(setting)
    draft.note_keys(home, format_timestamp(now))
    if not draft.changes:
        raise InputError(
            "nothing changes",
            where=study_id,
            field="--set",
            rule="a successor differs from its study",
            way_out="name what changes, such as --set champion.build=0.33.0",
        )
    draft.finish_servers()
    files = _files(home, loaded, draft, new_id, now)
    files.write(folder)
    assert files.fork is not None  # noqa: S101 - _files always makes one
    return ForkOutcome(folder, files.fork)


class _Draft:
    """The JSON values of a study while settings are applied."""

    def __init__(self, endpoints: dict[str, dict[str, Any]], rules: dict[str, Any], study: dict[str, Any]) -> None:
        self.endpoints, self.rules, self.study = endpoints, rules, study  # Any: JSON objects by Python names
        self.changes: dict[str, StudyChange] = {}
        self._servers: dict[str, dict[str, str]] = {}

    @classmethod
    def of(cls, loaded: LoadedStudy) -> _Draft:
        """The draft that changes nothing."""
        return cls(
            {endpoint.alias: _plain(endpoint) for endpoint in loaded.endpoints.values()},
            _plain(loaded.rules),
            _plain(loaded.study),
        )

    def set(self, setting: str) -> None:
        """Apply one ``NAME=VALUE``."""
        name, equals, text = setting.partition("=")
        first, _, rest = name.partition(".")
        if not equals or not first:
            raise _no_setting(name, "write it like champion.build=0.33.0")
        if first in self.endpoints:
            self._set_server(first, rest, text)
            return
        value = toml_value(text)
        target = next(
            (document for document in (self.rules, self.study) if first in document and first not in _FIXED), None
        )
        if target is None:
            known = sorted({*self.endpoints, *self.rules, *self.study} - _FIXED)
            raise _no_setting(name, f"begin it with one of {', '.join(known)}")
        *parents, last = name.split(".")
        inner: Any = target  # Any: a JSON value
        for part in parents:
            inner = inner.get(part) if isinstance(inner, dict) else None
        if not isinstance(inner, dict) or last not in inner:
            raise _no_setting(name, "see the field's name in the study's files")
        self._note(name, inner[last], value)
        inner[last] = value

    def note_keys(self, home: Home, at: str) -> None:
        """Rule 5: note keys that are not those of the study any more."""
        ring = keys.read_ring(home)
        for role in _NAMED_KEYS:
            before, after = self.rules[f"{role}_authority"]["key_id"], keys.current(ring, role, at).key_id
            if before != after:
                self._note(f"{role}_authority.key_id", before, after)

    def finish_servers(self) -> None:
        """Rule 3: a changed server has another configuration, unless one was named."""
        for alias, said in self._servers.items():
            endpoint = self.endpoints[alias]
            if "configuration" in said or set(said) <= _HIDDEN:
                continue
            before = endpoint["configuration_digest"]
            after = digest("tasc/declared-configuration/v1", {"alias": alias, "declared": said, "before": before})
            self._note(f"{alias}.configuration", before, after)
            endpoint |= {"configuration_digest": after, "configuration_basis": "declared"}

    def _set_server(self, alias: str, name: str, text: str) -> None:
        path = SERVER_SETTINGS.get(name)
        if path is None:
            raise _no_setting(f"{alias}.{name}", f"set one of {', '.join(SERVER_SETTINGS)} of a server")
        endpoint = self.endpoints[alias]
        parent = endpoint if len(path) == 1 else endpoint[path[0]]
        hidden = name in _HIDDEN
        self._note(f"{alias}.{name}", parent[path[-1]], text, hidden=hidden)
        parent[path[-1]] = text
        basis = {"backend": "backend_basis", "model": "model_basis", "configuration_digest": "configuration_basis"}
        basis["runtime"] = "runtime_basis"
        if path[0] in basis:
            endpoint[basis[path[0]]] = "declared"
        if name == "secret":
            endpoint |= {"authentication_reference": f"{alias}-auth", "authentication_header": "authorization"}
        self._servers.setdefault(alias, {})[name] = "" if hidden else text

    def _note(self, field: str, before: Any, after: Any, *, hidden: bool = False) -> None:  # Any: JSON values
        if before == after:
            raise InputError(
                "this is its value already", where="--set", field=field, way_out="leave it out, or set another value"
            )
        texts = (None, None) if hidden else (_text(before), _text(after))
        self.changes[field] = StudyChange(field=field, before=texts[0], after=texts[1])


def _files(home: Home, loaded: LoadedStudy, draft: _Draft, new_id: str, now: datetime) -> StudyFiles:
    endpoints = {alias: _record(EndpointFile, value) for alias, value in draft.endpoints.items()}
    by_profile = {profile_id: endpoints[item.alias] for profile_id, item in loaded.endpoints.items()}
    runtimes = {}
    for profile_id, endpoint in list(by_profile.items()):
        runtime = home_profile(home, endpoint.runtime.profile_id, endpoint.runtime.build)
        base = runtime.wire_base
        wire_base = None if base is None else RuntimeBuild(profile_id=base[0], build=base[1])
        by_profile[profile_id] = endpoint.model_copy(update={"wire_base": wire_base})
        target = loaded.target(profile_id)
        if Framing(target.framing) not in getattr(runtime.routes.get(Route(target.route)), "framings", ()):
            raise InputError(
                f"this build has no route {target.route} with framing {target.framing}",
                where=new_id,
                field=f"{endpoint.alias}.build",
                way_out="make a new study of this server: tasc study new",
            )
        runtimes[profile_id] = runtime
    rules = _rules(home, loaded, draft, by_profile, new_id, now)
    study = _record(Study, draft.study | {"study_id": new_id, "owner": rules.owner, "keys": _keys(loaded, new_id)})
    target = study.targets[0]
    records: dict[str, Record] = {}
    if isinstance(rules, ExperimentProtocol):
        records |= policy_files(rules)
    for name, parsed in ((COST_MODEL, loaded.cost_model), (EVALUATOR_TRUST, loaded.evaluator_trust)):
        if parsed is not None:
            records[name] = parsed.record
    if loaded.analysis is not None:
        records[ANALYSIS_PLAN] = loaded.analysis.record.model_copy(
            update={"study_id": new_id, "protocol_digest": rules.digest, "pinned_at": rules.created_at}
        )
    if loaded.extension is not None and study.network_extension is not None:
        records[study.network_extension] = loaded.extension.record
    listed = [by_profile[profile.id] for profile in rules.profiles]
    fork = StudyFork(
        study_id=new_id,
        lineage_id=loaded.fork.lineage_id if loaded.fork is not None else loaded.study.study_id,
        predecessor_study_id=loaded.study.study_id,
        predecessor_digest=loaded.protocol_digest,
        protocol_digest=rules.digest,
        changes=tuple(draft.changes[name] for name in sorted(draft.changes)),
        forked_at=rules.created_at,
    )
    ordered = [runtimes[profile.id] for profile in rules.profiles]
    policy = trust_policy(listed, ordered, Route(target.route), Framing(target.framing))
    return StudyFiles(study, rules, policy, listed, records, fork=fork)


def _rules(
    home: Home,
    loaded: LoadedStudy,
    draft: _Draft,
    endpoints: Mapping[str, EndpointFile],
    new_id: str,
    now: datetime,
) -> Comparison | ExperimentProtocol:
    at = format_timestamp(now)
    ring = keys.read_ring(home)
    dispatch, collector = keys.current(ring, "dispatch", at), keys.current(ring, "collector", at)
    changes: dict[str, Any] = {  # Any: field values by Python names
        "study_id": new_id,
        "created_at": at,
        "expires_at": format_timestamp(now + LIFE),
        "dispatch_authority": _authority(dispatch.key_id, dispatch.public_key_spki),
        "collector_authority": _authority(collector.key_id, collector.public_key_spki),
        "profiles": [_profile(profile, endpoints[profile["id"]]) for profile in draft.rules["profiles"]],
        "endpoint_requirements": [_plain(item) for item in requirements(list(endpoints.values()))],
    }
    before = loaded.rules
    if isinstance(before, Comparison):
        if draft.rules["comparison_version"] == before.comparison_version:
            changes["comparison_version"] = _next_version(before.comparison_version)
        changes["predecessor_digest"] = before.digest
        changes["shadow_collection"] = _ceilings(draft.rules, before)
        return _record(Comparison, draft.rules | changes)
    if draft.rules["protocol_version"] == before.protocol_version:
        changes["protocol_version"] = _next_version(before.protocol_version)
    return _record(ExperimentProtocol, draft.rules | changes)


def _ceilings(rules: dict[str, Any], before: Comparison) -> dict[str, Any]:  # Any: JSON objects by Python names
    """The ceilings; with other replicates the executions follow, unless they were set themselves."""
    found = dict(rules["shadow_collection"])
    executions = before.shadow_collection.maximum_logical_executions
    if isinstance(rules["replicates"], int) and found["maximum_logical_executions"] == executions:
        found["maximum_logical_executions"] = -(-executions * rules["replicates"] // before.replicates)
    return found


def _profile(profile: dict[str, Any], endpoint: EndpointFile) -> dict[str, Any]:  # Any: JSON objects by Python names
    return profile | {
        "runtime": {"name": endpoint.runtime.profile_id, "build": endpoint.runtime.build},
        "backend": {"name": endpoint.backend.name, "build": endpoint.backend.build},
        "model": {"id": endpoint.model.id, "revision": endpoint.model.revision},
        "deployment_configuration_digest": endpoint.configuration_digest,
    }


def _authority(key_id: str, spki: str) -> dict[str, str]:
    return {"key_id": key_id, "algorithm": "ed25519", "public_key_spki": spki}


def _keys(loaded: LoadedStudy, new_id: str) -> dict[str, Any]:  # Any: a JSON object by Python names
    return _plain(loaded.study.keys) | {"payload_key_id": f"{new_id[:100]}-payload-1"}


def _next_id(home: Home, study_id: str) -> str:
    """``first`` is followed by ``first-2``, that by ``first-3``."""
    stem, _, number = study_id.rpartition("-")
    stem, count = (stem, int(number)) if stem and number.isdecimal() else (study_id, 1)
    while home.study(f"{stem}-{count + 1}").exists():
        count += 1
    return f"{stem}-{count + 1}"


def _next_version(version: str) -> str:
    digits = version.removeprefix("v")
    return f"v{int(digits) + 1}" if digits.isdecimal() else f"{version[:120]}-2"


def _plain(record: Any) -> dict[str, Any]:  # Any: a model, and a JSON object by Python names
    value: dict[str, Any] = record.model_dump(mode="json", by_alias=False)
    return value


def _record(cls: type[R], value: dict[str, Any]) -> R:  # Any: a JSON object by Python names
    try:
        return cls.model_validate_json(canonical_bytes(value), by_name=True, by_alias=False)
    except ValidationError as error:
        raise input_error(error, where="--set") from None


def _text(value: Any) -> str | None:  # Any: a JSON value
    if value is None:
        return None
    return value if isinstance(value, str) else canonical_bytes(value).decode()


def _no_setting(name: str, way_out: str) -> InputError:
    return InputError("this setting names nothing", where="--set", field=name or None, way_out=way_out)
