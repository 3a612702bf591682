"""The original project's acceptance of an exported trace set, written down a second time: from its facts, with none of our code.

Only the standard library, an RFC 8785 encoder and Ed25519 are used, so that a mistake in our models, digests or signatures is
not repeated here. ``broken`` names every rule that a set of lines breaks; an empty list means that it is accepted.

1. A line is the canonical bytes of one object with exactly the fields of a trace envelope v2, each of its form.
2. What the fields say together holds: splits and windows, attempts, times, success and failure.
3. Both signatures are those of the study's keys, over the value in its domain; times lie in the study's validity.
4. The execution profile's digest and model are those of the study's profile.
5. Traces of a set agree: one per case, replicate and profile; what a case shares is the same in all of them.
6. With a manifest, each belongs to its window, and the set's digest is the manifest's. With a shadow run plan, each is bound
   to the plan's target of its profile, and the set is within the work budget.
7. With the payload key, the ids of traces, routes and attempts are derived again.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import rfc8785
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_der_public_key

from tests.support.original_forms import TRACE_FIELDS

Json = dict[str, Any]  # Any throughout: JSON as it is read, judged here
_AFTER_DISPATCH = ("attempts", "terminalOutputId", "collectorVersion", "collectorAttestation")
_SHARED_BY_CASE = (
    "groupId",
    "split",
    "workload",
    "slices",
    "routeSignal",
    "policyDigest",
    "collectionWindowId",
    "collectionWindowMembershipDigest",
)
_LINEAGE = (
    "studyId",
    "protocolDigest",
    "collectionWindowId",
    "collectionWindowMembershipDigest",
    "policyDigest",
    "caseId",
    "groupId",
    "replicateId",
    "profileId",
)


def digest(domain: str, value: Any) -> str:
    return "sha256:" + hashlib.sha256(rfc8785.dumps({"domain": domain, "value": value})).hexdigest()


@dataclass(frozen=True)
class Rules:
    """What a set is held to.

    Args:
        protocol: a protocol's JSON, or a comparison's, whose shapes are the same.
        protocol_digest: its digest.
        manifest: the window manifest, or None.
        plan: the shadow run plan, or None.
        payload_key: id and bytes of the study's payload key, or None.
    """

    protocol: Json
    protocol_digest: str
    manifest: Json | None = None
    plan: Json | None = None
    payload_key: tuple[str, bytes] | None = None


def broken(lines: Sequence[bytes], rules: Rules) -> list[str]:
    """Every rule that a set of NDJSON lines breaks, with the number of the line where there is one."""
    found: list[str] = []
    traces: list[Json] = []
    for at, line in enumerate(lines, start=1):
        value, wrong = _read(line)
        if value is not None:
            traces.append(value)
            wrong += _one(value, rules)
        found += [f"{at}: {rule}" for rule in wrong]
    return found if found else [*_together(traces), *_window(traces, rules), *_bound(traces, rules)]


def _read(line: bytes) -> tuple[Json | None, list[str]]:
    if not line.endswith(b"\n") or line.count(b"\n") != 1:
        return None, ["one line per trace"]

    def once(pairs: list[tuple[str, Any]]) -> Json:
        if len({name for name, _ in pairs}) != len(pairs):
            raise ValueError("duplicate key")
        return dict(pairs)

    try:
        value = json.loads(line.decode("utf-8"), object_pairs_hook=once)
    except ValueError:
        return None, ["strict JSON"]
    if not isinstance(value, dict) or set(value) != set(TRACE_FIELDS):
        return None, ["exactly the fields of an envelope"]
    wrong = [f"form of {name}" for name, check in TRACE_FIELDS.items() if not check(value[name])]
    if wrong:
        return None, wrong
    return value, [] if rfc8785.dumps(value) + b"\n" == line else ["canonical bytes"]


def _one(value: Json, rules: Rules) -> list[str]:
    attempts, last = value["attempts"], value["attempts"][-1]
    online, profile = value["split"] == "online", _profile(value, rules)
    intent, attestation = value["dispatchIntent"], value["collectorAttestation"]
    signal = value["routeSignal"]
    begin, end = rules.protocol["createdAt"], rules.protocol["expiresAt"]
    limit = rules.protocol.get("shadowCollection", {}).get("maximumAttempts", 8)
    holds = {
        "window id and membership exactly online": (value["collectionWindowId"] is not None) is online
        and (value["collectionWindowMembershipDigest"] is not None) is online,
        "binding exactly in shadow mode": (value["collectionBinding"] is not None) is (value["sourceMode"] == "shadow"),
        "the selected profile is the profile": value["observedRoute"]["selectedProfileId"] == value["profileId"],
        "attempts are numbered without gap": [a["attemptNumber"] for a in attempts] == [*range(1, len(attempts) + 1)],
        "attempt ids are unique": len({a["attemptId"] for a in attempts}) == len(attempts),
        "at most the protocol's attempts": len(attempts) <= limit,
        "each attempt makes sense": all(map(_attempt, attempts)),
        "success only last": all(a["status"] != "success" for a in attempts[:-1]),
        "earlier attempts are proved unsent transport or timeout failures": all(
            (a["dispatchState"], a["status"]) == ("not_sent", "failure") or a["abortLifecycle"] == "abort-confirmed"
            for a in attempts[:-1]
        ),
        "terminal output exactly for a success": (value["terminalOutputId"] is not None)
        is (last["status"] == "success"),
        "attempts follow one another": all(
            a["observerTimings"]["completedAt"] <= b["observerTimings"]["startedAt"]
            for a, b in itertools.pairwise(attempts)
        ),
        "signal before intent": signal is None or signal["provenance"]["observedAt"] <= intent["issuedAt"],
        "intent before the first attempt": intent["issuedAt"] <= attempts[0]["observerTimings"]["startedAt"],
        "study and protocol": (value["studyId"], value["protocolDigest"])
        == (rules.protocol["studyId"], rules.protocol_digest),
        "intent in validity": begin <= intent["issuedAt"] < end,
        "collected in validity, after the end": begin <= attestation["collectedAt"] < end
        and attestation["collectedAt"] >= last["observerTimings"]["completedAt"],
        "dispatch signature": _signed(
            rules.protocol["dispatchAuthority"],
            intent,
            {"domain": "tasc/dispatch-intent-signature/v1", "intent": _until_intent(value)},
        ),
        "collector signature": _signed(
            rules.protocol["collectorAuthority"],
            attestation,
            {
                "domain": "tasc/collector-attestation-signature/v1",
                "trace": {**value, "collectorAttestation": _unsigned(attestation)},
            },
        ),
        "the study's profile": profile is not None
        and value["executionProfileDigest"] == digest("tasc/execution-profile/v2", profile),
        "the profile's model": profile is not None and all(_model(a, profile) for a in attempts),
        "payload key": all(
            item.get("keyId") == attempts[0]["payloads"]["request"].get("keyId")
            for a in attempts
            for item in (*a["payloads"].values(), value["terminalOutputId"])
            if item is not None and "keyId" in item
        ),
        "required capabilities": _capabilities(value, rules.protocol.get("requiredCapabilities", [])),
        "route signal": _signal(signal, rules.protocol.get("routeSignal")),
        "modeled cost only by the protocol's model": _cost(last["cost"], rules.protocol.get("costAllocation")),
        "derived ids": rules.payload_key is None or _derived(value, rules.payload_key),
    }
    return [rule for rule, held in holds.items() if not held]


def _attempt(attempt: Json) -> bool:
    known = [item for item in attempt["observerTimings"].values() if item is not None]
    names = ("startedAt", "headersAt", "firstByteAt", "firstMeaningfulTokenAt", "completedAt")
    in_order = [attempt["observerTimings"][name] for name in names if attempt["observerTimings"][name] is not None]
    if in_order != sorted(known):
        return False
    if attempt["status"] == "success":
        return (
            attempt["dispatchState"] == "completed"
            and attempt["failureCategory"] is None
            and attempt["abortLifecycle"] == "not-aborted"
            and not attempt["partialOutput"]
            and None not in (attempt["finishReason"], attempt["resolvedModel"])
        )
    aborted = attempt["abortLifecycle"] != "not-aborted"
    return attempt["failureCategory"] is not None and (attempt["status"] != "aborted" or aborted)


def _profile(value: Json, rules: Rules) -> Json | None:
    return next((item for item in rules.protocol["profiles"] if item["id"] == value["profileId"]), None)


def _model(attempt: Json, profile: Json) -> bool:
    resolved = attempt["resolvedModel"]
    if attempt["requestedModel"] != profile["model"]:
        return False
    if resolved is None:
        return True
    return resolved["id"] == profile["model"]["id"] and resolved["revision"] in (None, profile["model"]["revision"])


def _capabilities(value: Json, required: Sequence[str]) -> bool:
    last, binding = value["attempts"][-1], value["collectionBinding"]
    success = last["status"] == "success"
    shown = {
        "chat-completions": value["workload"]["mode"] == "chat"
        and (binding is None or binding["route"] == "chatCompletions"),
        "streaming": not success or last["payloads"]["eventStream"] is not None,
        "final-usage": not success or None not in last["tokenUsage"].values(),
    }
    return all(shown[name] for name in required)


def _signal(signal: Json | None, definition: Json | None) -> bool:
    if signal is None or definition is None:
        return signal is None
    same = all(signal[name] == definition[name] for name in ("definitionId", "version", "calibrationDigest"))
    return same and definition["minimum"] <= signal["value"] <= definition["maximum"]


def _cost(cost: Json, allocation: Json | None) -> bool:
    if cost["kind"] != "modeled" or allocation is None:
        return True
    return bool(allocation["kind"] == "modeled" and cost["modelDigest"] == allocation["modelDigest"])


def _unsigned(claim: Json) -> Json:
    return {name: item for name, item in claim.items() if name != "signature"}


def _until_intent(value: Json) -> Json:
    intent = {name: item for name, item in value.items() if name not in _AFTER_DISPATCH}
    return {**intent, "dispatchIntent": _unsigned(value["dispatchIntent"])}


def _bytes(value: str) -> bytes:
    return base64.urlsafe_b64decode(value + "=" * (-len(value) % 4))


def _signed(authority: Json, claim: Json, message: Json) -> bool:
    key = load_der_public_key(_bytes(authority["publicKeySpki"]))
    if not isinstance(key, Ed25519PublicKey) or claim["authorityKeyId"] != authority["keyId"]:
        return False
    try:
        key.verify(_bytes(claim["signature"]), rfc8785.dumps(message))
    except (InvalidSignature, ValueError):
        return False
    return True


def _derived(value: Json, payload_key: tuple[str, bytes]) -> bool:
    key_id, key = payload_key

    def keyed(domain: str, item: Json) -> str:
        message = b"\0".join(
            (
                b"tasc/payload-identity/v1",
                value["studyId"].encode(),
                key_id.encode(),
                rfc8785.dumps({"domain": domain, "value": item}),
            )
        )
        return hmac.new(key, message, hashlib.sha256).hexdigest()

    binding = value["collectionBinding"]
    if binding is None:  # what the ids are derived from stands in the binding
        trace_id = value["traceId"]
    else:
        lineage = {name: value[name] for name in _LINEAGE}
        lineage["requestIdentity"] = value["attempts"][0]["payloads"]["request"]
        lineage |= {
            name: binding[name] for name in ("endpointBindingDigest", "authenticationReference", "httpLimitsDigest")
        }
        trace_id = "trace-" + keyed("tasc/shadow-trace-id/v2", lineage)
        if value["observedRoute"]["decisionId"] != "route-" + keyed("tasc/shadow-route-decision-id/v2", lineage):
            return False
    numbers = [(attempt["attemptId"], attempt["attemptNumber"]) for attempt in value["attempts"]]
    return value["traceId"] == trace_id and all(
        identity == "attempt-" + keyed("tasc/shadow-attempt-id/v1", {"traceId": trace_id, "attemptNumber": number})
        for identity, number in numbers
    )


def _together(traces: Sequence[Json]) -> list[str]:
    found = []
    executions = Counter((item["caseId"], item["replicateId"], item["profileId"]) for item in traces)
    if any(count > 1 for count in executions.values()):
        found.append("one trace per case, replicate and profile")
    if len({item["traceId"] for item in traces}) != len(traces):
        found.append("trace ids are unique")
    shared: defaultdict[str, set[bytes]] = defaultdict(set)
    splits: defaultdict[str, set[str]] = defaultdict(set)
    for item in traces:
        shared[item["caseId"]].add(rfc8785.dumps([item[name] for name in _SHARED_BY_CASE]))
        splits[item["groupId"]].add(item["split"])
    if any(len(kinds) > 1 for kinds in shared.values()):
        found.append("traces of a case share what belongs to the case")
    if any(len(kinds) > 1 for kinds in splits.values()):
        found.append("no group in two splits")
    return found


def _window(traces: Sequence[Json], rules: Rules) -> list[str]:
    manifest = rules.manifest
    if manifest is None:
        return []
    rule = manifest["membershipRule"]
    membership = {
        "windowId": manifest["windowId"],
        "protocolDigest": manifest["protocolDigest"],
        "membershipRule": rule,
    }
    own = {name: item for name, item in manifest.items() if name != "selfDigest"}
    trace_digests = sorted(digest("tasc/trace-envelope/v2", item) for item in traces)
    holds = {
        "manifest digest": manifest["selfDigest"] == digest("tasc/window-manifest/v2", own),
        "membership digest": manifest["membershipDigest"] == digest("tasc/window-membership-rule/v2", membership),
        "trace set digest": manifest["traceSetDigest"] == digest("tasc/assessment-trace-set/v2", trace_digests),
        "every trace belongs to the window": all(_belongs(item, manifest) for item in traces),
    }
    return [rule for rule, held in holds.items() if not held]


def _belongs(item: Json, manifest: Json) -> bool:
    rule = manifest["membershipRule"]
    drawn = {name: rule[name] for name in ("algorithm", "seed")}
    bucket = digest(
        "tasc/seeded-sha256-case-replicate-basis-points/v1",
        {**drawn, "caseId": item["caseId"], "replicateId": item["replicateId"]},
    )
    times = item["attempts"][0]["observerTimings"]["startedAt"], item["attempts"][-1]["observerTimings"]["completedAt"]
    return bool(
        item["split"] == "online"
        and item["protocolDigest"] == manifest["protocolDigest"]
        and item["policyDigest"] == manifest["frozenPolicyDigest"]
        and item["collectionWindowId"] == manifest["windowId"]
        and item["collectionWindowMembershipDigest"] == manifest["membershipDigest"]
        and manifest["eventTimeStartInclusive"] <= times[0] < manifest["eventTimeEndExclusive"]
        and times[1] <= manifest["ingestionWatermark"]
        and int(bucket.removeprefix("sha256:"), 16) % 10_000 < rule["sampleBasisPoints"]
    )


def _bound(traces: Sequence[Json], rules: Rules) -> list[str]:
    plan = rules.plan
    if plan is None:
        return []
    own = {name: item for name, item in plan.items() if name != "planDigest"}
    targets = {target["profileId"]: target for target in plan["collectionTargets"]}
    names = ("endpointAlias", "endpointBindingDigest", "route", "authenticationReference", "httpLimitsDigest")
    attempts = sum(len(item["attempts"]) for item in traces)
    budget = plan["workBudget"]
    holds = {
        "plan digest": plan["planDigest"] == digest("tasc/shadow-run-plan/v1", own),
        "every trace is bound to the plan's target": all(
            item["collectionBinding"] is not None
            and item["collectionBinding"]["shadowPlanDigest"] == plan["planDigest"]
            and all(
                item["collectionBinding"][n] == targets[item["profileId"]][n]
                for n in (*names, "capabilityReceiptDigests")
            )
            and item["executionProfileDigest"] == targets[item["profileId"]]["executionProfileDigest"]
            for item in traces
        ),
        "within the work budget": len(traces) <= budget["maxLogicalExecutions"]
        and attempts <= min(budget["maxAttempts"], budget["maxNetworkCalls"])
        and len({item["caseId"] for item in traces}) <= budget["maxCases"]
        and len({(item["caseId"], item["replicateId"]) for item in traces}) <= budget["maxReplicates"],
    }
    return [rule for rule, held in holds.items() if not held]
