"""Facts about servers that are not vLLM, from the first question to the identity, against real servers.

Each server notes every path that it is asked: the lists are part of the facts.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import web

from sparktop.model.engine import EngineIdentity, EngineSample
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.targets import BackendTarget
from sparktop.sources.engine_http import EngineSource
from tests.sources.conftest import HEALTHY_PAGE, FakeClock

pytestmark = pytest.mark.outside

DATA = Path(__file__).parent.parent / "data"
Routes = dict[str, object]
"""What a server answers by path: bytes as they are, anything else as JSON, a number as a bare status."""

LOADED = {"models": [{"name": "mistral:latest", "size_vram": 5137025024}]}
LISTED = {"object": "list", "data": [{"id": "tiny", "object": "model", "max_model_len": 4096}]}
VERSION = {"version": "1.2.3"}


def data(path: str) -> bytes:
    return (DATA / path).read_bytes()


SERVERS: dict[str, Routes] = {
    "vllm": {"/metrics": HEALTHY_PAGE, "/version": VERSION, "/v1/models": LISTED},
    "sglang": {
        "/metrics": data("sglang/dp-ranks.prom"),
        "/get_server_info": {**VERSION, "max_running_requests": 48},
        "/v1/models": LISTED,
    },
    "llamacpp": {
        "/metrics": data("llamacpp/builds-without-kv.prom"),
        "/props": {
            "build_info": "1.2.3",
            "total_slots": 4,
            "default_generation_settings": {"n_ctx": 4096},
        },
        "/v1/models": {"data": [{"id": "tiny"}]},
    },
    "trtllm": {
        "/metrics": [{"iter": 1, "numActiveRequests": 6}],
        "/prometheus/metrics": data("trtllm/prometheus.prom"),
        "/version": VERSION,
        "/v1/models": LISTED,
    },
    "tgi": {
        "/metrics": data("tgi/metrics.prom"),
        "/info": {**VERSION, "model_id": "tiny", "max_total_tokens": 4096},
        "/v1/models": LISTED,
    },
    "ollama": {"/api/ps": LOADED, "/api/version": VERSION, "/v1/models": LISTED},
    "openai": {"/v1/models": LISTED},
}
ROUTER = "/health/liveliness"
LOOK = ["/props", "/metrics", "/prometheus/metrics", "/api/ps", "/v1/metrics", "/v1/models"]
"""The questions to a server of which nothing is known: first that which wakes no sleeping llama.cpp."""
IDENTITIES = {
    "sglang": (["/server_info", "/get_server_info", "/v1/models"], EngineIdentity("1.2.3", "tiny", 4096, 48)),
    "vllm": (["/version", "/v1/models", "/health"], EngineIdentity("1.2.3", "tiny", 4096)),
    "llamacpp": (["/props", "/v1/models"], EngineIdentity("1.2.3", "tiny", 4096, 4)),
    "trtllm": (["/version", "/v1/models"], EngineIdentity("1.2.3", "tiny", 4096)),
    "tgi": (["/info"], EngineIdentity("1.2.3", "tiny", 4096)),
    "ollama": (["/api/version"], EngineIdentity("1.2.3")),
    "openai": (["/v1/models"], EngineIdentity(None, "tiny", 4096)),
}


class Served:
    """A running server: what it answers may be changed at any time."""

    def __init__(self, routes: Routes) -> None:
        self.routes = dict(routes)
        self.url = ""
        self.asked: list[str] = []
        self.keys: list[str | None] = []

    async def answer(self, request: web.Request) -> web.Response:
        """Answer by the table; 404 for what is not in it."""
        assert request.method == "GET"
        self.asked.append(request.path)
        self.keys.append(request.headers.get("Authorization"))
        found = self.routes.get(request.path, 404)
        if isinstance(found, bytes):
            return web.Response(body=found, content_type="text/plain")
        if isinstance(found, int):
            return web.json_response({"error": {"message": f"status {found}"}}, status=found)
        return web.json_response(found)

    def take(self) -> list[str]:
        """Return the paths requested since the previous call."""
        taken, self.asked = self.asked, []
        return taken


Serving = Callable[[Routes], Awaitable[Served]]


@pytest.fixture
async def serving() -> AsyncIterator[Serving]:
    """Return a function that starts a server on a free port."""
    runners: list[web.AppRunner] = []

    async def start(routes: Routes) -> Served:
        served = Served(routes)
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", served.answer)
        runner = web.AppRunner(app)
        await runner.setup()
        runners.append(runner)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        served.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        return served

    yield start
    for runner in runners:
        await runner.cleanup()


async def poll(source: EngineSource) -> EngineSample:
    """Poll once for a sample, and wait for the requests that it started."""
    sample = await source.poll(5.0)
    assert isinstance(sample, EngineSample), sample
    if source._asking is not None:
        await source._asking
    return sample


async def fail(source: EngineSource) -> Failure:
    """Poll once for a failure."""
    failure = await source.poll(5.0)
    assert isinstance(failure, Failure), failure
    return failure


def watch(served: Served, engine: str = "auto", clock: Callable[[], float] | None = None) -> EngineSource:
    target = BackendTarget("server", served.url, engine=engine, api_key="sk-1")
    return EngineSource(target, clock=clock) if clock else EngineSource(target)


@pytest.mark.parametrize("engine", SERVERS)
async def test_an_unknown_server_is_found_out(engine: str, serving: Serving) -> None:
    """Asked /props, /metrics and then the other reading routes, each engine is known for what it is."""
    served = await serving(SERVERS[engine])
    source = watch(served)
    sample = await poll(source)
    page = {"trtllm": LOOK[:3], "ollama": LOOK[:4], "openai": LOOK}.get(engine, LOOK[:2])
    facts, identity = IDENTITIES[engine]
    assert sample.engine == engine
    assert served.take() == [*page, *([ROUTER] if engine == "openai" else []), *facts]
    assert source.identity == identity
    await poll(source)
    assert served.take() == (page if engine == "llamacpp" else page[-1:])
    await source.close()
    assert set(served.keys) == {"Bearer sk-1"}


@pytest.mark.parametrize("engine", ["vllm", "llamacpp", "trtllm"])
async def test_a_named_engine_is_asked_on_its_routes_only(engine: str, serving: Serving) -> None:
    """With the engine configured there is no other question, not even while its page is missing."""
    served = await serving(SERVERS[engine])
    page = {"trtllm": LOOK[2:3], "llamacpp": LOOK[:2]}.get(engine, LOOK[1:2])
    source = watch(served, engine)
    assert (await poll(source)).engine == engine
    assert served.take() == [*page, *IDENTITIES[engine][0]]
    served.routes.clear()
    for _ in range(3):
        assert (await fail(source)).kind is FailureKind.NOT_FOUND
    await source.close()
    instead = {"trtllm": ["/metrics"], "llamacpp": ["/slots"]}.get(engine, [])
    assert served.take() == [*page, *instead] * 3


async def test_another_server_on_the_port_is_found_out_again(serving: Serving) -> None:
    """Where the known route is gone, one poll fails and the next asks all; the identity is the new one."""
    served = await serving(SERVERS["ollama"])
    source = watch(served)
    await poll(source)
    served.take()
    served.routes = dict(SERVERS["sglang"])
    assert (await fail(source)).kind is FailureKind.NOT_FOUND
    assert served.take() == ["/api/ps", ROUTER]
    assert (await poll(source)).engine == "sglang"
    assert served.take() == [*LOOK[:2], *IDENTITIES["sglang"][0]]
    await source.close()
    assert source.identity == IDENTITIES["sglang"][1]


async def test_a_list_of_models_is_looked_behind_every_10_s(serving: Serving, clock: FakeClock) -> None:
    """A server that begins to report figures, or another one with the same model, is found after 10 s."""
    served = await serving(SERVERS["openai"])
    source = watch(served, clock=clock)
    await poll(source)
    served.take()
    served.routes = dict(SERVERS["vllm"])
    clock.now += 9.9
    assert (await poll(source)).engine == "openai"
    assert served.take() == ["/v1/models"]
    clock.now += 0.1
    assert (await poll(source)).engine == "vllm"
    await source.close()


@pytest.mark.parametrize(
    ("routes", "words"),
    [
        ({"/metrics": b"# TYPE python_info gauge\npython_info 1.0\n"}, "no engine figures"),
        ({"/metrics": 501}, "status 501"),
    ],
    ids=["a Python program", "not implemented"],
)
async def test_a_server_that_tells_no_figures_is_there(routes: Routes, words: str, serving: Serving) -> None:
    """Its list of models makes a sample without figures, and the note says why there are none."""
    served = await serving({**routes, "/v1/models": LISTED})
    source = watch(served)
    sample = await poll(source)
    await source.close()
    assert (sample.engine, sample.models) == ("openai", ("tiny",))
    assert sample.lanes[0].running is None
    assert sample.note is not None
    assert words in sample.note


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b'{"models": [' + b" " * (4 * 1024 * 1024) + b"]}", FailureKind.TOO_LARGE),
        (b"[" * 100_000, FailureKind.MALFORMED),
        (b'{"models": {"a": 1}, "data": {"a": 1}}', FailureKind.MALFORMED),
        (b"\x00\xff", FailureKind.MALFORMED),
    ],
    ids=["over the cap", "deep", "no list", "garbage"],
)
async def test_hostile_json_is_a_failure(body: bytes, kind: FailureKind, serving: Serving) -> None:
    """Lists beyond the cap, without end or of another shape are failures of one line."""
    served = await serving({"/api/ps": body, "/v1/models": body})
    source = watch(served, "ollama")
    failure = await fail(source)
    await source.close()
    assert failure.kind is kind
    assert failure.message.isprintable()
