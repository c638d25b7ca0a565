"""The engines that a configuration may name: their routes, parsers and identity requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Protocol

from sparktop.engines import (
    dialects,
    document,
    llamacpp,
    ollama,
    openai,
    sglang,
    tgi,
    triton,
    trtllm,
    vllm,
    workers,
)
from sparktop.engines.document import Answers
from sparktop.engines.exposition import PageMemory
from sparktop.model.engine import EngineIdentity, EngineSample
from sparktop.values import dataclass

METRICS_PATH = "/metrics"
"""The route of most engines' metrics page, and the first route tried for an unknown engine."""


class ReadPage(Protocol):
    """Function that parses one engine's page."""

    def __call__(
        self,
        body: bytes,
        *,
        at: float,
        answer_ms: float | None = None,
        memory: PageMemory | None = None,
    ) -> EngineSample:
        """Return the sample in `body`, dated `at` (monotonic seconds), or raise `PageError`.

        `memory` is what is kept of the server's previous page.
        """
        ...


@dataclass(frozen=True, slots=True)
class Engine:
    """How to poll the servers of one engine, such as vLLM.

    All routes named here are read-only and requested with GET.
    """

    title: str
    read: ReadPage
    facts: tuple[str, ...]
    """Routes that report a server's identity, requested from time to time."""
    identify: Callable[[Answers], EngineIdentity]
    """Builds the identity from the responses of the routes in `facts`."""
    tells: tuple[str, ...] = ("version", "model")
    """Parts of the identity that this engine can report; `facts` are requested again while one of these is
    missing."""
    path: str = METRICS_PATH
    """The route that is polled, by default that of the metrics page."""
    prefix: str | None = None
    """The prefix of the engine's metric names; None if the engine is polled for JSON instead of a metrics
    page."""
    beside: bool = False
    """True if its names may stand beside those of another engine, to which the page then belongs."""
    silent: str = ""
    """Why a metrics page of this engine may lack all names with this prefix; used in an error message."""
    health: str | None = None
    """Route that answers 503 only after the engine process has died. None if there is no such route, or if a
    request to it causes work: SGLang's and TGI's `/health` run a token through the model."""


def _metrics_only(title: str, read: ReadPage, prefix: str, *, beside: bool = False) -> Engine:
    """Return an engine whose metrics have a port of their own, where nothing else can be requested."""
    return Engine(title, read, (), lambda _: EngineIdentity(), tells=(), prefix=prefix, beside=beside)


ENGINES: Mapping[str, Engine] = MappingProxyType(
    {
        "vllm": Engine(
            "vLLM",
            vllm.read,
            ("/version", "/v1/models"),
            document.identify,
            prefix="vllm:",
            silent="--disable-log-stats",
            health="/health",
        ),
        "sglang": Engine(
            "SGLang",
            sglang.read,
            sglang.FACTS,
            sglang.identify,
            prefix="sglang:",
            silent="without --enable-metrics",
        ),
        "llamacpp": Engine(
            "llama.cpp",
            llamacpp.read,
            llamacpp.FACTS,
            llamacpp.identify,
            prefix="llamacpp:",
            silent="without --metrics",
        ),
        "trtllm": Engine(
            "TensorRT-LLM",
            trtllm.read,
            trtllm.FACTS,
            trtllm.identify,
            path=trtllm.PATH,
            prefix="trtllm_",
            silent="without return_perf_metrics",
        ),
        "tgi": Engine(
            "TGI", tgi.read, tgi.FACTS, tgi.identify, prefix="tgi_", silent="before its first request"
        ),
        "ray": _metrics_only("Ray Serve LLM", dialects.read_ray, "ray_vllm"),
        "nim": Engine(
            "NIM",
            dialects.read_nim,
            dialects.NIM_FACTS,
            dialects.identify_nim,
            path=dialects.NIM_PATH,
            prefix="num_requests_",
            silent="before its first request",
        ),
        "triton": _metrics_only("Triton", triton.read, "nv_inference_"),
        "dynamo": _metrics_only("a Dynamo worker", workers.read_dynamo, "dynamo_component_", beside=True),
        "lmcache": _metrics_only("an LMCache server", workers.read_lmcache, "lmcache_mp_", beside=True),
        "ollama": Engine(
            "Ollama", ollama.read, ollama.FACTS, ollama.identify, tells=("version",), path=ollama.PATH
        ),
        "openai": Engine(
            "a generic OpenAI server",
            openai.read,
            openai.FACTS,
            openai.identify,
            tells=("model",),
            path=openai.PATH,
        ),
    }
)
"""By the engine name used in a configuration. To add an engine, write one module with a `read` and list it
here."""
