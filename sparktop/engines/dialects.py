"""Readers for servers that report vLLM's metrics under other names: Ray Serve LLM and NVIDIA's NIM.

* Ray Serve LLM: `ray_vllm_<name>` (older versions of Ray: `ray_vllm:<name>`) on the metrics port of each of
  Ray's nodes. Each counter exists with and without `_total`, and only from its first increment on: the first
  is read. All replicas on a node are on one page, with equal `engine` labels: with several, each
  (`ReplicaId`) is a lane.
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
_RAY = Reader(
    {
        f"{prefix}{plain}": name
        for plain, name in _PLAIN.items()
        if name.startswith(_OURS)
        for prefix in ("ray_vllm_", "ray_vllm:")
    }
)
_FINISHED = {
    "request_finish_total": "vllm:request_success_total",
    "request_success_total": "vllm:request_success",  # read only where the name above is absent
}
_NIM = Reader({**_PLAIN, **_FINISHED, _SLOTS: _SLOTS})


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
    replicas = {label(labels, "ReplicaId") for places in page.places.values() for labels in places}
    return "ReplicaId" if len(replicas - {None}) > 1 else "engine"


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
