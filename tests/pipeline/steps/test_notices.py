"""Notices of real windows: kept once, published as content-free rows, and posted at most once over TLS."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasc_collector.errors import InputError, NotAuthorized, SecretUnavailable
from tasc_collector.transport.tls import TlsSettings
from tasc_pipeline.home import Home
from tasc_pipeline.home.notices import only_poster, stored
from tasc_pipeline.steps import assess, close, collect, notices
from tasc_pipeline.steps.notice_post import Route, post_all, unposted
from tasc_pipeline.warehouse.database import connect
from tests.support import chains
from tests.support.calls import LabNetwork
from tests.support.raw_server import Peer, RawServer, answer
from tests.support.window import World, world

RULES = 'version = "tasc-notice-rules-v1"\nagreeing_windows = 1\n'
WEBHOOK = f'[webhook]\norigin = "https://{chains.HOST}"\npath = "/hooks/tasc"\n'
SECRET = 'header = "authorization"\nsecret = "keyfile:webhook.key"\n'
TOKEN = "Bearer made-up-token-0123456789"


@pytest.fixture(scope="module")
def assessed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, str]]:
    """One assessed window of a candidate that is down, so that its coverage is under the floor."""
    with world(tmp_path_factory.mktemp("notices"), cases=3, warm_up=0) as made:
        key = made.approved_window()
        made.candidate.stop()
        collect.collect(made.home, key, show=lambda _: None)
        collect.publish(made.home, key)
        close.close(made.home, key)
        assess.assess(made.home, key)
        yield made, key


def write_rules(home: Home, text: str) -> None:
    (home.study("first") / "notices.toml").write_text(text)


def test_a_window_under_its_floor_is_told_once_and_published(assessed: tuple[World, str]) -> None:
    made, key = assessed
    write_rules(made.home, RULES)
    told = notices.after_assessment(made.home, key)
    assert [item.notice.kind for item in told] == ["coverage-low"]
    assert notices.after_assessment(made.home, key) == []
    assert notices.publish_notices(made.home) == 1
    assert notices.publish_notices(made.home) == 0
    with connect(made.home.root) as session:
        rows = session.execute("SELECT window_key, study_id, kind, before, after FROM notices").fetchall()
    assert rows == [(key, "first", "coverage-low", None, None)]


def test_a_failed_run_is_told_once_per_run_with_its_category_only(assessed: tuple[World, str]) -> None:
    made, key = assessed
    first = notices.after_failure(made.home, key, "run-1", "transport")
    assert first is not None and first.notice.after == "transport"
    assert notices.after_failure(made.home, key, "run-1", "transport") is None
    assert notices.after_failure(made.home, key, "run-2", "transport") is not None
    assert notices.after_failure(made.home, "forged.r01-00000000", "run-3", "transport") is None


def test_a_study_that_says_its_period_is_overdue_after_two(assessed: tuple[World, str]) -> None:
    made, key = assessed
    write_rules(made.home, RULES)
    assert notices.overdue(made.home, "2099-01-01T00:00:00.000Z") == [], "nobody said how often it comes"
    write_rules(made.home, RULES + "period_minutes = 60\n")
    [item] = notices.overdue(made.home, "2099-01-01T00:00:00.000Z")
    assert (item.notice.kind, item.notice.window_key) == ("window-missing", key)
    assert notices.overdue(made.home, "2099-01-01T01:00:00.000Z") == []


@pytest.fixture
def posting(assessed: tuple[World, str], tmp_path: Path) -> Iterator[tuple[World, RawServer, Route]]:
    made, key = assessed
    for item in stored(made.home, "first"):
        item.post_path.unlink(missing_ok=True)
    notices.after_failure(made.home, key, "run-1", "transport")

    def play(peer: Peer) -> None:
        peer.read_request()
        peer.send(answer())
        peer.fin()

    with RawServer(play, tls=chains.good().server_context(tmp_path)) as server:
        yield made, server, Route(LabNetwork(server.port), TlsSettings(ca_pem=chains.root().pem))


def test_a_notice_is_posted_once_to_the_named_place_with_its_secret(
    posting: tuple[World, RawServer, Route],
) -> None:
    made, server, route = posting
    write_rules(made.home, RULES + WEBHOOK + SECRET)
    (made.home.keys / "webhook.key").write_text(TOKEN)
    (made.home.keys / "webhook.key").chmod(0o600)
    waiting = unposted(made.home, "first")
    posts = post_all(made.home, "first", route=route)
    assert [(post.state, post.http_status, post.code) for post in posts] == [("completed", 200, None)] * len(waiting)
    assert post_all(made.home, "first", route=route) == []
    assert len(server.requests) == len(waiting)
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /hooks/tasc HTTP/1.1\r\nhost: api.good.test\r\n")
    assert b"authorization: " + TOKEN.encode() in head
    assert set(json.loads(body)) == {"version", "kind", "studyId", "windowKey", "before", "after", "at"}


def test_a_post_whose_answer_never_came_is_never_made_again(assessed: tuple[World, str], tmp_path: Path) -> None:
    made, _ = assessed
    write_rules(made.home, RULES + WEBHOOK)
    items = list(stored(made.home, "first"))
    for item in items:
        item.post_path.unlink(missing_ok=True)

    def play(peer: Peer) -> None:
        peer.read_request()
        peer.rst()

    with RawServer(play, tls=chains.good().server_context(tmp_path)) as server:
        route = Route(LabNetwork(server.port), TlsSettings(ca_pem=chains.root().pem))
        states = {post.state for post in post_all(made.home, "first", route=route)}
        assert post_all(made.home, "first", route=route) == []
    assert states == {"sent_unknown"} and len(server.requests) == len(items)


def test_a_post_that_was_proved_not_sent_may_be_made_again(
    posting: tuple[World, RawServer, Route], tmp_path: Path
) -> None:
    made, server, route = posting
    write_rules(made.home, RULES + WEBHOOK)
    untrusted = Route(route.network, TlsSettings())
    first = post_all(made.home, "first", route=untrusted)
    assert {(post.state, post.code) for post in first} == {("not_sent", "tls-failed")} and server.requests == []
    assert {post.state for post in post_all(made.home, "first", route=route)} == {"completed"}


def test_only_one_process_posts(posting: tuple[World, RawServer, Route]) -> None:
    made, server, route = posting
    write_rules(made.home, RULES + WEBHOOK)
    with only_poster(made.home, "first") as alone:
        assert alone and post_all(made.home, "first", route=route) == []
    assert server.requests == []


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('[webhook]\norigin = "http://127.0.0.1:80"\npath = "/x"\n', InputError),
        ('[webhook]\norigin = "https://10.0.0.1"\npath = "/x"\n', InputError),
        ('[webhook]\norigin = "https://hooks.example.com"\npath = "/x?y=1"\n', InputError),
        ('[webhook]\norigin = "https://hooks.example.com"\npath = "/x"\nheader = "authorization"\n', InputError),
        (WEBHOOK + SECRET.replace("webhook.key", "not-there.key"), SecretUnavailable),
    ],
)
def test_a_place_that_may_not_be_reached_is_refused_before_anything_is_sent(
    posting: tuple[World, RawServer, Route], text: str, error: type[Exception]
) -> None:
    made, server, route = posting
    write_rules(made.home, RULES + text)
    with pytest.raises((error, NotAuthorized)):
        post_all(made.home, "first", route=route)
    assert server.requests == [] and len(unposted_files(made.home)) == 0


def unposted_files(home: Home) -> list[Path]:
    return [item.post_path for item in stored(home, "first") if item.post_path.exists()]
