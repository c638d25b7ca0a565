"""The engines that a configuration may name, and how the engine of a page is recognised and the page read.

Of each engine: its routes, parsers and identity requests.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from sparktop.engines import document, llamacpp, ollama, openai, sglang, tgi, trtllm, vllm, workers
from sparktop.engines.document import Answers
from sparktop.engines.exposition import Page, PageError, PageText, Reader
from sparktop.engines.router_pages import ROUTERS_ONLY, TITLES, router_kind
from sparktop.engines.tables import PREFIXES, RAY, names_with_prefix
from sparktop.model.engine import EngineIdentity, EngineSample, LaneSample
from sparktop.model.failure import FailureKind
from sparktop.model.text import clean

METRICS_PATH = "/metrics"
"""The route of most engines' metrics page, and the first route tried for an unknown engine."""


ReadDocument: TypeAlias = Callable[[bytes, float], EngineSample]
"""Returns the sample in a JSON response, dated at a time (monotonic seconds), or raises `PageError`."""


class EngineKind(Struct, frozen=True):
    """How to poll the servers of one engine, such as vLLM.

    All routes named here are read-only and requested with GET.
    """

    title: str
    reader: Reader | None = None
    """Finds the samples on a metrics page by their names; None if the engine has no such page."""
    sample_of: Callable[[Page, float], EngineSample] = vllm.sample_of
    """Returns the sample, dated at a time (monotonic seconds), in what `reader` found; raises `PageError`."""
    facts: tuple[str, ...] = ()
    """Routes that report a server's identity, requested from time to time."""
    identify: Callable[[Answers], EngineIdentity] = document.identify
    """Builds the identity from the responses of the routes in `facts`."""
    older: tuple[tuple[str, str], ...] = ()
    """Routes in `facts`, each with the one that older versions have in its place."""
    reports: tuple[str, ...] = ("version", "model")
    """Parts of the identity that this engine can report; `facts` are requested again while one of these is
    missing. Empty where metrics have a port of their own, where nothing else can be requested."""
    path: str = METRICS_PATH
    """The route that is polled, by default that of the metrics page."""
    prefixes: tuple[str, ...] = ()
    """The prefixes of the engine's metric names, its own first; empty for that of `reader` alone."""
    read_json: ReadDocument | None = None
    """Parses the JSON that is polled where the engine has no metrics page, or where that is off."""
    runs_nothing: bool = False
    """True if it runs no requests itself: its names often stand beside those of an engine."""
    silent: str = ""
    """When a server of this engine writes no engine metrics; follows the engine's name in a message."""
    health: str | None = None
    """Route that answers 503 only after the engine process has died. None if there is no such route, or if a
    request to it causes work: SGLang's and TGI's `/health` run a token through the model."""

    @property
    def known_prefixes(self) -> tuple[str, ...]:
        """The prefixes by which its names are recognised, its own first; () if it has no metrics page."""
        return self.prefixes or (() if self.reader is None else (self.reader.prefix,))


