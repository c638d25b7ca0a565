"""The engines that a configuration may name: their routes, parsers and identity requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Protocol

from msgspec import Struct

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
from sparktop.engines.dialects import PREFIXES
from sparktop.engines.document import Answers
from sparktop.engines.exposition import PageMemory
from sparktop.model.engine import EngineIdentity, EngineSample

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
        prefix: str = ...,
    ) -> EngineSample:
        """Return the sample in `body`, dated `at` (monotonic seconds), or raise `PageError`.

        `memory` is what is kept of the server's previous page, `prefix` that of the names on the page (by
        default the engine's own).
        """
        ...


class ReadDocument(Protocol):
    """Function that parses a JSON response of one engine."""

    def __call__(self, body: bytes, *, at: float, answer_ms: float | None = None) -> EngineSample:
        """Return the sample in `body`, dated `at` (monotonic seconds), or raise `PageError`."""
        ...


class Engine(Struct, frozen=True):
    """How to poll the servers of one engine, such as vLLM.

    All routes named here are read-only and requested with GET.
    """

    title: str
    read: ReadPage | None = None
    """Parses a metrics page; None if the engine has none."""
    facts: tuple[str, ...] = ()
    """Routes that report a server's identity, requested from time to time."""
    identify: Callable[[Answers], EngineIdentity] = lambda _: EngineIdentity()
    """Builds the identity from the responses of the routes in `facts`."""
    older: tuple[tuple[str, str], ...] = ()
    """Routes in `facts`, each with the one that older versions have in its place."""
    tells: tuple[str, ...] = ("version", "model")
    """Parts of the identity that this engine can report; `facts` are requested again while one of these is
    missing."""
    path: str = METRICS_PATH
    """The route that is polled, by default that of the metrics page."""
    prefixes: tuple[str, ...] = ()
    """The prefixes of the engine's metric names, its own first; empty if it is polled for JSON instead of a
    metrics page."""
    read_json: ReadDocument | None = None
    """Parses the JSON that is polled where the engine has no metrics page, or where that is off."""
    beside: bool = False
    """True if it runs no requests itself: its names often stand beside those of an engine."""
    silent: str = ""
    """When a server of this engine writes no engine metrics; follows the engine's name in a message."""
    health: str | None = None
    """Route that answers 503 only after the engine process has died. None if there is no such route, or if a
    request to it causes work: SGLang's and TGI's `/health` run a token through the model."""

    @property
    def prefix(self) -> str | None:
        """The prefix of the metric names on the engine's own page; None if it has no metrics page."""
        return self.prefixes[0] if self.prefixes else None


def _metrics_only(title: str, read: ReadPage, name: str, *, beside: bool = False) -> Engine:
    """Return an engine whose metrics have a port of their own, where nothing else can be requested."""
    return Engine(title, read, tells=(), prefixes=PREFIXES[name], beside=beside)


ENGINES: Mapping[str, Engine] = MappingProxyType(
    {
        "vllm": Engine(
            "vLLM",
            vllm.read,
            ("/version", "/v1/models"),
            document.identify,
            prefixes=PREFIXES["vllm"],
            read_json=openai.read,
            silent="has none with --disable-log-stats",
            health="/health",
        ),
        "sglang": Engine(
            "SGLang",
            sglang.read,
            sglang.FACTS,
            sglang.identify,
            sglang.OLDER,
            prefixes=PREFIXES["sglang"],
            read_json=openai.read,
            silent="has them only with --enable-metrics",
        ),
        "llamacpp": Engine(
            "llama.cpp",
            llamacpp.read,
            llamacpp.FACTS,
            llamacpp.identify,
            prefixes=PREFIXES["llamacpp"],
            read_json=llamacpp.read_json,
            silent="has them only with --metrics",
        ),
        "trtllm": Engine(
            "TensorRT-LLM",
            trtllm.read,
            trtllm.FACTS,
            trtllm.identify,
            path=trtllm.PATH,
            prefixes=PREFIXES["trtllm"],
            read_json=trtllm.read_json,
            silent="has them only with return_perf_metrics",
        ),
        "aphrodite": Engine(
            "Aphrodite",
            partial(vllm.read, engine="aphrodite"),
            ("/version", "/v1/models"),
            document.identify,
            prefixes=PREFIXES["aphrodite"],
            read_json=openai.read,
            silent="has none with --disable-log-stats",
        ),
        "lmdeploy": Engine(
            "LMDeploy",
            dialects.read_lmdeploy,
            ("/v1/models",),
            document.identify,
            tells=("model",),
            prefixes=PREFIXES["lmdeploy"],
            read_json=openai.read,
            silent="has none with --disable-metrics",
        ),
        "ray": _metrics_only("Ray Serve LLM", dialects.read_ray, "ray"),
        "tgi": Engine(
            "TGI",
            tgi.read,
            tgi.FACTS,
            tgi.identify,
            prefixes=PREFIXES["tgi"],
            silent="has none before its first request",
        ),
        "nim": Engine(
            "NIM",
            dialects.read_nim,
            dialects.NIM_FACTS,
            dialects.identify_nim,
            path=dialects.NIM_PATH,
            prefixes=PREFIXES["nim"],
            silent="has none before its first request",
        ),
        "triton": _metrics_only("Triton", triton.read, "triton"),
        "dynamo": _metrics_only("a Dynamo worker", workers.read_dynamo, "dynamo", beside=True),
        "lmcache": _metrics_only("an LMCache server", workers.read_lmcache, "lmcache", beside=True),
        "ollama": Engine(
            "Ollama",
            None,
            ollama.FACTS,
            ollama.identify,
            tells=("version",),
            path=ollama.PATH,
            read_json=ollama.read,
        ),
        "openai": Engine(
            "a generic OpenAI server",
            None,
            openai.FACTS,
            openai.identify,
            tells=("model",),
            path=openai.PATH,
            read_json=openai.read,
        ),
    }
)
"""By the engine name used in a configuration. To add an engine, write one module with a `read` and list it
here. Of a page with the names of several, the first that is listed here is the engine, and the others are in
front of it or beside it."""
