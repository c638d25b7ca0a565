"""What routers report on pages of their own: failures, cooldowns, queues."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparktop.model.failure import FailureKind
from sparktop.model.targets import BackendTarget
from sparktop.sources.engine_http import EngineSource
from sparktop.sources.router import read_counts
from tests.known import known
from tests.sources.conftest import OpenRouter, Serve, answer, failure_of, poll_router

FAILED = "litellm_deployment_failure_responses_total"
PAGE = f"""\
# HELP {FAILED} LLM Deployment Analytics - failed calls
# TYPE {FAILED} counter
{FAILED}{{api_base="http://10.0.0.1:8000/v1",exception_status="500",model_id="spark-1"}} 3.0
{FAILED}{{api_base="http://10.0.0.1:8000/v1",exception_status="408",model_id="spark-1"}} 2.0
{FAILED}{{api_base="http://10.0.0.2:8000/v1",exception_status="408",model_id="spark-2"}} 1.0
litellm_deployment_cooled_down_total{{exception_status="500",model_id="spark-1"}} 4.0
litellm_proxy_failed_requests_metric_total{{exception_class="RouterRateLimitError"}} 9.0
litellm_proxy_failed_requests_metric_total{{exception_class="Openai.Timeout"}} 7.0
litellm_requests_metric_total{{model="m"}} 512.0
""".encode()


def test_a_page_gives_failures_by_deployment() -> None:
    """Failures are summed over causes; refusals by the router itself have a count of their own."""
    found = known(read_counts(PAGE))
    assert (found.failures, found.cooled) == ({"spark-1": 5.0, "spark-2": 1.0}, {"spark-1": 4.0})
    assert (found.cooldowns, found.refusals) == (4.0, 9.0)


def test_hostile_labels_and_values_are_cleaned_and_left_out() -> None:
    """An id with an escape is cleaned; a failure without an id and an invalid count are dropped."""
    page = (
        b'litellm_deployment_failure_responses_total{model_id="\x1b[2Jx"} 1\n'
        b"litellm_deployment_failure_responses_total 5\n"
        b'litellm_deployment_failure_responses_total{model_id="y"} NaN\n'
        b'litellm_deployment_failure_responses_total{model_id="z"} -3\n'
    )
    found = known(read_counts(page))
    assert (found.failures, found.cooldowns, found.refusals) == ({"[2Jx": 1.0}, 0.0, 0.0)


# Routers other than LiteLLM over HTTP: only their metrics page is requested.

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
    name: str, kind: str, queued: float | None, in_flight: float | None, router: OpenRouter
) -> None:
    """LiteLLM's route is tried once; then one request of the page is a poll."""
    server, source = await router({"/metrics": page(name)})
    for _ in range(2):
        sample = await poll_router(source)
        assert (sample.kind, sample.alive, sample.queued, sample.in_flight) == (kind, True, queued, in_flight)
    assert server.paths == ["/health/liveliness", "/metrics", "/metrics"]


async def test_a_router_that_stops_answering_is_a_failure_and_then_anything(router: OpenRouter) -> None:
    """If its page disappears, a router is a failure; a server that is not a router has a note, as ever."""
    routes = {"/metrics": page("router-stack")}
    _, source = await router(routes)
    await poll_router(source)
    routes["/metrics"] = answer(b"oops", "500 Internal Server Error")
    assert (await failure_of(source)).kind is FailureKind.HTTP
    routes["/metrics"] = answer(b"hello")
    sample = await poll_router(source)
    assert sample.note is not None
    assert (sample.kind, sample.alive) == ("unknown", None)


async def test_a_router_given_as_a_server_is_named(serve: Serve) -> None:
    """The failure is of the kind that makes the monitor watch it as a router instead."""
    server = await serve({"/metrics": page("router-stack")})
    source = EngineSource(BackendTarget("x", server.url))
    failure = await failure_of(source)
    await source.close()
    assert failure.kind is FailureKind.ROUTER
    assert "is a router" in failure.message
    assert "[[routers]]" in failure.message