_MINDIE_PREFIX = "npu_cache_usage_"
"""MindIE's other names are a NIM's; vLLM on the same hardware writes "vllm:" before it."""
ENGINES: Mapping[str, EngineKind] = MappingProxyType(
    {
        "vllm": EngineKind(
            "vLLM",
            vllm.READER,
            facts=("/version", "/v1/models"),
            prefixes=PREFIXES["vllm"],
            read_json=openai.read,
            silent="has none with --disable-log-stats",
            health="/health",
        ),
        "sglang": EngineKind(
            "SGLang",
            sglang.READER,
            sglang.sample_of,
            facts=sglang.FACTS,
            identify=sglang.identify,
            older=sglang.OLDER,
            prefixes=PREFIXES["sglang"],
            read_json=openai.read,
            silent="has them only with --enable-metrics",
        ),
        "llamacpp": EngineKind(
            "llama.cpp",
            llamacpp.READER,
            llamacpp.sample_of,
            facts=llamacpp.FACTS,
            identify=llamacpp.identify,
            prefixes=PREFIXES["llamacpp"],
            read_json=llamacpp.read_json,
            silent="has them only with --metrics",
        ),
        "trtllm": EngineKind(
            "TensorRT-LLM",
            trtllm.READER,
            trtllm.sample_of,
            facts=trtllm.FACTS,
            path=trtllm.PATH,
            prefixes=PREFIXES["trtllm"],
            read_json=trtllm.read_json,
            silent="has them only with return_perf_metrics",
        ),
        "aphrodite": EngineKind(
            "Aphrodite",
            vllm.READER,
            partial(vllm.sample_of, engine="aphrodite"),
            facts=("/version", "/v1/models"),
            prefixes=PREFIXES["aphrodite"],
            read_json=openai.read,
            silent="has none with --disable-log-stats",
        ),
        "fastdeploy": EngineKind(
            "FastDeploy",
            vllm.READER,
            partial(vllm.sample_of, engine="fastdeploy"),
            facts=("/v1/models",),
            reports=("model",),
            prefixes=PREFIXES["fastdeploy"],
            read_json=openai.read,
        ),
        "lmdeploy": EngineKind(
            "LMDeploy",
            vllm.LMDEPLOY_READER,
            vllm.sample_of_lmdeploy,
            facts=("/v1/models",),
            reports=("model",),
            prefixes=PREFIXES["lmdeploy"],
            read_json=openai.read,
            silent="has none with --disable-metrics",
        ),
        "ray": EngineKind(
            "Ray Serve LLM",
            vllm.READER,
            partial(vllm.sample_of, engine="ray"),
            reports=(),
            prefixes=PREFIXES[RAY],
        ),
        "tgi": EngineKind(
            "TGI",
            tgi.READER,
            tgi.sample_of,
            facts=tgi.FACTS,
            identify=tgi.identify,
            silent="has none before its first request",
        ),
        "nim": EngineKind(
            "NIM",
            vllm.NIM_READER,
            vllm.sample_of_nim,
            facts=vllm.NIM_FACTS,
            path=vllm.NIM_PATH,
            prefixes=(vllm.NIM_PREFIX,),
            silent="has none before its first request",
        ),
        "mindie": EngineKind(
            "MindIE",
            vllm.NIM_READER,
            partial(vllm.sample_of, engine="mindie"),
            reports=(),
            prefixes=(_MINDIE_PREFIX,),
        ),
        "triton": EngineKind("Triton", workers.TRITON_READER, workers.sample_of_triton, reports=()),
        "max": EngineKind("Modular MAX", workers.MAX_READER, workers.sample_of_max, reports=()),
        "dynamo": EngineKind(
            "a Dynamo worker",
            workers.DYNAMO_READER,
            workers.sample_of_dynamo,
            reports=(),
            runs_nothing=True,
        ),
        "lmcache": EngineKind(
            "an LMCache server",
            workers.LMCACHE_READER,
            workers.sample_of_lmcache,
            reports=(),
            prefixes=("lmcache_mp_", "lmcache_mp:", "lmcache_mp."),
            runs_nothing=True,
        ),
        "ollama": EngineKind(
            "Ollama",
            facts=ollama.FACTS,
            reports=("version",),
            path=ollama.PATH,
            read_json=ollama.read,
        ),
        "openai": EngineKind(
            "a generic OpenAI server",
            facts=openai.FACTS,
            reports=("model",),
            path=openai.PATH,
            read_json=openai.read,
        ),
    }
)
"""By the engine name used in a configuration.

To add an engine, write one module with a `READER` and a `sample_of`, and list it here. Of a page with the
names of several, the first that is listed here is the engine, and the others are in front of it or beside it.
"""


def _any_of(prefixes: Iterable[bytes]) -> bytes:
    """Return a pattern of one group, which prefers the longer of two prefixes that match."""
    return b"(" + b"|".join(map(re.escape, sorted(prefixes, key=len, reverse=True))) + b")"


