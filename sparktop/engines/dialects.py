"""The prefixes under which engines' metric names appear, and readers for servers with vLLM's metrics.

`PREFIXES` is the one list of prefixes: for pages and for the series of a Prometheus. Beside an engine's own
spelling there are those of OpenTelemetry (`vllm_`: a colon is no character of its names), of KServe's
PodMonitor (`kserve_vllm:`) and of Ray. On a page, any other word before an engine's own prefix is accepted,
too.

* Ray Serve LLM: `ray_vllm_<name>` (older versions of Ray: `ray_vllm:<name>`) on the metrics port of each of
  Ray's nodes. Each counter exists with and without `_total`, and only from its first increment on: the first
  is read. All replicas on a node are on one page, with equal `engine` labels: with several, each is a lane.
  They differ by `ReplicaId`, or by `WorkerId` (the process) where vLLM is older than 0.11.
* NIM: vLLM's old names without a prefix, at `/v1/metrics`. `request_finish_total` has the reasons.
  `gpu_power_usage_watts` is not read: versions differ in its unit.
* Aphrodite has vLLM's metrics under its own prefix.
* LMDeploy (`lmdeploy/metrics/loggers.py`): vLLM's names but for
  the time of a step (`iter_token_latency`), that of a token (`time_per_output_token_seconds`), tokens from
  the prefix cache, counted at the end of a request, and the hit rate. `iteration_tokens_total` is counted for
  each request, so that it does not show steps. Failed requests and those that wait in the HTTP server
  (`num_api_requests_waiting`) are gauges. It has no preemptions.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec.structs import replace

from sparktop.engines import vllm
from sparktop.engines.document import Answers, field, first_model, words
from sparktop.engines.exposition import Page, PageMemory, Reader
from sparktop.engines.figures import label, requests, total_or_none
from sparktop.engines.lanes import CPU, START, Fields, LanePage
from sparktop.model.engine import EngineIdentity, EngineSample, LaneSample

PREFIXES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "ray": ("ray_vllm_", "ray_vllm:"),
        "vllm": ("vllm:", "vllm_", "kserve_vllm:", "kserve_vllm_"),
        "aphrodite": ("aphrodite:", "aphrodite_"),
        "lmdeploy": ("lmdeploy:", "lmdeploy_"),
        "sglang": ("sglang:", "sglang_", "kserve_sglang:", "ray_sglang_"),
        "llamacpp": ("llamacpp:", "llamacpp_"),
        "trtllm": ("trtllm_", "trtllm:"),
        "tgi": ("tgi_",),
        "nim": ("num_requests_",),
        "triton": ("nv_inference_",),
        "dynamo": ("dynamo_component_",),
        "lmcache": ("lmcache_mp_", "lmcache_mp:", "lmcache_mp."),
    }
)
"""The prefixes of each engine's names, its own first."""
NIM_PATH = "/v1/metrics"
NIM_FACTS = ("/v1/version", "/v1/models")
"""Routes that report the identity of a NIM."""
_OURS, _SLOTS = PREFIXES["vllm"][0], "num_request_max"
_NIM_MARK = PREFIXES["nim"][0]
REPLICA_LABELS = ("ReplicaId", "WorkerId")
"""The labels by which the replicas on a page of Ray differ; the first that they have counts."""
_FINISHED = {
    "request_finish_total": "vllm:request_success_total",
    "request_success_total": "vllm:request_success",  # read only where the name above is absent
}
_NIM = Reader({**{name.removeprefix(_OURS): name for name in vllm.NAMES}, **_FINISHED, _SLOTS: _SLOTS})
_LMDEPLOY_PREFIX = PREFIXES["lmdeploy"][0]
_PARTS = ("bucket", "sum", "count")
_LMDEPLOY_OWN = {
    "cached_tokens_total": "prompt_tokens_cached_total",
    "prefix_cache_hit_rate": "gpu_prefix_cache_hit_rate",
    **{f"iter_token_latency_{part}": f"inter_token_latency_seconds_{part}" for part in _PARTS},
    **{
        f"time_per_output_token_seconds_{part}": f"request_time_per_output_token_seconds_{part}"
        for part in _PARTS
    },
}
"""vLLM's name by LMDeploy's, where they differ, without prefixes."""
_FAILED, _API_WAITING = "lmdeploy:num_requests_failed", "lmdeploy:num_api_requests_waiting"
_OF_API_SERVER: Fields = (("queued", (_API_WAITING,), requests), ("failed", (_FAILED,), requests))
_NOT_LMDEPLOY = ("vllm:iteration_tokens_total", *(f"{_OURS}{name}" for name in _LMDEPLOY_OWN.values()))
LMDEPLOY_NAMES: Mapping[str, str] = MappingProxyType(
    {
        **{
            name.replace(_OURS, _LMDEPLOY_PREFIX): name
            for name in vllm.NAMES
            if name.startswith(_OURS) and not name.startswith(_NOT_LMDEPLOY)
        },
        **{f"{_LMDEPLOY_PREFIX}{theirs}": f"{_OURS}{ours}" for theirs, ours in _LMDEPLOY_OWN.items()},
        _FAILED: _FAILED,
        _API_WAITING: _API_WAITING,
        START: START,
        CPU: CPU,
    }
)
"""The name in vLLM's tables of each name that is read from a page of LMDeploy."""
_LMDEPLOY = Reader(LMDEPLOY_NAMES)


