"""Routers other than LiteLLM over HTTP: only their metrics page is requested."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparktop.model.failure import Failure, FailureKind
from sparktop.model.router import RouterSample
from sparktop.model.targets import BackendTarget, RouterTarget
from sparktop.sources.engine_http import EngineSource
from sparktop.sources.router import RouterSource
from tests.sources.conftest import Serve, answer

FAMILIES = Path(__file__).parents[1] / "data" / "families"


def page(name: str) -> bytes:
    return answer((FAMILIES / f"{name}.prom").read_bytes())


@pytest.mark.parametrize(
    ("name", "kind", "queued", "in_flight"),
    [
        ("router-dynamo", "dynamo", 4.0, 11.0),
        ("router-dynamo-stages", "dynamo", 3.0, 12.0),
        ("router-stack", "production-stack", None, 7.0),
        ("router-epp", "llm-d", 3.0, None),
    ],
)
async def test_a_router_is_known_by_its_page(
    name: str, kind: str, queued: float | None, in_flight: float | None, serve: Serve
) -> None:
    """LiteLLM's route is tried once; then one request of the page is a poll."""
    server = await serve({"/metrics": page(name)})
    source = RouterSource(RouterTarget("front", server.url))
    for _ in range(2):
        sample = await source.poll(2.0)
        assert isinstance(sample, RouterSample)
        assert (sample.kind, sample.alive, sample.queued, sample.in_flight) == (kind, True, queued, in_flight)
    await source.close()
    assert server.paths == ["/health/liveliness", "/metrics", "/metrics"]


async def test_a_router_that_stops_answering_is_a_failure_and_then_anything(serve: Serve) -> None:
    """If its page disappears, a router is a failure; a server that is not a router has a note, as ever."""
    routes = {"/metrics": page("router-stack")}
    server = await serve(routes)
    source = RouterSource(RouterTarget("front", server.url))
    assert isinstance(await source.poll(2.0), RouterSample)
    routes["/metrics"] = answer(b"oops", "500 Internal Server Error")
    failure = await source.poll(2.0)
    assert isinstance(failure, Failure)
    assert failure.kind is FailureKind.HTTP
    routes["/metrics"] = answer(b"hello")
    sample = await source.poll(2.0)
    await source.close()
    assert isinstance(sample, RouterSample)
    assert sample.note is not None
    assert (sample.kind, sample.alive) == ("unknown", None)


@pytest.mark.parametrize("name", ["router-dynamo", "router-stack", "router-epp"])
async def test_a_router_given_as_a_server_is_named(name: str, serve: Serve) -> None:
    """The failure is of the kind that makes the monitor watch it as a router instead."""
    server = await serve({"/metrics": page(name)})
    source = EngineSource(BackendTarget("x", server.url))
    failure = await source.poll(2.0)
    await source.close()
    assert isinstance(failure, Failure)
    assert failure.kind is FailureKind.ROUTER
    assert "is a router" in failure.message
    assert "[[routers]]" in failure.message