_ENGINE_OF_PREFIX = {
    prefix.encode(): name for name, engine in ENGINES.items() for prefix in engine.known_prefixes
}
_OWN_PREFIXES = {engine.known_prefixes[0].encode() for engine in ENGINES.values() if engine.known_prefixes}
# Samples by (word before the prefix, known prefix, rest of the name).
_PREFIX_FIRST = re.compile(rb"\n[ \t]*+()" + _any_of(_ENGINE_OF_PREFIX) + rb"([\w:]++)")
# "\nray_vllm:num_requests_running": foreign prefix, an engine's prefix, the name behind it.
_PREFIX_LATER = re.compile(
    rb"\n[ \t]*+((?:[A-Za-z_][\w:]{0,38}?[_:])??)" + _any_of(_ENGINE_OF_PREFIX) + rb"([\w:]++)"
)
_DECLARED = re.compile(rb"\n# (?:HELP|TYPE) " + _any_of(_OWN_PREFIXES) + rb"[\w:]")
"""The comment that declares a metric of an engine, perhaps without any sample of it."""
_BARE_TRTLLM = re.compile(
    rb"\n(?:request_success_total|kv_cache_(?:utilization|hit_rate)|e2e_request_latency_seconds_count)[ {]"
)
"""Names without a prefix that old versions of TensorRT-LLM write at their own route."""
_OF_NIM = re.compile(rb'\n[ \t]*+\w*?num_requests_(?:running|waiting)\{[^}\n]*model_name="')
"""A gauge of a NIM. Any program may count requests under names without a prefix, but without this label; with
a colon before them they are another engine's."""
_SERVER_LABEL = b'{server="'
"""Only the samples of production-stack's router have this label alone, under vLLM's names."""
_METRIC_NAME = re.compile(rb"\n[ \t]*+(?:#[ \t]++TYPE[ \t]++)?+([A-Za-z_:][\w:]*+)[ \t{]")
"""The name in a sample or in a comment that states its type."""
_METRIC_LINE = re.compile(
    rb"\n[ \t]*+(?:#[ \t]++(?:HELP[ \t]|TYPE[ \t]|EOF)"
    rb"|[A-Za-z][^\W_]*+[_:][\w:]*+(?:\{|[ \t]++[-+]?+(?:\d|NaN|Inf)))"
)
"""A line by which a response is recognised as a metrics page, of whatever program."""
_CLASSIFIED_BYTES = 65536
"""Number of bytes at the start of a response that are used to classify it."""
_PROGRAMS: Mapping[str, str] = {
    "aigw": "Envoy AI gateway",
    "DCGM": "dcgm-exporter",
    "nvidia": "an exporter of GPUs",
    "node": "node_exporter",
    "container": "cAdvisor",
    "pg": "PostgreSQL",
    "open": "Open WebUI",
    "te": "Text Embeddings Inference",
    "all": "all-smi",
    "gen": "a program with OpenTelemetry's names for LLMs",
}
"""Programs whose metrics are no inference engine's, by the first word of their names. Of programs that are
not listed, messages quote that word."""
_PLAIN = frozenset({"python", "process", "go", "http", "promhttp", "nodejs", "jvm", "up", "scrape", "target"})
"""First words of names that any program may write."""


def read_page(
    body: bytes, *, at: float, engine: str = "auto", answer_ms: float | None = None
) -> EngineSample:
    """Parse the response of the route where `engine` is polled (`/metrics` for "auto").

    Engines are recognised by the prefixes of their names. A page may have the names of an engine and of a
    server in front of it, such as those of vLLM and of the Triton that it runs in: each reads what it knows,
    and a figure of the engine wins over the same one of its front.

    Args:
        body: the response, decompressed.
        at: monotonic time, in seconds, of the response's first byte.
        engine: a key of `ENGINES`, or "auto" to detect the engine from the names on a metrics page.
        answer_ms: time that the response took, in milliseconds.

    Raises:
        PageError: the page cannot be read. MALFORMED: not a metrics page at all, or not the JSON of that
            engine. METRICS_DISABLED: a metrics page without any name of an engine. OTHER_PROGRAM: the same,
            with names of another program. UNSUPPORTED: the page of an engine other than `engine`, or an
            unknown engine. ROUTER: the page of a router. TOO_LARGE: more samples than any real server has.
    """
    if engine != "auto" and engine not in ENGINES:
        raise PageError(FailureKind.UNSUPPORTED, f"unknown engine {clean(engine, 40)!r}")
    kind = ENGINES.get(engine)
    read_json = None if kind is None else kind.read_json
    has_page = kind is None or kind.reader is not None
    if read_json is not None and (not has_page or body.lstrip()[:1] in {b"{", b"["}):
        sample = _with_reason_of_silence(read_json(body, at))
    else:
        sample = _read_metrics(body, at, engine)
    return replace(sample, answer_ms=answer_ms, page_bytes=len(body), page=body)


