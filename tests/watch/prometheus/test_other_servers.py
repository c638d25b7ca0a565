"""Another server of the API, and one with certificates and passwords, each a real one."""

from __future__ import annotations

import asyncio
import json
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from sparktop.model.failure import FailureKind
from sparktop.store import Store
from tests.known import known
from tests.prometheus.prometheus_server import configured_prometheus, victoria_metrics
from tests.sources.installed import installed
from tests.watch.prometheus.certificates import make_certificates
from tests.watch.prometheus.scraped import (
    VLLM,
    is_complete,
    look_until,
    one_machine,
    pages,
    scraping,
    watched,
)

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]
PASS_HASH = "$2b$04$46rjCnUhhRlyrPMf4B5b1uMRorFcPP8PU678Iz6ks5mBVkdMsUgYq"  # noqa: S105 - bcrypt of "pass", for the test


async def test_victoria_metrics(tmp_path: Path) -> None:
    """Wall, group and machine are read from it; a server that dies is dead by `up`, also to a new viewer.

    The series of two Prometheus that are not deduplicated there count once.
    """
    installed("victoria-metrics", "victoria-metrics")
    async with pages() as found:
        one_machine(found, scene="one")
        for replica in ("a", "b"):
            for number in (1, 2):
                found.add("vllm", f"spark-{number}:8000", VLLM, scene="two", prometheus_replica=replica)
        async with scraping(found, tmp_path, victoria_metrics) as url:
            async with watched(url, "two") as (feed, store):
                await look_until(feed, store, lambda one: figures(one) == ([8, 8], [8, 8]))
                assert store.snapshot().totals.running.value == 16
            async with watched(url, "one") as (feed, store):
                await look_until(feed, store, is_complete)
                shown = store.snapshot()
                assert [one.group for one in shown.backends] == [shown.backends[0].model] * 2
                # Its list of targets has no interval: the pace is that of the samples.
                assert known(shown.backends[0].scrape).every_s == 1.0
                del found.text["one-vllm-spark-1:8000"]
                await look_until(feed, store, lambda one: one.snapshot().backends[0].failure is not None)
                failure = known(store.snapshot().backends[0].failure)
                assert failure.message.startswith("main cannot scrape it (up is 0)")
            async with watched(url, "one") as (feed, store):
                await look_until(
                    feed,
                    store,
                    lambda one: (
                        sorted(view.failure is not None for view in one.snapshot().backends) == [False, True]
                    ),
                )


def figures(store: Store) -> tuple[list[float | None], list[float | None]]:
    """Return the running requests of each server on the wall and on the board."""
    shown = store.snapshot()
    fleet = shown.fleets[0].fleet
    return [one.running for one in fleet.servers] if fleet else [], [one.running for one in shown.backends]


async def test_a_server_with_certificates_and_passwords(tmp_path: Path) -> None:
    """An authority of our own, a client's certificate and a user; each that is missing is one clear line."""
    installed("prometheus", "prometheus")
    installed("openssl", "openssl")
    files = await asyncio.to_thread(make_certificates, tmp_path)
    web = tmp_path / "web.yml"
    tls = {
        "cert_file": str(files["server"]),
        "key_file": str(files["server-key"]),
        "client_auth_type": "RequireAndVerifyClientCert",
        "client_ca_file": str(files["ca"]),
    }
    web.write_text(json.dumps({"tls_server_config": tls, "basic_auth_users": {"me": PASS_HASH}}))
    right: dict[str, Any] = {
        "tls_ca": str(files["ca"]),
        "tls_cert": str(files["client"]),
        "tls_key": str(files["client-key"]),
        "basic_user": "me",
        "password": "pass",
    }
    wrong = (
        ({"tls_ca": None}, FailureKind.TLS, "certificate"),
        ({"tls_cert": None, "tls_key": None}, None, "certificate"),
        ({"password": "other"}, FailureKind.UNAUTHORIZED, "401: "),
        ({"tls_cert": str(tmp_path / "none.pem")}, FailureKind.TLS, "cannot be used"),
    )

    def start(content: str, folder: Path) -> AbstractContextManager[str]:
        return configured_prometheus(content, folder, f"--web.config.file={web}")

    async with pages() as found:
        one_machine(found)
        async with scraping(found, tmp_path, start) as plain:
            url = plain.replace("http:", "https:")
            async with watched(url, **right) as (feed, store):
                await look_until(feed, store, is_complete)
            for change, kind, words in wrong:
                async with watched(url, **(right | change)) as (feed, store):
                    await feed.query()
                    failure = store.snapshot().fleets[0].failure
                assert failure is not None
                assert kind is None or failure.kind is kind, failure
                assert words in failure.message, failure
                assert "pass" not in failure.message.replace("password", "")
                assert failure.message.isprintable()
