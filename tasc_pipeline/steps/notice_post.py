"""The one POST of a notice, to the https address that the operator named in the study's ``notices.toml``.

Rules:

1. The body is the notice's canonical JSON: kind, study, window key, two words, a time. Nothing else of a window leaves.
2. The address is exactly the one in ``notices.toml``; the strict transport of the collector makes the call: no redirect, no
   proxy, public address (or the study's network extension under the alias ``notices``), certificate checked.
3. Before the first byte may leave, ``sent_unknown`` is written durably. Whatever happens then, this notice is never posted
   again. Only a call that is proved not sent may be made again, by the next run of the job.
4. The answer's body is not read further than its bounds and not kept; its status is.
5. Neither a study that cannot post nor a row that cannot be published keeps another notice from its POST.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Final

from tasc_collector.contracts.http_limits import HttpLimits
from tasc_collector.contracts.instance import RuntimeBuild
from tasc_collector.contracts.network_extension import NetworkExtension
from tasc_collector.contracts.notices import NoticePost, NoticeWebhook
from tasc_collector.contracts.scalars import format_timestamp, timestamp_ms
from tasc_collector.contracts.trust_policy import CollectorTrustPolicy, TrustedEndpoint, TrustedRoute
from tasc_collector.errors import TascError
from tasc_collector.runtimes.result import Arrival
from tasc_collector.secrets import process_secrets
from tasc_collector.transport.clock import SystemClock
from tasc_collector.transport.exchange import exchange
from tasc_collector.transport.network import NetworkAccess, SystemNetwork
from tasc_collector.transport.policy import authorize
from tasc_collector.transport.result import ExchangeRequest, ExchangeResult
from tasc_collector.transport.tls import TlsSettings
from tasc_collector.transport.trust import trust_of
from tasc_pipeline.clock import utc_now
from tasc_pipeline.home import notices as store
from tasc_pipeline.home.layout import Home
from tasc_pipeline.home.notices import StoredNotice
from tasc_pipeline.home.studies import load_study, study_ids
from tasc_pipeline.steps.notices import publish_notices, unpublished

_REFERENCE: Final = "notice-webhook"
_RUNTIME: Final = RuntimeBuild(profile_id="webhook", build="1")
_LIMITS: Final = HttpLimits(deadline_ms=10_000, connect_timeout_ms=5_000, headers_timeout_ms=10_000)


@dataclass(frozen=True, slots=True)
class Route:
    """How the webhook is reached; tests put their own network and root certificate here."""

    network: NetworkAccess
    tls: TlsSettings | None = None


SYSTEM: Final = Route(SystemNetwork())


@dataclass(frozen=True, slots=True)
class Told:
    """What a round of publishing and posting did.

    Attributes:
        windows: how many windows' rows were published.
        posts: what became of each POST.
        failed: name of a study or window, and why its notices were not published or posted.
    """

    windows: int
    posts: tuple[NoticePost, ...]
    failed: tuple[tuple[str, TascError], ...]


def publish_and_post(home: Home, *, route: Route = SYSTEM) -> Told:
    """Publish, then post, so that what was posted can be looked up; everything is tried (rule 5).

    Args:
        home: the state folder.
        route: how the webhooks are reached.
    """
    done = publish_notices(home)
    posts: list[NoticePost] = []
    failed = list(done.failed)
    for study_id in study_ids(home):
        try:
            posts += post_all(home, study_id, route=route)
        except TascError as error:
            failed.append((study_id, error))
    return Told(done.windows, tuple(posts), tuple(failed))


def untold(home: Home) -> list[StoredNotice]:
    """Notices that are kept and not published, or may still be posted. One whose bytes may have left is not among them for
    its POST; a study that cannot be read has none, until it can.
    """
    found = {item.path: item for item in unpublished(home)}
    for study_id in study_ids(home):
        with contextlib.suppress(TascError):
            found |= {item.path: item for item in unposted(home, study_id)}
    return [found[path] for path in sorted(found)]


def unposted(home: Home, study_id: str) -> list[StoredNotice]:
    """Notices of a study that may be posted; none where it names no webhook."""
    if store.read_rules(home, study_id).webhook is None:
        return []
    return [item for item in store.stored(home, study_id) if (post := item.post()) is None or post.state == "not_sent"]


def post_all(home: Home, study_id: str, *, route: Route = SYSTEM) -> list[NoticePost]:
    """Post every notice of a study that was not posted; each at most once. Nothing where another process posts now.

    Args:
        home: the state folder.
        study_id: the study.
        route: how the address is reached.

    Raises:
        InputError: ``notices.toml`` breaks a rule.
        NotAuthorized: the address may not be reached; nothing was sent.
        SecretUnavailable: the secret is not there; nothing was sent.
    """
    webhook = store.read_rules(home, study_id).webhook
    if webhook is None:
        return []
    with store.only_poster(home, study_id) as alone:
        if not alone:
            return []
        extension = load_study(home, study_id).extension
        opened = None if extension is None else extension.record
        return [_post(home, webhook, opened, item, route) for item in unposted(home, study_id)]


def _post(
    home: Home, webhook: NoticeWebhook, extension: NetworkExtension | None, item: StoredNotice, route: Route
) -> NoticePost:
    clock, result = SystemClock(), ExchangeResult()
    request = _request(home, webhook, extension, item.notice.canonical(), clock.now_ns(), route.tls)

    async def lease() -> None:
        store.write_post(item, _outcome(item, "sent_unknown", ExchangeResult()))

    async def call() -> None:
        await exchange(request, lease=lease, on_data=_drop, clock=clock, network=route.network, result=result)

    asyncio.run(call())
    post = _outcome(item, result.state.value, result)
    store.write_post(item, post)
    return post


def _request(
    home: Home,
    webhook: NoticeWebhook,
    extension: NetworkExtension | None,
    body: bytes,
    now_ns: int,
    tls: TlsSettings | None,
) -> ExchangeRequest:
    references = (_REFERENCE,) if webhook.secret is not None else ()
    endpoint = TrustedEndpoint(
        alias=store.WEBHOOK_ALIAS,
        origin=webhook.origin,
        runtime=_RUNTIME,
        routes=(TrustedRoute(method="POST", path_prefix=webhook.path, authentication_references=references),),
    )
    policy = CollectorTrustPolicy(
        local_mode="disabled",
        maximum_request_duration_ms=_LIMITS.deadline_ms,
        endpoints=(endpoint,),
        secret_references=references,
        evaluator_key_ids=(),
        store_roots=(),
    )
    authorized = authorize(
        policy,
        alias=store.WEBHOOK_ALIAS,
        runtime=_RUNTIME.profile_id,
        build=_RUNTIME.build,
        method="POST",
        path=webhook.path,
        authentication_reference=references[0] if references else None,
        duration_ms=_LIMITS.deadline_ms,
        extension=extension,
        now_ms=timestamp_ms(format_timestamp(utc_now())),
    )
    secret = None
    if webhook.header is not None and webhook.secret is not None:
        secret = (webhook.header, process_secrets(home.keys).resolve(webhook.secret).reveal())
    return ExchangeRequest(
        authorized,
        headers=(("content-type", "application/json"), ("accept", "application/json")),
        body=body,
        limits=_LIMITS,
        deadline_ns=now_ns + _LIMITS.deadline_ms * 1_000_000,
        secret=secret,
        tls=tls or trust_of(authorized, key_folder=home.keys),
    )


def _drop(data: bytes, arrival: Arrival) -> None:
    """The answer's body is nobody's concern."""


def _outcome(item: StoredNotice, state: str, result: ExchangeResult) -> NoticePost:
    return NoticePost(
        notice_digest=item.notice.digest,
        state=state,  # type: ignore[arg-type]  # the same three words
        http_status=result.status,
        code=None if result.code is None else result.code.value,
        at=format_timestamp(utc_now()),
    )
