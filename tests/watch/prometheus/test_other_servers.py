"""Other servers of the API, base paths, tenants, certificates and passwords, each with a real server."""

from __future__ import annotations

import asyncio
import json
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from sparktop.model.failure import FailureKind
from sparktop.store import Store
from tests.prometheus.prometheus_server import configured_prometheus, victoria_metrics
from tests.sources.installed import installed
from tests.watch.prometheus.certificates import make_certificates
from tests.watch.prometheus.proxy import proxied
from tests.watch.prometheus.scraped import (
    VLLM,
    Pages,
    dcgm_page,
    known_nodes,
    look_until,
    node_page,
    pages,
    scraping,
    watched,
)

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]
PASS_HASH = "$2b$04$46rjCnUhhRlyrPMf4B5b1uMRorFcPP8PU678Iz6ks5mBVkdMsUgYq"  # noqa: S105 - bcrypt of "pass", for the test
PATHS = ("/select/0/prometheus", "/prometheus")


def one_machine(found: Pages) -> None:
    """Serve two servers of one model, one of them with its machine."""
    found.add("vllm", "spark-1:8000", VLLM)
    found.add("vllm", "spark-2:8000", VLLM)
    found.add("dcgm", "spark-1:9400", dcgm_page("spark-1"))
    found.add("node", "spark-1:9100", node_page("spark-1"))


def is_complete(store: Store) -> bool:
    """Return whether wall, group and machine are there, with figures."""
    shown = store.snapshot()
    (view,) = shown.fleets
    servers = view.fleet.servers if view.fleet else ()
    machines = view.fleet.nodes if view.fleet else ()
    return (
        [one.running is not None for one in servers] == [True, True]
        and [one.running is not None for one in shown.backends] == [True, True]
        and [one.gpu_percent for one in machines] == [96]
        and known_nodes(store) == ["spark-1"]
    )


async def found_dead(url: str) -> None:
    """Wait until a new feed shows that one of two servers, which was down before that, is unreachable."""
    async with watched(url) as (feed, store):
        await look_until(feed, store, lambda one: len(one.snapshot().backends) == 2)
        await look_until(feed, store, one_failed)


def one_failed(store: Store) -> bool:
    """Return whether one of two servers has a failure."""
    return sorted(one.failure is not None for one in store.snapshot().backends) == [False, True]


async def test_victoria_metrics(tmp_path: Path) -> None:
    """Wall, group and machine are read from it; a server that dies is dead by `up`."""
    installed("victoria-metrics", "victoria-metrics")
    async with pages() as found:
        one_machine(found)
        async with scraping(found, tmp_path, victoria_metrics) as url, watched(url) as (feed, store):
            await look_until(feed, store, is_complete)
            shown = store.snapshot()
            assert [one.group for one in shown.backends] == [shown.backends[0].model] * 2
            assert shown.backends[0].scrape is not None
            assert (
                shown.backends[0].scrape.every_s == 1.0
            )  # by its samples: its list of targets has no interval
            assert shown.fleets[0].fleet is not None
            assert shown.fleets[0].fleet.every_s == 1.0
            assert shown.backends[0].age_s is not None
            del found.text["vllm-0"]
            await look_until(feed, store, lambda one: one.snapshot().backends[0].failure is not None)
            failure = store.snapshot().backends[0].failure
            assert failure is not None
            assert failure.message.startswith("main cannot scrape it (up is 0)")
            await found_dead(url)


async def test_the_series_of_two_replicas_count_once(tmp_path: Path) -> None:
    """A server with the samples of a pair of Prometheus that are not deduplicated."""
    installed("victoria-metrics", "victoria-metrics")
    async with pages() as found:
        for replica in ("a", "b"):
            for number in (1, 2):
                found.add("vllm", f"spark-{number}:8000", VLLM, prometheus_replica=replica)
        async with scraping(found, tmp_path, victoria_metrics) as url, watched(url) as (feed, store):
            await look_until(feed, store, lambda one: _figures(one) == ([8, 8], [8, 8]))
            assert store.snapshot().totals.running.value == 16


def _figures(store: Store) -> tuple[list[float | None], list[float | None]]:
    """Return the running requests of each server on the wall and on the board."""
    shown = store.snapshot()
    fleet = shown.fleets[0].fleet
    return [one.running for one in fleet.servers] if fleet else [], [one.running for one in shown.backends]


@pytest.mark.parametrize("path", PATHS)
async def test_below_a_path_with_a_tenant_and_a_token(tmp_path: Path, path: str) -> None:
    """Each request is below the path and carries both; Thanos' parameters go along; warnings are shown."""
    installed("prometheus", "prometheus")
    warning = "fetch series for store 10.0.0.7: connection refused"

    def partial(query: str, body: dict[str, Any]) -> dict[str, Any]:
        return {**body, "warnings": [warning]} if "num_requests_running" in query else body

    settings = {"headers": {"X-Scope-OrgID": "a|b"}, "bearer": "secret"}
    async with pages() as found:
        one_machine(found)
        async with (
            scraping(found, tmp_path) as url,
            proxied(url, path, partial) as (base, asked),
            watched(base, **settings) as (feed, store),
        ):
            await look_until(feed, store, is_complete)
            (view,) = store.snapshot().fleets
    assert view.fleet is not None
    assert view.fleet.note == warning
    assert {one.path for one in asked} == {f"{path}/api/v1/query", f"{path}/api/v1/targets"}
    assert {one.headers["X-Scope-OrgID"] for one in asked} == {"a|b"}
    assert {one.headers["Authorization"] for one in asked} == {"Bearer secret"}
    queries = [one.form for one in asked if one.form]
    assert {(one["dedup"], one["partial_response"]) for one in queries} == {("true", "true")}


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
    right = {
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
                    await feed.look()
                    failure = store.snapshot().fleets[0].failure
                assert failure is not None
                assert kind is None or failure.kind is kind, failure
                assert words in failure.message, failure
                assert "pass" not in failure.message.replace("password", "")
                assert failure.message.isprintable()