def read_ray(
    body: bytes,
    *,
    at: float,
    answer_ms: float | None = None,
    memory: PageMemory | None = None,
    prefix: str = PREFIXES["ray"][0],
) -> EngineSample:
    """Parse a metrics page of Ray with at least one `ray_vllm` sample, dated `at` (monotonic seconds).

    Raises:
        PageError: the page holds more samples or lanes than any real server has.
    """
    families = vllm.READER.under(_OURS, prefix).read(body, memory)
    lane_label = families.kept("lane label", lambda: _lane_label(families))
    return vllm.sample_of(
        families, at=at, answer_ms=answer_ms, page_bytes=len(body), engine="ray", lane_label=lane_label
    )


def _lane_label(page: Page) -> str:
    """Return the label that separates the engine cores on a page of Ray."""
    every = [labels for places in page.places.values() for labels in places]
    for name in REPLICA_LABELS:
        replicas = {label(labels, name) for labels in every} - {None}
        if replicas:
            return name if len(replicas) > 1 else "engine"
    return "engine"


def read_lmdeploy(
    body: bytes,
    *,
    at: float,
    answer_ms: float | None = None,
    memory: PageMemory | None = None,
    prefix: str = _LMDEPLOY_PREFIX,
) -> EngineSample:
    """Parse a metrics page of LMDeploy, dated `at` (monotonic seconds).

    Raises:
        PageError: the page holds more samples or lanes than any real server has.
    """
    families = _LMDEPLOY.under(_LMDEPLOY_PREFIX, prefix).read(body, memory)
    sample = vllm.sample_of(families, at=at, answer_ms=answer_ms, page_bytes=len(body), engine="lmdeploy")
    of_api = LanePage(families, lane_label="engine").read(_OF_API_SERVER, ())
    return replace(sample, lanes=tuple(_with_api_server(lane, of_api[lane.lane]) for lane in sample.lanes))


def _with_api_server(lane: LaneSample, of_api: Mapping[str, float | None]) -> LaneSample:
    """Return a lane with what LMDeploy's HTTP server reports of it: its queue and its failed requests."""
    queued, failed = of_api.get("queued"), of_api.get("failed")
    finished = {reason.rpartition(".")[2].lower(): number for reason, number in lane.finished.items()}
    return replace(
        lane,
        waiting=lane.waiting if lane.waiting is None or queued is None else lane.waiting + queued,
        finished=finished,  # "ResponseType.FINISH"
        counts=lane.counts if failed is None else {**lane.counts, "failed": failed},
    )


def read_nim(
    body: bytes,
    *,
    at: float,
    answer_ms: float | None = None,
    memory: PageMemory | None = None,
    prefix: str = _NIM_MARK,
) -> EngineSample:
    """Parse a metrics page of a NIM, dated `at` (monotonic seconds).

    Raises:
        PageError: the page holds more samples or lanes than any real server has.
    """
    families = _NIM.under("", prefix.removesuffix(_NIM_MARK)).read(body, memory)
    sample = vllm.sample_of(families, at=at, answer_ms=answer_ms, page_bytes=len(body), engine="nim")
    slots = total_or_none(families.get(_SLOTS, {}))
    return replace(sample, slots=None if slots is None else int(slots))


def identify_nim(answers: Answers) -> EngineIdentity:
    """Return the identity that `/v1/version` and `/v1/models` report."""
    model, max_model_len = first_model(answers.get("/v1/models"))
    return EngineIdentity(words(field(answers.get("/v1/version"), "release"), 60), model, max_model_len)