def _with_reason_of_silence(sample: EngineSample) -> EngineSample:
    """Return `sample`; if it is only a list of models, its note says when such a server writes no metrics.

    The note of `openai.read` tells that it is one.
    """
    answering = ENGINES[sample.engine]
    if sample.note != openai.NOTE or not answering.silent:
        return sample
    return replace(sample, note=f"{answering.title} {answering.silent}; {sample.note}")


def _read_metrics(body: bytes, at: float, engine: str) -> EngineSample:
    """Parse a metrics page; parameters and errors as of `read_page`."""
    text = PageText(body.removeprefix(codecs.BOM_UTF8))
    engines = text.get_or_make(("engines", engine), lambda: _engines_on(body, engine))
    if not engines:
        raise _no_engine_error(body, engine)
    names = [name for name, _ in engines]
    is_nim = engine == "nim" and "vllm" in names  # newer NIMs write vLLM's names
    if engine != "auto" and engine not in names and not is_nim:
        message = f"a page of {ENGINES[names[0]].title}, not of {ENGINES[engine].title} as configured"
        raise PageError(FailureKind.UNSUPPORTED, message)
    samples: list[EngineSample] = []
    for name, prefix in engines:
        kind = ENGINES[name]
        if kind.reader is not None:
            page = kind.reader.with_prefix(_prefix_of_names(kind.reader, kind.prefixes, prefix)).read(text)
            samples.append(replace(kind.sample_of(page, at), impossible=page.impossible))
    return _merge_samples(samples)


def _prefix_of_names(reader: Reader, engine_prefixes: Sequence[str], found_prefix: str) -> str:
    """Return what stands before each name of an engine's table on a page with the prefix `found_prefix`.

    The names of a NIM have no prefix: it is found by how one of them begins, "ray_num_requests", of which
    "ray_" stands before the names of its table.
    """
    return found_prefix if reader.prefix else found_prefix.removesuffix(engine_prefixes[0])


def _engines_on(body: bytes, engine: str) -> tuple[tuple[str, str], ...]:
    """Return the name and the prefix of each engine that writes a metrics page, the engine before its fronts.

    `engine` is the engine that is expected, or "auto".

    Raises:
        PageError: ROUTER, with the router's name as its message: the page is one of a router.
    """
    padded = b"\n" + body
    engines: dict[str, str] = {}
    for pattern in (_PREFIX_FIRST, _PREFIX_LATER):
        if engines:
            break  # the second pattern is slower, and seldom needed
        for found in pattern.finditer(padded):
            foreign_prefix, prefix, rest = found.groups()
            name = _ENGINE_OF_PREFIX[prefix]
            if name not in engines and _is_engines_metric(name, prefix, rest):
                engines[name] = (foreign_prefix + prefix).decode()
    engines_with_prefix = engines.keys() - {"nim"}  # a NIM's names have no prefix either
    if engine == "trtllm" and not engines_with_prefix and _BARE_TRTLLM.search(padded):
        return (("trtllm", ""),)
    if "nim" in engines and not _is_page_of_nim(engines, engine, padded):
        del engines["nim"]
    kind = router_kind(body) if _may_be_router(padded, engines) else None
    if kind is not None:
        raise PageError(FailureKind.ROUTER, TITLES[kind])
    return tuple((name, engines[name]) for name in ENGINES if name in engines)


def _is_page_of_nim(engines: Mapping[str, str], engine: str, padded: bytes) -> bool:
    """Return whether names as a NIM's are of one: MindIE writes such, too, and others may."""
    return "mindie" not in engines and (engine == "nim" or _OF_NIM.search(padded) is not None)


