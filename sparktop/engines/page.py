"""Detects the engine of a metrics page by the prefix of its metric names, and parses the page accordingly."""

from __future__ import annotations

import re

from sparktop.engines.error import PageError
from sparktop.engines.exposition import PageMemory
from sparktop.engines.registry import ENGINES
from sparktop.engines.router_pages import ROUTERS_ONLY, TITLES, router_kind
from sparktop.model.engine import EngineSample
from sparktop.model.failure import FailureKind
from sparktop.model.text import clean
from sparktop.values import replace

_BY_PREFIX = {engine.prefix.encode(): name for name, engine in ENGINES.items() if engine.prefix}


def _sample(*, beside: bool) -> re.Pattern[bytes]:
    """Return a pattern for a line with a metric name of an engine whose `beside` is equal to `beside`."""
    prefixes = (prefix for prefix, name in _BY_PREFIX.items() if ENGINES[name].beside is beside)
    return re.compile(rb"\n[ \t]*+(" + b"|".join(map(re.escape, prefixes)) + rb")[\w:]")


_SAMPLE, _SAMPLE_BESIDE = _sample(beside=False), _sample(beside=True)
_LONGEST_NAME = 100
_SERVER_LABEL = b'{server="'
"""Only the samples of production-stack's router have this label alone, under vLLM's names."""
_METRICS = re.compile(
    rb"\n[ \t]*+(?:#[ \t]++(?:HELP|TYPE)[ \t]|[A-Za-z]\w*[_:][\w:]*+(?:\{|[ \t]++[-+]?+(?:\d|NaN|Inf)))"
)
_LOOKED_AT = 65536
"""Number of bytes at the start of a response that are used to classify it."""


def read_page(
    body: bytes,
    *,
    at: float,
    engine: str = "auto",
    answer_ms: float | None = None,
    memory: PageMemory | None = None,
) -> EngineSample:
    """Parse the response of the route where `engine` is polled (`/metrics` for "auto").

    Args:
        body: the response, decompressed.
        at: monotonic time, in seconds, of the response's first byte.
        engine: a key of `ENGINES`, or "auto" to detect the engine from the names on a metrics page.
        answer_ms: time that the response took, in milliseconds.
        memory: what is kept of the previous page of the same server, which makes the next one cheap to read.

    Raises:
        PageError: the page cannot be read. MALFORMED: not a metrics page at all, or not the JSON of that
            engine. METRICS_DISABLED: a metrics page without any name of the engine. UNSUPPORTED: the page of
            an engine other than `engine`, or an unknown engine. ROUTER: the page of a router. TOO_LARGE: more
            samples than any real server has.
    """
    if engine != "auto" and engine not in ENGINES:
        raise PageError(FailureKind.UNSUPPORTED, f"unknown engine {clean(engine, 40)!r}")
    if engine != "auto" and ENGINES[engine].prefix is None:
        return replace(ENGINES[engine].read(body, at=at, answer_ms=answer_ms), page=body)
    known = memory.engine if memory is not None and memory.follow(body) else None
    name = known or engine_of(body)
    if name is None:
        raise _without_engine(body, engine)
    if engine not in {"auto", name, *(("nim",) if name == "vllm" else ())}:  # newer NIMs write vLLM's names
        message = f"a page of {ENGINES[name].title}, not of {ENGINES[engine].title} as configured"
        raise PageError(FailureKind.UNSUPPORTED, message)
    sample = replace(ENGINES[name].read(body, at=at, answer_ms=answer_ms, memory=memory), page=body)
    if memory is not None:
        memory.engine = name
    return sample


def engine_of(body: bytes) -> str | None:
    """Return the name of the engine that writes a metrics page; None if it has no sample of a known one.

    Raises:
        PageError: ROUTER, with the router's name as its message: the page is one of a router.
    """
    padded = b"\n" + body
    found = _SAMPLE.search(padded)
    maybe_router = (
        found is None
        or _SERVER_LABEL in padded[found.end() : found.end() + _LONGEST_NAME]
        or any(mark in body for mark in ROUTERS_ONLY)
    )
    if maybe_router and (kind := router_kind(body)) is not None:
        raise PageError(FailureKind.ROUTER, TITLES[kind])
    found = found or _SAMPLE_BESIDE.search(padded)
    return None if found is None else _BY_PREFIX[found[1]]


def _without_engine(body: bytes, engine: str) -> PageError:
    """Return the error for a response that has no metric name of the expected engine.

    The error's kind is METRICS_DISABLED if the response is a metrics page, else MALFORMED. `engine` is the
    expected engine, or "auto" for any engine; the message for "auto" names vLLM.
    """
    known = ENGINES["vllm" if engine == "auto" else engine]
    if not _METRICS.search(b"\n" + body[:_LOOKED_AT]):
        return PageError(FailureKind.MALFORMED, f"{_looks_like(body[:_LOOKED_AT])}, not metrics")
    message = f"metrics disabled: no {known.prefix} name on the page ({known.silent}, or not {known.title})"
    return PageError(FailureKind.METRICS_DISABLED, message)


def _looks_like(body: bytes) -> str:
    """Describe a response that is not a metrics page, such as "an HTML page", judged by its first bytes."""
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
