"""Readers for servers that report vLLM's metrics under other names: Ray Serve LLM and NVIDIA's NIM.

* Ray Serve LLM: `ray_vllm_<name>` (older versions of Ray: `ray_vllm:<name>`) on the metrics port of each of
  Ray's nodes. Each counter exists with and without `_total`, and only from its first increment on: the first
  is read. All replicas on a node are on one page, with equal `engine` labels: with several, each is a lane.
  They differ by `ReplicaId`, or by `WorkerId` (the process) where vLLM is older than 0.11.
* NIM: vLLM's old names without a prefix, at `/v1/metrics`. `request_finish_total` has the reasons.
  `gpu_power_usage_watts` is not read: versions differ in its unit.
"""

from __future__ import annotations

from dataclasses import replace

from sparktop.engines import vllm
from sparktop.engines.document import Answers, field, first_model, words
from sparktop.engines.exposition import Page, PageMemory, Reader
from sparktop.engines.figures import label, total_or_none
from sparktop.model.engine import EngineIdentity, EngineSample

NIM_PATH = "/v1/metrics"
NIM_FACTS = ("/v1/version", "/v1/models")
"""Routes that report the identity of a NIM."""
_OURS, _SLOTS = "vllm:", "num_request_max"
_PLAIN = {name.removeprefix(_OURS): name for name in vllm.NAMES}
_RAY_PREFIXES = ("ray_vllm_", "ray_vllm:")
REPLICA_LABELS = ("ReplicaId", "WorkerId")
"""The labels by which the replicas on a page of Ray differ; the first that they have counts."""
_FINISHED = {
    "request_finish_total": "vllm:request_success_total",
    "request_success_total": "vllm:request_success",  # read only where the name above is absent
}
_NIM = Reader({**_PLAIN, **_FINISHED, _SLOTS: _SLOTS})


def ray_names(name: str) -> tuple[str, ...]:
    """Return the names under which Ray may report the vLLM metric `name`; none for others."""
    plain = name.removeprefix(_OURS)
    return tuple(f"{prefix}{plain}" for prefix in _RAY_PREFIXES) if plain != name else ()


RAY_NAMES = {theirs: name for name in vllm.NAMES for theirs in ray_names(name)}
"""vLLM's name by each name that is read from a page of Ray."""
_RAY = Reader(RAY_NAMES)


def read_ray(
    body: bytes, *, at: float, answer_ms: float | None = None, memory: PageMemory | None = None
) -> EngineSample:
    """Parse a metrics page of Ray with at least one `ray_vllm` sample, dated `at` (monotonic seconds).

    Raises:
        PageError: the page holds more samples or lanes than any real server has.
    """
    families = _RAY.read(body, memory)
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


def read_nim(
    body: bytes, *, at: float, answer_ms: float | None = None, memory: PageMemory | None = None
) -> EngineSample:
    """Parse a metrics page of a NIM, dated `at` (monotonic seconds).

    Raises:
        PageError: the page holds more samples or lanes than any real server has.
    """
    families = _NIM.read(body, memory)
    sample = vllm.sample_of(families, at=at, answer_ms=answer_ms, page_bytes=len(body), engine="nim")
    slots = total_or_none(families.get(_SLOTS, {}))
    return replace(sample, slots=None if slots is None else int(slots))


def identify_nim(answers: Answers) -> EngineIdentity:
    """Return the identity that `/v1/version` and `/v1/models` report."""
    model, max_model_len = first_model(answers.get("/v1/models"))
    return EngineIdentity(words(field(answers.get("/v1/version"), "release"), 60), model, max_model_len)