def _is_engines_metric(engine: str, prefix: bytes, name: bytes) -> bool:
    """Return whether the metric `name`, written after `prefix`, is one of the engine's.

    Every name after the engine's own prefix is. After a prefix that it shares with other programs, only the
    names of its table are; without a table, all.
    """
    if prefix in _OWN_PREFIXES or engine not in PREFIXES:
        return True
    return f"{prefix.decode()}{name.decode()}" in names_with_prefix(engine, prefix.decode())


def _may_be_router(padded: bytes, engines: Mapping[str, str]) -> bool:
    """Return False if a page is certainly one of an engine; cheap to compute."""
    if all(ENGINES[name].runs_nothing for name in engines) or any(mark in padded for mark in ROUTERS_ONLY):
        return True
    return "vllm" in engines and (_SERVER_LABEL in padded or b"model_name=" not in padded)


def _merge_samples(samples: Sequence[EngineSample]) -> EngineSample:
    """Return the engine's sample, completed by what only its fronts report."""
    engine, *fronts = samples
    for front in fronts:
        lanes = engine.lanes
        if len(lanes) == len(front.lanes) == 1:
            lanes = (_fill_missing(lanes[0], front.lanes[0]),)
        engine = replace(
            engine,
            lanes=lanes,
            models=engine.models or front.models,
            start_time=front.start_time if engine.start_time is None else engine.start_time,
            role=engine.role or front.role,
            slots=front.slots if engine.slots is None else engine.slots,
            impossible={**front.impossible, **engine.impossible},
        )
    return engine


def _fill_missing(lane: LaneSample, front: LaneSample) -> LaneSample:
    """Return a lane of an engine with those fields of its front that the engine does not report."""
    missing_fields: dict[str, Any] = {}
    for name in LaneSample.__struct_fields__:
        of_engine, of_front = getattr(lane, name), getattr(front, name)
        if of_engine in (None, {}) and of_front not in (None, {}):
            missing_fields[name] = of_front
    if "generation_tokens" in missing_fields:  # how they are counted comes from where they do
        missing_fields["per_finished_request"] = front.per_finished_request
    for field_name in ("counts", "gauges"):
        missing_fields[field_name] = {**getattr(front, field_name), **getattr(lane, field_name)}
    return replace(lane, **missing_fields)


def _no_engine_error(body: bytes, engine: str) -> PageError:
    """Return the error for a response that has no metric name of the expected engine, "auto" for any.

    The error's kind is MALFORMED if the response is no metrics page, OTHER_PROGRAM if it has names of another
    program, else METRICS_DISABLED.
    """
    padded = b"\n" + body[:_CLASSIFIED_BYTES]
    if not _METRIC_LINE.search(padded):
        return PageError(FailureKind.MALFORMED, f"{_looks_like(body[:_CLASSIFIED_BYTES])}, not metrics")
    declared = _DECLARED.search(padded)
    if declared is not None and (engine == "nim" or declared[1] != vllm.NIM_PREFIX.encode()):
        title = ENGINES[_ENGINE_OF_PREFIX[declared[1]]].title
        return PageError(FailureKind.METRICS_DISABLED, f"the metrics of {title} have no values yet")
    program = _program_of_page(padded)
    if program is not None:
        return PageError(FailureKind.OTHER_PROGRAM, f"metrics of {program}: no engine figures")
    expected, message = ENGINES.get(engine), "a metrics page with no engine figures"
    if expected is not None and expected.silent:
        prefix = expected.known_prefixes[0]
        message = f"no {prefix} name on the metrics page: {expected.title} {expected.silent}"
    return PageError(FailureKind.METRICS_DISABLED, message)


def _program_of_page(padded: bytes) -> str | None:
    """Return the program that writes a page without an engine's names, by the first words of its names.

    None if all names are of those that any program may write.
    """
    names = (line[1].decode() for line in _METRIC_NAME.finditer(padded))
    first_words = Counter(re.split("[_:]", name, maxsplit=1)[0] for name in names)
    own_words = [word for word, _ in first_words.most_common() if word not in _PLAIN]
    if not own_words:
        return None
    unknown = f"another program ({clean(own_words[0], 30)}_...)"
    return next((_PROGRAMS[word] for word in own_words if word in _PROGRAMS), unknown)


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
