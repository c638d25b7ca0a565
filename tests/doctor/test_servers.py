"""Checks of servers over real sockets: healthy, dead and hostile ones."""

from __future__ import annotations

import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from sparktop.doctor.check import Check, Status, to_text
from sparktop.doctor.network import RealNetwork, open_network
from sparktop.doctor.servers import check_backend, check_router
from sparktop.model.targets import BackendTarget, RouterTarget
from sparktop.net.once import Reply
from tests.doctor.conftest import answer

Serve = Callable[[Mapping[str, bytes] | bytes], Awaitable[Any]]
READING = {
    "/health/liveliness",
    "/metrics",
    "/version",
    "/v1/models",
    "/health",
    "/api/ps",
    "/v1/metrics",
    "/api/version",
    "/prometheus/metrics",
    "/props",
}
"""The only routes that may be asked of these servers."""


def by_name(checks: list[Check]) -> dict[str, Check]:
    """Return the checks of the server "b" by subject."""
    return {check.name.removeprefix("b "): check for check in checks}


async def test_a_healthy_server_passes(serve: Serve, network: RealNetwork, vllm: dict[str, bytes]) -> None:
    """A healthy server passes with port, page, version, model and configured slots, without advice."""
    server = await serve(vllm)
    checks = by_name(await check_backend(BackendTarget("b", server.url, slots=8), network))
    assert {name: check.message for name, check in checks.items() if name not in {"metrics", "clock"}} == {
        "port": f"127.0.0.1:{server.port} takes connections",
        "version": "vLLM 0.32.0",
        "model": "tiny, max_model_len 4096",
        "slots": "8, from the configuration",
    }
    assert checks["metrics"].message.startswith("vLLM, 0.1 kB in ")
    assert checks["clock"].status is Status.SKIP
    assert {check.status for name, check in checks.items() if name != "clock"} == {Status.OK}
    assert server.methods == {b"GET"}
    assert set(server.paths) == {
        *("/props", "/metrics", "/version", "/v1/models"),
        *("/health", "/health/liveliness"),
    }


@pytest.mark.outside
async def test_a_port_that_nobody_listens_on_fails(network: RealNetwork) -> None:
    """If nothing listens on the port, there is one failed line with advice, and no further request."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        (check,) = await check_backend(BackendTarget("b", url), network)
    assert (check.name, check.status) == ("b port", Status.FAIL)
    assert "connection refused" in check.message
    assert check.advice.startswith("start it")


async def test_metrics_that_are_off_are_named(
    serve: Serve, network: RealNetwork, http_answer: Callable[..., bytes], vllm: dict[str, bytes]
) -> None:
    """A page without the engine's names is reported as "metrics disabled", not as down."""
    server = await serve({**vllm, "/metrics": http_answer(b"# HELP python_info x\npython_info 1\n")})
    checks = by_name(await check_backend(BackendTarget("b", server.url, engine="vllm"), network))
    assert checks["metrics"].status is Status.FAIL
    assert "vLLM has none with --disable-log-stats" in checks["metrics"].message
    assert checks["metrics"].advice == "start the server with its metrics on"


async def test_a_server_that_only_lists_models_is_a_warning(
    serve: Serve, network: RealNetwork, vllm: dict[str, bytes]
) -> None:
    """A server that only lists models is a warning, and only routes without side effects are requested."""
    server = await serve({"/v1/models": vllm["/v1/models"]})
    checks = by_name(await check_backend(BackendTarget("b", server.url), network))
    assert checks["metrics"].status is Status.WARN
    assert "only its list of models is known" in checks["metrics"].message
    assert checks["version"].status is Status.SKIP
    assert checks["slots"].status is Status.WARN
    assert set(server.paths) <= READING
    assert server.methods == {b"GET"}


async def test_a_clock_that_is_off_is_told(
    serve: Serve, network: RealNetwork, http_answer: Callable[..., bytes], vllm: dict[str, bytes]
) -> None:
    """The clock is checked by the Date header of any response, also of a refusal."""
    date = f"Date: {formatdate(time.time() - 5430, usegmt=True)}"
    server = await serve({path: http_answer(b"no", "401 Unauthorized", date) for path in vllm})
    checks = by_name(await check_backend(BackendTarget("b", server.url), network))
    assert checks["metrics"].status is Status.FAIL
    assert "api_key_env" in checks["metrics"].advice
    assert checks["clock"].status is Status.WARN
    assert checks["clock"].message.startswith("1 h 30 min behind")


