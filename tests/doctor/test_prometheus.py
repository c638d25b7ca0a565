"""The doctor's checks of a Prometheus."""

from __future__ import annotations

import time

import pytest
from aiohttp import web

from sparktop.doctor.check import Status
from sparktop.doctor.network import RealNetwork
from sparktop.doctor.servers import check_prometheus
from sparktop.engines.tables import RUNNING
from sparktop.model.targets import PrometheusTarget
from tests.sources.prometheus.api_server import api, refused, scalar, vector

pytestmark = pytest.mark.outside


@pytest.mark.parametrize(
    ("servers", "ahead_s", "status", "wanted"),
    [
        (3, 0.0, Status.OK, "3 servers in 1 group"),
        (0, 0.0, Status.FAIL, "scrapes no vLLM, SGLang or Ray Serve LLM"),
        (1, 1.0, Status.OK, "1 server in 1 group"),
    ],
)
async def test_what_it_scrapes_is_counted(
    servers: int, ahead_s: float, status: Status, wanted: str, network: RealNetwork
) -> None:
    """The number of servers and groups is reported; none is a failure."""

    def answering(query: str) -> web.Response:
        if query == "time()":
            return scalar(time.time() + ahead_s)
        if "== 0" in query:
            return vector()
        mark = next(iter(RUNNING))
        labels = ({"__name__": mark, "job": "j", "instance": f"h:{number}"} for number in range(servers))
        return vector(*((one, "1") for one in labels))

    async with api(answering) as (url, _):
        checks = await check_prometheus(PrometheusTarget("main", url), network)
    assert (checks[-1].status, checks[-1].message) == (status, wanted)


@pytest.mark.parametrize(("group_by", "fault"), [("namespace", None), ("namespaze", "namespaze")])
async def test_a_label_that_no_server_has_groups_nothing(
    group_by: str, fault: str | None, network: RealNetwork
) -> None:
    """A label in `group_by` that no server has is a warning: all servers would be one group."""

    def answering(query: str) -> web.Response:
        if query == "time()":
            return scalar(time.time())
        if "== 0" in query:
            return vector()
        labels = {"__name__": next(iter(RUNNING)), "job": "j", "namespace": "llm"}
        return vector(*(({**labels, "instance": f"h:{number}"}, "1") for number in range(3)))

    async with api(answering) as (url, _):
        target = PrometheusTarget("main", url, group_by=("job", group_by))
        checks = await check_prometheus(target, network)
    found = [(one.message, one.advice) for one in checks if one.status is Status.WARN]
    said = f"no server has the label {fault}, which group_by names"
    advice = "correct group_by under [[prometheus]] in the configuration"
    assert found == ([(said, advice)] if fault else [])


async def test_a_refusal_is_a_failed_check(network: RealNetwork) -> None:
    """A refusal is a failed check with Prometheus's message."""
    async with api(lambda _: refused(503, "busy")) as (url, _):
        checks = await check_prometheus(PrometheusTarget("main", url), network)
    assert checks[-1].status is Status.FAIL
    assert "busy" in checks[-1].message


async def test_where_nothing_listens_the_advice_is_that_for_a_prometheus(network: RealNetwork) -> None:
    """If nothing listens, the advice is for Prometheus: `--host` is an option of vLLM."""
    async with api(lambda _: refused(503, "busy")) as (url, _):
        pass
    (check,) = await check_prometheus(PrometheusTarget("main", url), network)
    assert "connection refused" in check.message
    assert "--web.listen-address=0.0.0.0:9090" in check.advice
    assert "--host" not in check.advice


async def test_the_advice_on_a_refusal_names_no_key_of_servers(network: RealNetwork) -> None:
    """The advice on a refusal does not name `api_key_env`, which is for servers and routers."""
    async with api(lambda _: web.Response(status=401)) as (url, _):
        checks = await check_prometheus(PrometheusTarget("main", url), network)
    assert "bearer_env" in checks[-1].message
    assert "api_key_env" not in checks[-1].message + checks[-1].advice


@pytest.mark.parametrize("was_scraped", [True, False])
async def test_servers_that_are_down_are_named(*, was_scraped: bool, network: RealNetwork) -> None:
    """They count as servers if they were scraped within the hour; else no selector is blamed."""

    def answering(query: str) -> web.Response:
        if query == "time()":
            return scalar(time.time())
        targets = [{"job": "j", "instance": f"h:{number}"} for number in range(2)]
        if "== 0" in query:
            return vector(*((one, "1") for one in targets))
        past = was_scraped and "last_over_time" in query
        return vector(*(({"__name__": next(iter(RUNNING)), **one}, "1") for one in targets if past))

    async with api(answering) as (url, _):
        checks = await check_prometheus(PrometheusTarget("main", url), network)
    said = {one.name: one for one in checks}
    if was_scraped:
        assert said["main servers"].message == "2 servers in 1 group"
        assert said["main down"].status is Status.FAIL
        assert said["main down"].message == "2 targets are down (up is 0): h:0, h:1"
    else:
        assert said["main servers"].status is Status.FAIL
        assert "2 targets are down (up is 0): h:0, h:1" in said["main servers"].message
        assert "selector" not in said["main servers"].advice
