"""A real Prometheus whose configuration changes: a job gets another name, then a target is removed."""

from __future__ import annotations

import asyncio
import time
from contextlib import AbstractContextManager
from pathlib import Path

import aiohttp
import pytest

from sparktop.model.failure import FailureKind
from sparktop.store import Store
from tests.prometheus.prometheus_server import configured_prometheus
from tests.sources.installed import installed
from tests.watch.prometheus.scraped import VLLM, Pages, look_until, pages, scraping, watched

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]
LOOKS = 20
"""Ten seconds: a Prometheus reads changed targets again within five."""


def start(content: str, folder: Path) -> AbstractContextManager[str]:
    """Start a Prometheus that reads its configuration again on request."""
    return configured_prometheus(content, folder, "--web.enable-lifecycle")


async def reload(url: str, folder: Path, found: Pages) -> None:
    """Let it scrape the targets as they are now."""
    (folder / "prometheus.yml").write_text(found.config())
    async with aiohttp.ClientSession() as session, session.post(f"{url}/-/reload") as answer:
        assert answer.status == 200


def both_read(store: Store) -> bool:
    """Return whether two servers are there, with figures."""
    return [one.running is not None for one in store.snapshot().backends] == [True, True]


def one_failed(store: Store) -> bool:
    """Return whether the second server has a failure."""
    return any(one.failure is not None for one in store.snapshot().backends if "2" in one.name)


async def test_a_renamed_job_and_a_removed_target(tmp_path: Path) -> None:
    """The servers go on under the same names, without an event; the removed one has one, and no alert."""
    installed("prometheus", "prometheus")
    async with pages() as found:
        for number in (1, 2):
            found.add("vllm", f"spark-{number}:8000", VLLM)
        async with scraping(found, tmp_path, start) as url, watched(url) as (feed, store):
            await look_until(feed, store, both_read)
            await asyncio.sleep(4)  # so that it has not just begun to scrape
            await look_until(feed, store, both_read)
            found.targets = {"llm": found.targets["vllm"]}
            await reload(url, tmp_path, found)
            renamed_at = time.monotonic()
            for _ in range(LOOKS):
                feed.find_again()
                await feed.look()
                store.judge()
                shown = store.snapshot()
                assert shown.fleets[0].failure is None
                assert sorted(one.name for one in shown.backends) == ["spark-1:8000", "spark-2:8000"]
                assert shown.fleets[0].fleet is not None
                assert len(shown.fleets[0].fleet.servers) == 2
                await asyncio.sleep(0.5)
            assert not shown.events
            assert both_read(store)
            age_s = shown.backends[0].age_s
            assert age_s is not None
            assert age_s < time.monotonic() - renamed_at - 6
            del found.targets["llm"][1]
            await reload(url, tmp_path, found)
            await look_until(feed, store, one_failed)
            for _ in range(4):
                feed.find_again()
                await feed.look()
                store.judge()
            shown = store.snapshot()
            kinds = {one.name: one.failure and one.failure.kind for one in shown.backends}
            assert kinds == {"spark-1:8000": None, "spark-2:8000": FailureKind.LATE}
            # Their pages stand still, which is an event of its own.
            removed = [one.subject for one in shown.events if "no progress" not in one.message]
            assert removed == ["spark-2:8000"]
            assert not shown.alerts