async def test_loading_is_no_failure(
    serve: Serve, network: RealNetwork, http_answer: Callable[..., bytes]
) -> None:
    """503 is a warning: the server is not ready yet."""
    server = await serve({"/metrics": http_answer(b"", "503 Service Unavailable")})
    checks = by_name(await check_backend(BackendTarget("b", server.url), network))
    assert checks["metrics"].status is Status.WARN
    assert checks["metrics"].advice.startswith("wait")


async def test_a_router_given_as_a_server_is_called_a_router(
    serve: Serve, network: RealNetwork, http_answer: Callable[..., bytes]
) -> None:
    """A router that is configured as a server is called a router, and gets no advice about metrics."""
    alive = http_answer(b'"I\'m alive!"')
    server = await serve({"/health/liveliness": alive, "/v1/models": http_answer(b'{"data": []}')})
    checks = by_name(await check_backend(BackendTarget("b", server.url), network))
    assert checks["router"].status is Status.OK
    assert "api_key_env adds deployments" in checks["router"].advice
    assert "metrics" not in checks


async def test_a_dead_engine_is_a_failure(
    serve: Serve, network: RealNetwork, http_answer: Callable[..., bytes], vllm: dict[str, bytes]
) -> None:
    """If /health of a vLLM is 503 while its page still answers, its engine is dead."""
    server = await serve({**vllm, "/health": http_answer(b"", "503 Service Unavailable")})
    checks = by_name(await check_backend(BackendTarget("b", server.url), network))
    assert checks["engine"].status is Status.FAIL
    assert "the engine has died" in checks["engine"].message
    assert checks["metrics"].status is Status.OK


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n", "closed the connection without an answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\nshort", "broke off in the middle"),
        (b"\x15\x03\x01\x00\x02\x02\x16", "does not answer in proper HTTP"),
        (
            b"HTTP/1.1 302 Found\r\nLocation: http://evil/\r\nContent-Length: 0\r\n\r\n",
            "redirects to",
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n<htm", "not metrics"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * 200_000 + b"\r\n\r\n", "does not answer in proper HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9999999\r\n\r\n" + b"x" * 5_000_000, "larger than"),
        (b"HTTP/1.1 500 \x1b]0;owned\x07\r\nContent-Length: 9\r\n\r\n\x1b[2Jboom!", "500"),
    ],
    ids=["ssh", "short", "tls", "redirect", "html", "header", "huge", "escapes"],
)
async def test_hostile_answers_are_one_clean_line(
    serve: Serve, network: RealNetwork, raw: bytes, words: str
) -> None:
    """A hostile response is one line without control characters that says what is wrong."""
    server = await serve(raw)
    await fails_in_one_line(server.url, network, words)


async def test_silence_is_one_clean_line(serve: Serve) -> None:
    """A server that accepts the connection and says nothing is waited for until the deadline."""
    server = await serve(b"")
    async with open_network(secure=False, get_timeout_s=0.3) as network:
        await fails_in_one_line(server.url, network, "no answer from")


async def fails_in_one_line(url: str, network: RealNetwork, words: str) -> None:
    """Check the server at `url`, whose metrics must fail with `words`."""
    checks = await check_backend(BackendTarget("b", url, engine="vllm"), network)
    text = to_text({"": checks})
    metrics = by_name(checks)["metrics"]
    assert metrics.status is Status.FAIL
    assert words in metrics.message
    assert len(text.splitlines()) == len(checks) + 3  # a heading, a blank line, the counts
    assert all(char.isprintable() or char == "\n" for char in text)


