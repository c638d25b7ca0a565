"""Checks of servers, names, lists and a Prometheus, over real sockets: healthy, dead and hostile ones."""

from __future__ import annotations

import json
import time
from email.utils import formatdate
from pathlib import Path

import pytest
from aiohttp import web

from sparktop.doctor.check import Check, Status, to_text
from sparktop.doctor.examination import read_listed, soften_failures
from sparktop.doctor.network import Network, check_names
from sparktop.doctor.servers import check_backend, check_prometheus, check_router
from sparktop.engines.tables import RUNNING
from sparktop.model.node import Workload, Workloads
from sparktop.model.targets import BackendTarget, PrometheusTarget, RouterTarget, Watch
from tests.doctor.conftest import VLLM, FakeNetwork
from tests.sources.conftest import Serve, answer
from tests.sources.prometheus.api_server import api, scalar, vector


def by_name(checks: list[Check]) -> dict[str, Check]:
    """Return the checks of the server "b" by subject."""
    return {check.name.removeprefix("b "): check for check in checks}


async def test_a_healthy_server_passes(serve: Serve, network: Network) -> None:
    """A healthy server passes with port, page, version, model and configured slots, without advice."""
    server = await serve(VLLM)
    checks = by_name(await check_backend(BackendTarget("b", server.url, slots=8), network))
    assert {name: check.message for name, check in checks.items() if name != "metrics"} == {
        "port": f"127.0.0.1:{server.port} takes connections",
        "version": "vLLM 0.32.0",
        "model": "tiny, max_model_len 4096",
        "slots": "8, from the configuration",
    }
    assert checks["metrics"].message.startswith("vLLM, 0.1 kB in ")
    assert {check.status for check in checks.values()} == {Status.OK}
    assert all(head.startswith(b"GET ") for head in server.heads)
    assert set(server.paths) == {
        *("/props", "/metrics", "/version", "/v1/models", "/health", "/workers"),
    }


async def test_slots_of_a_server_here_are_read_of_its_process(serve: Serve, network: Network) -> None:
    """No page has --max-num-seqs: that of the process at its port counts, of another port it does not."""
    server = await serve(VLLM)
    for port, message in ((server.port, "8, by --max-num-seqs of its process"), (1, "not reported, so")):
        process = Workload(7, "vllm", "server", port=port, flags=("--dtype auto", "--max-num-seqs 8"))
        target = BackendTarget("b", server.url)
        checks = by_name(await check_backend(target, network, Workloads((process,))))
        assert checks["slots"].message.startswith(message)


async def test_a_router_that_forwards_a_page_is_no_server(serve: Serve, network: Network) -> None:
    """It lists its workers, and answers for the rest with what one of them says."""
    workers = b'{"workers":[{"url":"http://127.0.0.1:1","model_id":"unknown","load":0}],"total":1}'
    server = await serve({**VLLM, "/workers": answer(workers)})
    checks = by_name(await check_backend(BackendTarget("b", server.url), network))
    assert set(checks) == {"port", "router"}
    assert "is a router (vllm-router), not an inference server" in checks["router"].message
    assert "[[routers]]" in checks["router"].message


@pytest.mark.parametrize(
    ("path", "reply", "name", "words"),
    [
        ("/metrics", answer(b"python_info 1\n"), "metrics", "vLLM has none with --disable-log-stats"),
        ("/health", answer(b"", "503 Service Unavailable"), "engine", "has died"),
    ],
)
async def test_what_fails_beside_good_answers(
    serve: Serve, network: Network, path: str, reply: bytes, name: str, words: str
) -> None:
    """A page without the engine's names has its metrics disabled; a 503 of /health is a dead engine."""
    server = await serve({**VLLM, path: reply})
    checks = by_name(await check_backend(BackendTarget("b", server.url, engine="vllm"), network))
    assert [one for one, check in checks.items() if check.status is Status.FAIL] == [name]
    assert words in checks[name].message


async def test_hostile_facts_are_cleaned(serve: Serve, network: Network) -> None:
    """Versions and names are cleaned and cut."""
    server = await serve(
        {
            **VLLM,
            "/version": answer(b'{"version": "\\u001b[31m' + b"9" * 100_000 + b'"}'),
            "/v1/models": answer(b"[" * 50_000),
        }
    )
    checks = await check_backend(BackendTarget("b", server.url), network)
    text = to_text({"": checks})
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) < 300
    assert by_name(checks)["model"].message == "tiny, max_model_len not reported"


async def test_a_router_known_by_its_page_is_alive(serve: Serve, network: Network) -> None:
    """A router that is recognised by its metrics page is alive, also if configured as a server."""
    page = (Path(__file__).parents[1] / "data" / "families" / "router-dynamo.prom").read_bytes()
    server = await serve({"/metrics": answer(page)})
    checks = by_name(await check_router(RouterTarget("b", server.url), network))
    assert checks["router"].status is Status.OK
    assert "Dynamo's frontend" in checks["router"].message
    checks = by_name(await check_backend(BackendTarget("b", server.url), network))
    assert checks["router"].status is Status.WARN


NAMES = {
    "spark-a": (("10.0.0.1",), 0.003),
    "slow": (("10.0.0.2",), 1.5),
    "spark.local": (("10.0.0.3", "fe80::3"), 0.02),
    "nothing": ((), 0.1),
    "hostile": (("\x1b[31m1.2.3.4",), 0.1),
}


