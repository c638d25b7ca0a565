"""What is found at a Prometheus, also one that has just started: its servers, its pace, and its groups."""

from __future__ import annotations

import pytest
from aiohttp import web

from sparktop.model.failure import Failure
from tests.sources.prometheus.api_server import refused
from tests.watch.prometheus.made_up import Scraped, watched

pytestmark = pytest.mark.outside


async def test_a_prometheus_that_has_just_started_is_not_one_without_servers() -> None:
    """No alert until its series `up` are two scrapes old; its servers are found as soon as it has them."""
    scraped = Scraped(0)
    scraped.is_new = True
    async with watched(scraped) as (feed, store):
        for _ in range(4):
            await feed.look()
        store.judge()
        shown = store.snapshot()
        assert shown.fleets[0].failure is not None
        assert shown.fleets[0].failure.message.startswith("has just begun to scrape")
        assert not shown.alerts
        scraped.labels = Scraped(2).labels
        await feed.look()
        shown = store.snapshot()
        assert shown.fleets[0].ok
        assert len(shown.backends) == 2
        assert not shown.events


async def test_the_pace_is_that_of_the_samples_where_no_list_of_targets_says_it() -> None:
    """No pace is shown before a server has two samples."""
    scraped = Scraped(2)
    scraped.samples = 1
    async with watched(scraped) as (feed, store):
        await feed.look()
        assert store.snapshot().fleets[0].fleet is None
        scraped.samples, scraped.every_s = 3, 5.0
        await feed.look()
        fleet = store.snapshot().fleets[0].fleet
        assert fleet is not None
        assert fleet.every_s == 5.0
        assert [one.scrape and one.scrape.every_s for one in store.snapshot().backends] == [5.0, 5.0]


async def test_a_label_that_no_server_has_is_named_as_an_event() -> None:
    """The event appears once, although the label is searched for again and again."""
    async with watched(Scraped(2), group_by=("teem",)) as (feed, store):
        for _ in range(2):
            feed.find_again()
            await feed.look()
        (event,) = store.snapshot().events
        assert event.subject == "main"
        assert event.message == (
            "no server has the label teem, which group_by names: "
            "correct group_by under [[prometheus]] in the configuration"
        )


async def test_nothing_known_there_is_said() -> None:
    """A Prometheus without any server of a known engine is reported."""
    async with watched(Scraped(0)) as (feed, store):
        await feed.look()
        failure = store.snapshot().fleets[0].failure
        assert isinstance(failure, Failure)
        assert "scrapes no server that is known here" in failure.message


async def test_a_server_that_is_down_at_the_start_is_unreachable() -> None:
    """It is known by its samples of the past hour; names and groups are as with those that are up."""
    scraped = Scraped(3)
    scraped.dead = scraped.unseen = {"h:1"}
    async with watched(scraped) as (feed, store):
        for _ in range(2):
            await feed.look()
            feed.find_again()
        shown = store.snapshot()
        assert [(one.name, one.group, one.ok) for one in shown.backends] == [
            ("h:0", "m0", True),
            ("h:1", "m0", False),
            ("h:2", "m0", True),
        ]
        fleet = shown.fleets[0].fleet
        assert fleet is not None
        assert [one.down for one in fleet.servers] == [False, True, False]
        scraped.dead, scraped.unseen = set(), set()
        await feed.look()
        assert all(one.ok for one in store.snapshot().backends)


async def test_targets_that_are_down_and_never_were_servers_are_named() -> None:
    """There is no sample by which they would be known; the first three are named, clean."""
    scraped = Scraped(4)
    scraped.labels[0]["instance"] = "a\x1b[31m:0"
    scraped.dead = scraped.never = {one["instance"] for one in scraped.labels}
    async with watched(scraped) as (feed, store):
        await feed.look()
        failure = store.snapshot().fleets[0].failure
        assert failure is not None
        assert failure.message.isprintable()
        known = "vLLM, SGLang or Ray Serve LLM"
        assert failure.message.startswith(f"scrapes no server that is known here: {known}; ")
        assert "4 targets are down (up is 0): a" in failure.message
        assert failure.message.endswith(", h:1, h:2, …")


@pytest.mark.parametrize("status", [400, 422, 503])
async def test_where_the_past_hour_cannot_be_read_all_else_goes_on(status: int) -> None:
    """A server of the API without that function, or where it is too much: no failure, and no slower pace."""
    scraped = Scraped(2)
    scraped.dead = scraped.unseen = {"h:1"}

    def answer(query: str) -> web.Response:
        return refused(status, "no such function") if "last_over_time" in query else scraped(query)

    async with watched(answer) as (feed, store):
        await feed.look()
        shown = store.snapshot()
        assert shown.fleets[0].ok
        assert [one.name for one in shown.backends] == ["h:0"]
        assert feed.pace.slowed == 1