async def test_hostile_facts_are_cleaned(
    serve: Serve, network: RealNetwork, http_answer: Callable[..., bytes], vllm: dict[str, bytes]
) -> None:
    """Versions and names are cleaned and cut."""
    server = await serve(
        {
            **vllm,
            "/version": http_answer(b'{"version": "\\u001b[31m' + b"9" * 100_000 + b'"}'),
            "/v1/models": http_answer(b"[" * 50_000),
        }
    )
    checks = await check_backend(BackendTarget("b", server.url), network)
    text = to_text({"": checks})
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) < 300
    assert by_name(checks)["model"].message == "tiny, max_model_len not reported"


async def test_the_key_goes_to_its_own_server_only(
    serve: Serve, network: RealNetwork, vllm: dict[str, bytes]
) -> None:
    """A key is sent in the Authorization header and never shown, also if the server repeats it."""
    server = await serve({**vllm, "/metrics": b"HTTP/1.1 400 Bad\r\nContent-Length: 6\r\n\r\ns3cret"})
    checks = await check_backend(BackendTarget("b", server.url, engine="vllm", api_key="s3cret"), network)
    assert all(b"authorization: bearer s3cret" in head.lower() for head in server.heads)
    assert "s3cret" not in to_text({"": checks})


async def test_a_key_no_header_may_hold_is_told(
    serve: Serve, network: RealNetwork, vllm: dict[str, bytes]
) -> None:
    """A key with a line break is refused before anything is sent."""
    server = await serve(vllm)
    checks = by_name(await check_backend(BackendTarget("b", server.url, api_key="a\nb"), network))
    assert "no HTTP header may hold" in checks["metrics"].message
    assert server.heads == []


async def test_a_slow_page_is_asked_twice(fake: Any) -> None:  # noqa: ANN401 - the class of the fixture
    """A page is called slow only if it is slow twice."""
    page = b"vllm:num_requests_running 1\n"
    slow = fake(pages={"http://b:1/metrics": Reply(200, page, took_ms=900.0)})
    check = by_name(await check_backend(BackendTarget("b", "http://b:1"), slow))["metrics"]
    assert (check.status, check.advice) == (Status.WARN, "too slow for every second: --interval 5")
    assert [url for url, _ in slow.asked].count("http://b:1/metrics") == 2


async def test_a_router_is_asked_whether_it_lives(
    serve: Serve, network: RealNetwork, http_answer: Callable[..., bytes]
) -> None:
    """A router gets one GET on its liveliness route and no other request."""
    server = await serve({"/health/liveliness": http_answer(b'"I\'m alive!"')})
    checks = by_name(await check_router(RouterTarget("b", server.url), network))
    assert [checks[name].status for name in ("port", "router")] == [Status.OK, Status.OK]
    assert server.paths == ["/health/liveliness"]


async def test_another_router_is_a_warning(serve: Serve, network: RealNetwork) -> None:
    """A router without this route is a warning with the status."""
    server = await serve({})
    checks = by_name(await check_router(RouterTarget("b", server.url), network))
    assert checks["router"].status is Status.WARN
    assert "404" in checks["router"].message


async def test_the_health_of_a_sglang_is_never_asked(
    serve: Serve, network: RealNetwork, http_answer: Callable[..., bytes]
) -> None:
    """/health of SGLang is never requested, as it generates a token."""
    server = await serve({"/metrics": http_answer(b'sglang:num_running_reqs{tp_rank="0"} 2.0\n')})
    for engine in ("sglang", "auto"):
        await check_backend(BackendTarget("b", server.url, engine=engine), network)
    assert {path for path in server.paths if path.startswith("/health")} <= {"/health/liveliness"}


async def test_a_router_known_by_its_page_is_alive(serve: Serve, network: RealNetwork) -> None:
    """A router that is recognised by its metrics page is alive, also if configured as a server."""
    page = (Path(__file__).parents[1] / "data" / "families" / "router-dynamo.prom").read_bytes()
    server = await serve({"/metrics": answer(page)})
    checks = by_name(await check_router(RouterTarget("b", server.url), network))
    assert checks["router"].status is Status.OK
    assert "Dynamo's frontend" in checks["router"].message
    checks = by_name(await check_backend(BackendTarget("b", server.url), network))
    assert checks["metrics"].status is Status.FAIL
    assert "[[routers]]" in checks["metrics"].advice
