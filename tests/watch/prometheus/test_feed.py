"""The feed of a Prometheus: samples reach the store, faults are one line, refusals slow it down."""

from __future__ import annotations

import re

import pytest
from aiohttp import web

from sparktop.model.event import Severity
from sparktop.model.failure import FailureKind
from sparktop.store import SourceKey
from sparktop.watch.prometheus import MOST_IN_GROUP, MOST_RAW
from sparktop.watch.prometheus_finder import MOST_AT_ONCE
from tests.known import known
from tests.sources.prometheus.api_server import refused
from tests.watch.prometheus.made_up import Scraped, watched

pytestmark = pytest.mark.outside
A_MINUTE_S = 60.0
"""More than a busy machine adds to an age, less than what a wrong clock does."""


async def test_a_late_prometheus_says_so() -> None:
    """Newest samples older than two scrapes: it is late itself; the servers are not called unreachable."""
    async with watched(Scraped(2, age_s=90)) as (feed, store):
        await feed.query()
        shown = store.snapshot()
        failure = known(shown.fleets[0].failure)
        assert failure.kind is FailureKind.LATE
        found = known(re.fullmatch(r"itself is late: its newest sample is (\d+) s old", failure.message))
        assert 90 <= float(found[1]) < 90 + A_MINUTE_S
        assert all(one.failure is None for one in shown.backends)


@pytest.mark.parametrize("status", [429, 503])
async def test_a_refusal_slows_down(status: int) -> None:
    """Half as many servers half as often, in words; the next good answer clears the failure, not the pace."""
    scraped = Scraped(2)
    async with watched(scraped) as (feed, store):
        await feed.query()
        scraped.refusal = refused(status, "too many samples")
        await feed.query()
        failure = known(store.snapshot().fleets[0].failure)
        assert str(status) in failure.message
        assert (feed.pace.at_once, feed.pace.slowed) == (MOST_AT_ONCE // 2, 2)
        assert feed.pace.note.startswith("asks for 8 servers at a time, 2 × less often: ")


async def test_of_many_servers_one_group_is_read_raw_and_all_are_on_the_wall() -> None:
    """With more than 64, the first group is read at first, then the requested one; the other is forgotten."""
    scraped = Scraped(MOST_RAW + 16)
    async with watched(scraped) as (feed, store):
        await feed.query()
        assert {one.group for one in store.snapshot().backends} == {"m0"}
        assert 0 < len(store.snapshot().backends) <= MOST_IN_GROUP
        feed.want_group("m3")
        await feed.query()
        shown = store.snapshot()
        assert {one.group for one in shown.backends} == {"m3"}
        fleet = known(shown.fleets[0].fleet)
        assert len(fleet.servers) == MOST_RAW + 16


async def test_a_router_makes_a_group_of_the_servers_that_it_names() -> None:
    """production-stack's, by its label `server`; a password in an address is left out."""
    scraped = Scraped(4, per_group=1)
    scraped.behind = ["http://me:pw@h:1", "http://h:2/"]
    async with watched(scraped) as (feed, store):
        await feed.query()
        shown = store.snapshot()
        assert [one.group for one in shown.backends] == ["m0", "r:80", "r:80", "m3"]
        (router,) = shown.routers
        assert (router.name, router.sample.kind, router.sample.alive) == ("r:80", "production-stack", True)
        assert set(router.deployments or ()) == {"http://h:1", "http://h:2"}


async def test_a_removed_target_is_named_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A removed server is dimmed first, and later gone."""
    scraped = Scraped(2)
    async with watched(scraped) as (feed, store):
        await feed.query()
        monkeypatch.setattr("sparktop.watch.prometheus.FIND_AGAIN_S", 0.0)
        del scraped.labels[1]
        for _ in range(5):
            await feed.query()
            store.judge()
        shown = store.snapshot()
        failure = known(shown.backends[1].failure)
        assert failure.message == "it is no target of main any more"
        assert failure.kind is FailureKind.LATE
        assert not shown.alerts
        assert [(one.severity, one.subject, one.message) for one in shown.events] == [
            (Severity.INFO, "h:1", "it is no target of main any more")
        ]
        monkeypatch.setattr("sparktop.watch.prometheus._GONE_AFTER_S", 0.0)
        await feed.query()
        assert [one.name for one in store.snapshot().backends] == ["h:0"]
        assert SourceKey.backend("h:1") not in store.identities()


async def test_a_clock_that_is_wrong_is_named_and_ages_are_by_it() -> None:
    """An hour ahead: samples are as old as they are, and one line says which clock is which."""
    scraped = Scraped(1)
    scraped.ahead_s = 3600.0
    async with watched(scraped) as (feed, store):
        await feed.query()
        await feed.query()
        shown = store.snapshot()
        assert 2.9 < known(shown.backends[0].age_s) < A_MINUTE_S
        (said,) = [event.message for event in shown.events if "clock" in event.message]
        found = known(
            re.fullmatch(r"its clock is (\d+) s ahead of this machine's: ages are by its clock", said)
        )
        assert abs(float(found[1]) - 3600) < A_MINUTE_S


async def test_labels_with_control_characters_reach_no_screen() -> None:
    """Names, groups and messages are clean, and each query still finds the server."""
    scraped = Scraped(1)
    scraped.labels[0] |= {"model_name": "m\x1b[31m\n\u202e", "pod": "p\x07 [bold]"}
    async with watched(scraped) as (feed, store):
        await feed.query()
        shown = store.snapshot()
        fleet = known(shown.fleets[0].fleet)
        names = [text for one in shown.backends for text in (one.name, one.group or "")]
        names += [text for server in fleet.servers for text in (server.name, server.group)]
        assert len(names) == 4
        assert all(text.isprintable() for text in names)
        assert shown.backends[0].ok


@pytest.mark.parametrize("status", [400, 503])
async def test_machines_that_cannot_be_read_stop_no_server(status: int) -> None:
    """Such as an old version without a function: servers go on, one line says why, and it is asked less."""
    scraped = Scraped(2)

    def answer(query: str) -> web.Response:
        if "DCGM" in query:
            refusals.append(query)
            return refused(status, "no \x1b such thing")
        return scraped(query)

    refusals: list[str] = []
    async with watched(answer) as (feed, store):
        for _ in range(3):
            await feed.query()
            feed._found_at = None  # search with the next query
    (view,) = store.snapshot().fleets
    assert known(known(view.fleet).note).startswith("machines: ")
    assert known(known(view.fleet).note).isprintable()
    assert len(refusals) == 1
    assert all(one.ok for one in store.snapshot().backends)


# What is found at a Prometheus, also one that has just started: its servers, its pace, and its groups.
