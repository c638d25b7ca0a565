"""Recognises and reads metrics pages of routers: Dynamo's frontend, production-stack's router, llm-d's EPP.

* production-stack writes vLLM's prefix: its samples have the label `server` and neither `engine` nor
  `model_name`. It never sets the number of waiting requests. Each request of its page blocks its event loop
  for 0.1 s, so its page must not be requested often.
* Dynamo's `queued_requests` lasts until the first token, so that it includes requests in prefill. Newer
  versions have `stage_requests` instead, whose stages before the worker are the real queue.
* llm-d's endpoint picker (EPP) exports each metric under the prefixes of its earlier names too: only the
  first prefix on the page is read. Its gauges of the pool are means over servers and are not read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping

from sparktop.engines.exposition import Family, Reader
from sparktop.engines.figures import label, only, requests
from sparktop.model.router import Deployment
from sparktop.model.text import clean
from sparktop.values import dataclass

DYNAMO, STACK, LLM_D = "dynamo", "production-stack", "llm-d"
TITLES: Mapping[str, str] = {
    DYNAMO: "Dynamo's frontend",
    STACK: "production-stack's router",
    LLM_D: "llm-d's endpoint picker",
}
"""By kind of router: its name for messages."""
_FRONTEND = "dynamo_frontend_"
_EPP = (
    "llm_d_epp_",
    "llm_d_router_epp_",
    "llm_d_inference_scheduler_",
    "inference_objective_",
    "inference_pool_",
    "inference_extension_",
)
_MARKS = re.compile(
    rb"(?m)^(?:# (?:HELP|TYPE) |[ \t]*+)(?:(?P<dynamo>"
    + _FRONTEND.encode()
    + rb"\w)|(?P<epp>"
    + "|".join(_EPP).encode()
    + rb")"
    rb'|(?P<stack>vllm:(?:current_qps|healthy_pods_total)\b|vllm:\w+\{[ \t]*+server="[^"\n]*+",?+\}))'
)
_ACTIVE = (f"{_FRONTEND}active_requests", f"{_FRONTEND}inflight_requests")
_STAGES, _QUEUED = f"{_FRONTEND}stage_requests", f"{_FRONTEND}queued_requests"
_BEFORE_WORKER = ("preprocess", "route", "dispatch")
_RUNNING, _HEALTHY = "vllm:num_requests_running", "vllm:healthy_pods_total"
_EPP_ENDPOINTS = ("per_endpoint_queue_size", "per_pod_queue_size")
_EPP_QUEUE = "flow_control_queue_size"
_READER = Reader(
    (
        *(*_ACTIVE, _STAGES, _QUEUED, _RUNNING, _HEALTHY),
        *(f"{prefix}{name}" for prefix in _EPP for name in (*_EPP_ENDPOINTS, _EPP_QUEUE)),
    )
)
_MOST_DEPLOYMENTS, _ID_LIMIT = 256, 200
_HOST_PORT = re.compile(r"[\w.-]+:\d{1,5}|\[[0-9a-fA-F:]+\]:\d{1,5}")
PREFILL_QUEUED = "queued requests include those in prefill: this version counts them so"


@dataclass(frozen=True, slots=True)
class RouterPage:
    """What a router's metrics page reports; None for what it does not."""

    kind: str
    deployments: tuple[Deployment, ...] | None = None
    sent: Mapping[str, float] | None = None
    """Requests that the router has sent to a deployment and that have not ended, by deployment id."""
    queued: float | None = None
    """Requests that wait in the router."""
    in_flight: float | None = None
    """Requests that the router has received and that have not ended."""
    note: str | None = None


def router_kind(body: bytes) -> str | None:
    """Return the kind of router that writes a metrics page; None if it is not one of a known router."""
    found = _MARKS.search(body)
    if found is None:
        return None
    return DYNAMO if found["dynamo"] else LLM_D if found["epp"] else STACK


def read_router_page(body: bytes) -> RouterPage | None:
    """Parse a router's metrics page; None if it is not one of a known router.

    Raises:
        PageError: the page has more samples than any real router has.
    """
    kind = router_kind(body)
    return None if kind is None else _READERS[kind](_READER.read(body))


def _read_dynamo(families: Mapping[str, Family]) -> RouterPage:
    stages = families.get(_STAGES)
    queued = only("stage", *_BEFORE_WORKER, combine=_known)(stages) if stages else None
    note = None
    if queued is None:
        queued = _known(families.get(_QUEUED, {}))
        note = None if queued is None else PREFILL_QUEUED
    active = next((families[name] for name in _ACTIVE if name in families), {})
    return RouterPage(DYNAMO, queued=queued, in_flight=_known(active), note=note)


def _read_stack(families: Mapping[str, Family]) -> RouterPage:
    running = {
        server: value
        for labels, value in families.get(_RUNNING, {}).items()
        if (server := clean(label(labels, "server") or "", _ID_LIMIT)) and 0 <= value < math.inf
    }
    servers = {**running, **_ids(families.get(_HEALTHY, {}), "server")}
    deployments = tuple(Deployment(server, server) for server in list(servers)[:_MOST_DEPLOYMENTS])
    return RouterPage(
        STACK, deployments, running or None, in_flight=sum(running.values()) if running else None
    )


def _read_epp(families: Mapping[str, Family]) -> RouterPage:
    prefix = next((one for one in _EPP if any(name.startswith(one) for name in families)), _EPP[0])
    endpoints = next(
        (families[f"{prefix}{name}"] for name in _EPP_ENDPOINTS if f"{prefix}{name}" in families), {}
    )
    ids = _ids(endpoints, "model_server_endpoint") or _ids(endpoints, "model_server_pod")
    deployments = tuple(
        Deployment(one, f"http://{one}" if _HOST_PORT.fullmatch(one) else None)
        for one in list(ids)[:_MOST_DEPLOYMENTS]
    )
    return RouterPage(LLM_D, deployments or None, queued=_known(families.get(f"{prefix}{_EPP_QUEUE}", {})))


_READERS: Mapping[str, Callable[[Mapping[str, Family]], RouterPage]] = {
    DYNAMO: _read_dynamo,
    STACK: _read_stack,
    LLM_D: _read_epp,
}


def _ids(family: Family, name: str) -> dict[str, float]:
    """Return the values of a metric by the clean value of the label `name`, where that is present."""
    return {
        text: value
        for labels, value in family.items()
        if (text := clean(label(labels, name) or "", _ID_LIMIT))
    }


def _known(family: Family) -> float | None:
    """Return the sum of a gauge that counts requests; None if it is not on the page or invalid."""
    return requests(family) if family else None
