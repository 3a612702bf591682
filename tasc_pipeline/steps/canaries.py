"""Canaries that nobody is there to ask for: which are wanted under a standing authorization, and making them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tasc_collector.canonical import digest
from tasc_collector.contracts.collection import StandingAuthorization
from tasc_collector.contracts.receipt import CapabilityReceipt
from tasc_collector.errors import TascError
from tasc_collector.limits import JOURNAL_TRACE_ID_MAX_CHARACTERS
from tasc_collector.probes.canaries import CANARIES
from tasc_collector.runtimes.profile import Capability, Effect
from tasc_pipeline.control import authorizations as allowing
from tasc_pipeline.control.authorizations import Entries
from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.ledger import read_entries
from tasc_pipeline.home.studies import LoadedStudy, load_study
from tasc_pipeline.steps.admission import conditional_routes
from tasc_pipeline.steps.probe import ProbeOptions, probe_endpoint
from tasc_pipeline.steps.probe_rounds import due_canaries
from tasc_pipeline.steps.spending import ProbeWord, canary_cost, in_force_now


@dataclass(frozen=True, slots=True)
class WantedCanary:
    """One canary of one conditional route, and on whose word."""

    study_id: str
    alias: str
    route: str
    authorization_id: str


def request_name(alias: str, route: str, name: str) -> str:
    """Name of one canary's request, as its reservation carries it; a long one is digested, for a ledger holds 128."""
    text = f"canary-{alias}-{route}-{name}"
    if len(text) <= JOURNAL_TRACE_ID_MAX_CHARACTERS:
        return text
    return f"canary-{digest('tasc/canary-request/v1', text).removeprefix('sha256:')}"


def wanted_canaries(home: Home, study_id: str, as_of: str) -> Iterator[WantedCanary]:
    """The canaries of a study that are due and allowed; sends nothing.

    Args:
        home: the state folder.
        study_id: the study.
        as_of: now.

    Raises:
        NotAuthorized: one is due, and no authorization allows all that are; says why.
        InputError: a file breaks a rule.
    """
    loaded = load_study(home, study_id)
    due = due_canaries(home, loaded, as_of)
    if due:
        word = check_canaries(home, loaded, due, read_entries(home, loaded.study), as_of)
        yield from (WantedCanary(study_id, alias, route, word.authorization_id) for alias, route in due.items())


def check_canaries(
    home: Home, loaded: LoadedStudy, due: dict[str, str], entries: Entries, as_of: str
) -> StandingAuthorization:
    """The authorization under which canaries of some routes may be made now.

    Args:
        home: the state folder.
        loaded: the study.
        due: route by alias.
        entries: its ledger.
        as_of: now.

    Raises:
        NotAuthorized: none covers their effect, study and targets, or their sum would pass a ceiling.
    """
    profiles = {endpoint.alias: profile_id for profile_id, endpoint in loaded.endpoints.items()}

    def check(authorization: StandingAuthorization) -> None:
        allowing.covers_study(authorization, loaded.study.study_id, loaded.protocol_digest)
        allowing.covers_prices(authorization, loaded.cost_model_digest)
        allowing.covers_effect(authorization, Effect.INFERENCE_CANARY.value)
        total = allowing.Spend()
        for alias, route in due.items():
            profile_id, canary = profiles[alias], CANARIES[Capability(route)]
            binding, lane_width = loaded.bindings[profile_id], loaded.target(profile_id).lane_width
            allowing.covers_target(authorization, profile_id, alias, binding, route, lane_width)
            total = allowing.added(total, canary_cost(loaded, profile_id, canary.calls, canary.most_tokens))
        allowing.check_spend(authorization, entries, total, reference=None, as_of=as_of)

    return allowing.first_allowed(in_force_now(home, loaded, as_of), check, study_id=loaded.study.study_id)


def admit_routes(home: Home, study_id: str, word: StandingAuthorization, name: str) -> list[CapabilityReceipt]:
    """Obtain a new receipt for every conditional route of a study, one canary each, under an authorization.

    Args:
        home: the state folder.
        study_id: the study.
        word: the authorization.
        name: of the request; each name is used once.

    Raises:
        NotAuthorized: it does not allow the canaries; nothing more is sent.
        TascError: a server did not show its route, so no window can be planned.
    """
    loaded = load_study(home, study_id)
    stored: list[CapabilityReceipt] = []
    for profile_id in conditional_routes(home, loaded):
        alias, route = loaded.endpoints[profile_id].alias, loaded.target(profile_id).route
        options = ProbeOptions(
            Effect.INFERENCE_CANARY, word=ProbeWord(word.authorization_id, request_name(alias, route, name))
        )
        receipt = probe_endpoint(home, study_id, alias, Capability(route), options).receipt
        stored.append(receipt)
        if receipt.state != "supported":
            raise TascError(
                f"the canary did not show the route: {receipt.reason}",
                where=f"{study_id}/{alias}",
                field=route,
                way_out=f"see what it needs: tasc runtimes show {receipt.runtime.profile_id}",
            )
    return stored