async def checked(*hosts: str) -> list[Check]:
    return list((await check_names(hosts, FakeNetwork(names=NAMES))).values())


async def test_mdns_names_are_warned_of() -> None:
    """A .local name is a warning with the address to use instead: it broke runs at concurrency 64."""
    (check,) = await checked("spark.local")
    assert check.status is Status.WARN
    assert "10.0.0.3" in check.message
    assert "crashed benchmark runs at concurrency 64" in check.advice
    assert check.advice.endswith("use 10.0.0.3")


@pytest.mark.parametrize(
    ("host", "status", "words"),
    [
        ("slow", Status.WARN, "use the IP address"),
        ("unknown", Status.FAIL, "use its IP address"),
        ("unknown.local", Status.FAIL, "mDNS names crashed"),
        ("nothing", Status.FAIL, "use its IP address"),
    ],
)
async def test_bad_names_say_what_to_do(host: str, status: Status, words: str) -> None:
    """A slow name is a warning, one without an address a failure."""
    (check,) = await checked(host)
    assert check.status is status
    assert words in check.advice


async def test_listed_servers_and_unusable_files_are_named(tmp_path: Path) -> None:
    """The servers are counted, and each file that cannot be used is a warning."""
    (tmp_path / "a.json").write_text(json.dumps([{"targets": ["h:1", "h:2"]}]))
    (tmp_path / "b.json").write_text("[{")
    checks, backends, _ = await read_listed(Watch(target_files=(str(tmp_path / "*.json"),)))
    assert [one.url for one in backends] == ["http://h:1", "http://h:2"]
    assert checks == [
        Check("target files", Status.OK, "2 servers listed"),
        Check("target files", Status.WARN, f"{tmp_path / 'b.json'}: cannot be used: not valid JSON"),
    ]


def test_a_listed_server_that_is_gone_is_no_failure() -> None:
    """If a listed server is gone, this is a warning only: the file may be outdated."""
    fine, gone = Check("a port", Status.OK, "answers"), Check("b port", Status.FAIL, "refused", "start it")
    assert [one.status for one in soften_failures([fine, gone])] == [Status.OK, Status.WARN]


@pytest.mark.parametrize("page", [b"# TYPE ray_tasks gauge\nray_tasks 1\n", b"<html>", b""])
async def test_what_is_no_llm_server_is_not_called_one(serve: Serve, network: Network, page: bytes) -> None:
    """Ray lists exporters of its own: they answer, and nothing has to be done about them."""
    server = await serve(answer(page))
    checks = soften_failures(await check_backend(BackendTarget("h:1", server.url), network))
    assert {one.name: one.status for one in checks} == {
        "h:1 port": Status.OK,
        "h:1 metrics": Status.SKIP,
    }
    (check,) = (one for one in checks if one.name == "h:1 metrics")
    assert (check.message, check.advice) == ("answers, but not as an LLM server: not watched", "")


DOWN = "2 targets are down (up is 0): h:0, h:1"
UNGROUPED = "no server has the label namespaze, which group_by names"


@pytest.mark.outside
@pytest.mark.parametrize(
    ("servers", "down", "ahead_s", "group_by", "wrong"),
    [
        (3, 0, 1.0, "namespace", {}),
        (2, 2, 0.0, "namespace", {"down": (Status.FAIL, DOWN)}),
        (3, 0, 0.0, "namespaze", {"groups": (Status.WARN, UNGROUPED)}),
        (3, 0, 60.0, "namespace", {"clock": (Status.WARN, "s ahead of this machine's")}),
        (0, 0, 0.0, "namespace", {"servers": (Status.FAIL, "its metrics: Ray Serve LLM, vLLM, ")}),
        (0, 2, 0.0, "namespace", {"servers": (Status.FAIL, DOWN)}),
    ],
)
async def test_what_a_prometheus_scrapes_is_checked(
    servers: int, down: int, ahead_s: float, group_by: str, wrong: dict[str, tuple[Status, str]]
) -> None:
    """None, those that are down, a label that none has, and another clock are said; else they are counted."""

    def answering(query: str) -> web.Response:
        """Answer for servers that are or were scraped, of which the first are down now."""
        if query == "time()":
            told = scalar(time.time() + ahead_s)
            told.headers["Date"] = formatdate(time.time() + ahead_s, usegmt=True)
            return told
        every = range(max(servers, down))
        targets = [{"job": "j", "instance": f"h:{number}", "namespace": "llm"} for number in every]
        if "== 0" in query:
            return vector(*((one, "1") for one in targets[:down]))
        seen = targets[:servers] if "last_over_time" in query else targets[down:servers]
        return vector(*(({"__name__": next(iter(RUNNING)), **one}, "1") for one in seen))

    async with api(answering) as (url, _):
        target = PrometheusTarget("main", url, group_by=("job", group_by))
        checks = await check_prometheus(target, Network(poll_timeout_s=100.0))
    said = {check.name.removeprefix("main "): check for check in checks}
    assert {name for name, check in said.items() if check.status is not Status.OK} == set(wrong)
    for name, (status, words) in wrong.items():
        assert said[name].status is status
        assert words in said[name].message
    if servers:
        assert said["servers"].message == f"{servers} servers in 1 group"
