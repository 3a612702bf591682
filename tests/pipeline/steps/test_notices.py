"""Notices of real windows: kept once, published as content-free rows, and posted at most once over TLS."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tasc_collector.contracts.scalars import format_timestamp, parse_timestamp
from tasc_collector.errors import InputError, NotAuthorized, SecretUnavailable
from tasc_collector.transport.tls import TlsSettings
from tasc_pipeline.cli.window import assess_window
from tasc_pipeline.home import Home
from tasc_pipeline.home.notices import only_poster, stored, to_look_at, write_post
from tasc_pipeline.home.window_index import window_facts
from tasc_pipeline.steps import assess, close, collect, notices, publish
from tasc_pipeline.steps.notice_post import Route, post_all, publish_and_post, unposted, untold
from tasc_pipeline.warehouse.database import connect
from tasc_pipeline.warehouse.schemas import NOTICES
from tests.support import chains
from tests.support.calls import LabNetwork
from tests.support.raw_server import Peer, RawServer, answer
from tests.support.window import World, world

pytestmark = pytest.mark.usefixtures("undrawn")

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
        publish.publish(made.home, key)
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
    assert notices.unpublished(made.home) == told
    assert notices.publish_notices(made.home) == notices.Published(1, ())
    assert notices.unpublished(made.home) == []
    assert notices.publish_notices(made.home) == notices.Published(0, ())
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


def test_a_window_that_was_sealed_and_never_collected_is_no_window_that_came(assessed: tuple[World, str]) -> None:
    made, key = assessed
    write_rules(made.home, RULES + "period_minutes = 60\n")
    for item in list(stored(made.home, "first")):
        item.path.unlink()
    later = made.approved_window(lead_s=7200)
    facts = window_facts(made.home)
    assert facts[later].starts_at > facts[key].starts_at
    start = parse_timestamp(facts[key].starts_at)
    due, before = (format_timestamp(start + timedelta(minutes=minutes)) for minutes in (120, 119))
    assert notices.overdue(made.home, before) == []
    assert [item.notice.window_key for item in notices.overdue(made.home, due)] == [key]


def test_the_command_that_assesses_publishes_the_rows_of_what_it_tells(
    assessed: tuple[World, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, key = assessed
    write_rules(made.home, RULES)
    for item in list(stored(made.home, "first")):
        item.path.unlink()
    monkeypatch.setenv("TASC_HOME", str(made.home.root))
    assess_window(key)
    assert [item.notice.kind for item in stored(made.home, "first")] == ["coverage-low"]
    assert untold(made.home) == []
    with connect(made.home.root) as session:
        assert session.execute("SELECT window_key, kind FROM notices").fetchall() == [(key, "coverage-low")]


def test_a_window_whose_look_failed_is_looked_at_again_until_it_succeeds(assessed: tuple[World, str]) -> None:
    made, key = assessed
    for item in list(stored(made.home, "first")):
        item.path.unlink()
    write_rules(made.home, "agreeing_windows = 0\n")
    with pytest.raises(InputError):
        notices.after_assessment(made.home, key)
    assert notices.look_again(made.home) == [], "the rules are still wrong"
    write_rules(made.home, RULES)
    assert [item.notice.kind for item in notices.look_again(made.home)] == ["coverage-low"]
    assert list(to_look_at(made.home, "first")) == []


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


def test_what_may_still_be_posted_is_untold_and_what_may_have_left_is_not(
    posting: tuple[World, RawServer, Route],
) -> None:
    made, _, route = posting
    notices.publish_notices(made.home)
    write_rules(made.home, RULES)
    assert untold(made.home) == [], "nobody named a webhook"
    write_rules(made.home, RULES + WEBHOOK)
    kept = list(stored(made.home, "first"))
    assert sorted(item.path for item in untold(made.home)) == sorted(item.path for item in kept)
    post_all(made.home, "first", route=Route(route.network, TlsSettings()))
    assert len(untold(made.home)) == len(kept), "they were proved not sent"
    for item in kept:
        post = item.post()
        assert post is not None
        write_post(item, post.model_copy(update={"state": "sent_unknown"}))
    assert untold(made.home) == []


def test_a_study_that_cannot_be_read_and_a_row_that_cannot_be_published_stop_no_other_post(
    posting: tuple[World, RawServer, Route],
) -> None:
    made, server, route = posting
    write_rules(made.home, RULES + WEBHOOK)
    before = made.home.study("a-bad-one")
    (before / "notices").mkdir(parents=True)
    (before / "study.toml").write_text("")
    (before / "notices.toml").write_text("agreeing_windows = 0\n")
    (before / "notices" / "bad.json").write_text("{")
    table = made.home.warehouse / NOTICES.name
    table.rename(table.with_name("aside"))
    table.write_text("a file where a folder should be")
    try:
        waiting = unposted(made.home, "first")
        told = publish_and_post(made.home, route=route)
    finally:
        table.unlink()
        table.with_name("aside").rename(table)
        shutil.rmtree(before)
    assert waiting != [] and [post.state for post in told.posts] == ["completed"] * len(waiting)
    assert len(server.requests) == len(waiting)
    keys = {item.notice.window_key for item in waiting}
    assert (told.windows, [name for name, _ in told.failed]) == (0, ["a-bad-one", *keys, "a-bad-one"])


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
