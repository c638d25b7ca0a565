"""Every engine that a configuration may name: where it is read, how, and what tells its identity."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from sparktop.engines import document, llamacpp, ollama, openai, sglang, tgi, trtllm, vllm
from sparktop.engines.document import Answers
from sparktop.model.engine import EngineIdentity, EngineSample

METRICS_PATH = "/metrics"
"""Where most engines have their page, and where an unknown one is asked first."""


class ReadPage(Protocol):
    """Reads the page of one engine."""

    def __call__(self, body: bytes, *, at: float, answer_ms: float | None = None) -> EngineSample:
        """Give the sample, or raise `PageError`."""
        ...


@dataclass(frozen=True, slots=True)
class Engine:
    """What is to be known of an engine before it is asked. All routes only read; all are asked with GET."""

    title: str
    read: ReadPage
    facts: tuple[str, ...]
    """Routes that tell its identity, asked now and then."""
    identify: Callable[[Answers], EngineIdentity]
    """Makes the identity of those answers of `facts` that came."""
    tells: tuple[str, ...] = ("version", "model")
    """Parts of the identity that it should tell: it is asked again while one is missing."""
    path: str = METRICS_PATH
    """The route of its page."""
    prefix: str | None = None
    """How its names on a metrics page begin; None: its page is JSON."""
    silent: str = ""
    """Why a metrics page may have none of its names."""
    health: str | None = None
    """Route that answers 503 once the engine process has died, and only then. None where there is no such
    route, or where asking makes work: SGLang's and TGI's `/health` run a token through the model."""


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
"""By the name that a configuration gives. A new engine is one file with a `read`, named here."""
