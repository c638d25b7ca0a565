"""Whose page is it? Finds the engine by the prefix of its names and reads the page with its mapping."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from sparktop.engines import vllm
from sparktop.engines.error import PageError
from sparktop.model.engine import EngineSample
from sparktop.model.failure import FailureKind
from sparktop.model.text import clean


class _Read(Protocol):
    def __call__(self, body: bytes, *, at: float, answer_ms: float | None = None) -> EngineSample: ...


@dataclass(frozen=True, slots=True)
class _Engine:
    title: str
    prefix: str | None
    """How its names on a metrics page begin; None: it has no such page."""
    read: _Read | None = None
    """None: this version cannot read it."""


# A new engine is one file with a `read`, named here.
_ENGINES = {
    "vllm": _Engine("vLLM", "vllm:", vllm.read),
    "sglang": _Engine("SGLang", "sglang:"),
    "llamacpp": _Engine("llama.cpp", "llamacpp:"),
    "trtllm": _Engine("TensorRT-LLM", "trtllm_"),
    "tgi": _Engine("TGI", "tgi_"),
    "ollama": _Engine("Ollama", None),
    "openai": _Engine("a generic OpenAI server", None),
}
"""Every engine that a configuration may name, by its name there."""
_BY_PREFIX = {engine.prefix.encode(): name for name, engine in _ENGINES.items() if engine.prefix}
_SAMPLE = re.compile(rb"\n[ \t]*+(" + b"|".join(map(re.escape, _BY_PREFIX)) + rb")\w")
_METRICS = re.compile(
    rb"\n[ \t]*+(?:#[ \t]++(?:HELP|TYPE)[ \t]|[A-Za-z]\w*[_:][\w:]*+(?:\{|[ \t]++[-+]?+(?:\d|NaN|Inf)))"
)
_LOOKED_AT = 65536
"""Bytes of an answer that are enough to tell what it is."""


def read_page(
    body: bytes, *, at: float, engine: str = "auto", answer_ms: float | None = None
) -> EngineSample:
    """Read what a server answered on its metrics path.

    Args:
        body: the answer, unpacked.
        at: monotonic seconds of its first byte.
        engine: what the configuration says it is; "auto" finds out.
        answer_ms: what the answer took.

    Raises:
        PageError: it is no page that can be read. MALFORMED: no metrics page at all. METRICS_DISABLED: a
            metrics page without a name of the engine's. UNSUPPORTED: the page of an engine that this version
            cannot read, or of another one than the configuration says. TOO_LARGE: absurdly many samples.
    """
    if engine != "auto" and engine not in _ENGINES:
        raise PageError(FailureKind.UNSUPPORTED, f"unknown engine {clean(engine, 40)!r}")
    found = _SAMPLE.search(b"\n" + body)
    if found is None:
        raise _without_engine(body, engine)
    name = _BY_PREFIX[found[1]]
    known = _ENGINES[name]
    if engine not in {"auto", name}:
        message = f"a page of {known.title}, not of {_ENGINES[engine].title} as configured"
        raise PageError(FailureKind.UNSUPPORTED, message)
    if known.read is None:
        raise PageError(FailureKind.UNSUPPORTED, f"{known.title} is not supported yet")
    return known.read(body, at=at, answer_ms=answer_ms)


def _without_engine(body: bytes, engine: str) -> PageError:
    """Say what a page is that has no name of any engine."""
    known = _ENGINES["vllm" if engine == "auto" else engine]
    if known.read is None:
        return PageError(FailureKind.UNSUPPORTED, f"{known.title} is not supported yet")
    if not _METRICS.search(b"\n" + body[:_LOOKED_AT]):
        return PageError(FailureKind.MALFORMED, f"{_looks_like(body[:_LOOKED_AT])}, not metrics")
    message = (
        f"metrics disabled: no {known.prefix} name on the page (--disable-log-stats, or not {known.title})"
    )
    return PageError(FailureKind.METRICS_DISABLED, message)


def _looks_like(body: bytes) -> str:
    """Name what an answer is by its first bytes."""
    start = body.removeprefix(b"\xef\xbb\xbf").lstrip()[:512]
    kinds = (
        (not start, "an empty answer"),
        (start.startswith((b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh")), "compressed data"),
        (b"\x00" in start, "binary data"),
        (re.match(rb"<!doctype html|<html|<head|<body", start, re.IGNORECASE), "an HTML page"),
        (start.startswith(b"<"), "an XML document"),
        (start.startswith((b"{", b"[")), "a JSON document"),
    )
    return next((kind for matched, kind in kinds if matched), "other text")
