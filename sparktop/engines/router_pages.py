"""Recognises and reads metrics pages of routers and gateways.

* vllm-router and SGLang's model gateway serve their own page at a port of its own (29000). At their service
  port vllm-router forwards the page of one worker, of another one each time; the gateway writes the pages of
  all workers at /engine_metrics, with a label `worker_addr`.
* production-stack writes vLLM's prefix: its samples have the label `server` and neither `engine` nor
  `model_name`; without servers only those of all requests together. It never sets the number of waiting
  requests. Each request of its page blocks its event loop for 0.1 s, so its page must not be requested often.
* Dynamo's `queued_requests` lasts until the first token, so that it includes requests in prefill. Newer
  versions have `stage_requests` instead, whose stages before the worker are the real queue; versions between
  count those that wait in the router as `router_queue_pending_requests`, where its queue has a limit.
* llm-d's endpoint picker (EPP) exports each metric under the prefixes of its earlier names too: of each
  metric only the first prefix on the page is read. The Gateway API inference extension, which it comes from,
  writes each part's metrics under a prefix of its own. Gauges of the pool are means over servers and are not
  read.
* AIBrix's gateway writes its servers' gauges again, without a prefix and with a label of its own pod; some
  versions add up what they read each time. Of these only the names of the pods are read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from sparktop.engines.document import amount, entries, field, parse, words
from sparktop.engines.exposition import Family, Reader
from sparktop.engines.lanes import label, requests, where
from sparktop.model.router import Deployment, RouterSample
from sparktop.model.text import clean

LIVELINESS = "/health/liveliness"
"""LiteLLM's route that needs no key and starts no work. Never `/health`, which sends completions to every
deployment."""
_LONGEST_LIVELINESS = 64
"""Bytes of that answer, at most: a metrics page, which exporters send on any route, has such words, too."""
DYNAMO, STACK, LLM_D = "dynamo", "production-stack", "llm-d"
VLLM_ROUTER, SGLANG_GATEWAY, LLAMA_SWAP = "vllm-router", "sglang-gateway", "llama-swap"
ENVOY_AI, GPUSTACK, AIBRIX = "envoy-ai-gateway", "gpustack", "aibrix"
TITLES: Mapping[str, str] = {
    DYNAMO: "Dynamo's frontend",
    STACK: "production-stack's router",
    LLM_D: "llm-d's endpoint picker",
    VLLM_ROUTER: "vllm-router",
    SGLANG_GATEWAY: "SGLang's model gateway",
    LLAMA_SWAP: "llama-swap",
    ENVOY_AI: "Envoy AI gateway",
    GPUSTACK: "GPUStack",
    AIBRIX: "AIBrix's gateway",
}
"""By kind of router: its name for messages."""
WORKERS = "/workers"
"""The route of vllm-router and SGLang's gateway with the list of their workers."""
RUNNING = "/running"
"""The route of llama-swap with the list of loaded models."""
_FRONTEND = "dynamo_frontend_"
_EPP = (
    "llm_d_epp_",
    "llm_d_router_epp_",
    "llm_d_inference_scheduler_",
    "inference_objective_",
    "inference_pool_",
    "inference_extension_",
)
_MARKS: Mapping[str, bytes] = {
    DYNAMO: _FRONTEND.encode() + rb"\w",
    LLM_D: "|".join(_EPP).encode(),
    VLLM_ROUTER: rb"vllm_router_\w",
    SGLANG_GATEWAY: rb"smg_\w|sgl_router_\w",
    LLAMA_SWAP: rb"llamaswap_\w",
    ENVOY_AI: rb"gen_ai_(?:client|server)_\w+\{[^}\n]*(?:gen_ai_original_model=|envoyproxy/ai-gateway)",
    AIBRIX: rb'(?:num_requests|gateway|aibrix)_\w+\{[^}\n]*gateway_pod="',
    GPUSTACK: rb"gpustack:\w",
    STACK: rb"vllm:(?:current_qps|healthy_pods_total|num_incoming_requests|routing_decisions)"
    rb'|vllm:\w+\{[ \t]*+server="[^"\n]*+",?+\}',
}
"""By kind of router: the pattern of a metric that only this kind writes."""
_MARKED_LINE = re.compile(rb"(?m)^(?:# (?:HELP|TYPE) |[ \t]*+)(?:(" + b")|(".join(_MARKS.values()) + rb"))")
"""A line with a metric of a router, in the group at the position of its kind in `_MARKS`."""
_FORWARDED = re.compile(rb'(?m)^[a-z_]+:\w+\{(?:[^}\n]*[, ])?worker_addr="')
"""A sample of an engine as SGLang's gateway writes it: with the address of its worker."""
ROUTERS_ONLY = (
    *(b"vllm:num_incoming_requests", b"vllm:routing_decisions"),
    *(b"vllm_router_", b"worker_addr=", b"gateway_pod="),
)
"""Parts of pages that no engine writes, although names of an engine stand beside them."""
_DYNAMO_ACTIVE = (f"{_FRONTEND}active_requests", f"{_FRONTEND}inflight_requests")
_DYNAMO_STAGES, _DYNAMO_QUEUED = f"{_FRONTEND}stage_requests", f"{_FRONTEND}queued_requests"
_DYNAMO_PENDING = f"{_FRONTEND}router_queue_pending_requests"
_BEFORE_WORKER = ("preprocess", "route", "dispatch")
_STACK_RUNNING, _STACK_HEALTHY = "vllm:num_requests_running", "vllm:healthy_pods_total"
_EPP_ENDPOINTS = ("per_endpoint_queue_size", "per_pod_queue_size")
_EPP_QUEUE = "flow_control_queue_size"
_EPP_IN_FLIGHT = ("request_running", "running_requests")
_AIBRIX_PODS, _AIBRIX_IN_FLIGHT = "num_requests_running", "gateway_in_flight_requests"
_WORKER_RUNNING = ("running_requests", "worker_requests_active", "worker_load")
_WORKER_HEALTH = "worker_health"
_BREAKERS, _OUTCOMES = ("cb_state", "worker_cb_state"), ("cb_outcomes_total", "worker_cb_outcomes_total")
_ERRORS = ("request_errors_total", "router_request_errors_total")
_NO_WORKER = "no_"
"""Beginning of the error types of requests that the router refused: "no_workers", "no_available_workers"."""
_WORKER_PREFIXES: Mapping[str, tuple[str, ...]] = {
    VLLM_ROUTER: ("vllm_router_",),
    SGLANG_GATEWAY: ("smg_", "sgl_router_"),
}
"""Prefixes of routers whose metrics have a label for the worker, the newest first."""
_CIRCUIT_OPEN, _CIRCUIT_HALF_OPEN = 1.0, 2.0
"""States of a circuit breaker; 0 is closed."""
_READER = Reader(
    (
        *(
            *_DYNAMO_ACTIVE,
            _DYNAMO_STAGES,
            _DYNAMO_QUEUED,
            _DYNAMO_PENDING,
            _STACK_RUNNING,
            _STACK_HEALTHY,
            _AIBRIX_PODS,
            _AIBRIX_IN_FLIGHT,
        ),
        *(f"{prefix}{name}" for prefix in _EPP for name in (*_EPP_ENDPOINTS, _EPP_QUEUE, *_EPP_IN_FLIGHT)),
        *(
            f"{prefix}{name}"
            for prefixes in _WORKER_PREFIXES.values()
            for prefix in prefixes
            for name in (*_WORKER_RUNNING, _WORKER_HEALTH, *_BREAKERS, *_OUTCOMES, *_ERRORS)
        ),
    )
)
_MOST_DEPLOYMENTS, _ID_LIMIT, _MOST_LOAD = 256, 200, 2**53
"""Most deployments of a router, characters of the id of one, and requests in flight of one."""
_UNDATED = 0.0
"""The time of samples here: who has requested the page dates them."""
# "spark-a:8000", "[::1]:8000".
_HOST_PORT = re.compile(r"[\w.-]+:\d{1,5}|\[[0-9a-fA-F:]+\]:\d{1,5}")
PREFILL_QUEUED = "queued requests include those in prefill: this version counts them so"


def read_workers(body: bytes) -> RouterSample | None:
    """Parse the list of workers (`/workers`) of vllm-router or SGLang's gateway; None for anything else.

    Only the gateway gives each worker an id.

    Raises:
        PageError: the body is not JSON.
    """
    document = parse(body)
    worker_entries = entries(document, "workers")
    if worker_entries is None:
        return None
    if not worker_entries and field(document, "total") != 0:  # an empty list of another program
        return None
    named = {words(field(entry, "url"), _ID_LIMIT): entry for entry in worker_entries[:_MOST_DEPLOYMENTS]}
    workers = {name: entry for name, entry in named.items() if name is not None}
    if worker_entries and not workers:
        return None
    deployments: list[Deployment] = []
    loads: dict[str, float] = {}
    troubles: dict[str, str] = {}
    for name, worker in workers.items():
        model = words(field(worker, "model_id"), _ID_LIMIT)
        deployments.append(Deployment(name, name, None if model == "unknown" else model))
        load = amount(field(worker, "load"), _MOST_LOAD)  # -1 for an unknown one
        if load is not None:
            loads[name] = load
        if field(worker, "is_healthy") is False:
            troubles[name] = "unhealthy"
    # Without any worker either could have written the list: it counts as the gateway's.
    gateway = not workers or any(field(worker, "id") is not None for worker in workers.values())
    return RouterSample(
        _UNDATED,
        SGLANG_GATEWAY if gateway else VLLM_ROUTER,
        deployments=tuple(deployments),
        sent=loads or None,
        in_flight=math.fsum(loads.values()) if loads else None,
        troubles=troubles,
        note=None if workers else "it has no worker",
    )


def read_running(body: bytes) -> RouterSample | None:
    """Parse llama-swap's list of loaded models (`/running`); None for anything else.

    Each loaded model is a deployment at the address of its server; commands, which may hold secrets, are left
    out.

    Raises:
        PageError: the body is not JSON.
    """
    running_entries = entries(parse(body), "running")
    if running_entries is None or any(words(field(entry, "model")) is None for entry in running_entries):
        return None
    loaded: dict[str, tuple[str, str | None]] = {}
    for entry in running_entries[:_MOST_DEPLOYMENTS]:
        name = words(field(entry, "model"), _ID_LIMIT)
        if name is not None:
            state = words(field(entry, "state"), 20) or "loaded"
            loaded[name] = state, words(field(entry, "proxy"), _ID_LIMIT)
    names = ", ".join(f"{name} ({state})" for name, (state, _) in loaded.items())
    return RouterSample(
        _UNDATED,
        LLAMA_SWAP,
        deployments=tuple(Deployment(name, address, name) for name, (_, address) in loaded.items()),
        note=clean(f"loaded: {names}" if loaded else "no model is loaded", 200),
    )


LISTS: Mapping[str, Callable[[bytes], RouterSample | None]] = {WORKERS: read_workers, RUNNING: read_running}
"""The parser by the route on which routers list their servers."""


def router_kind(body: bytes) -> str | None:
    """Return the kind of router that writes a metrics page; None if it is not one of a known router."""
    match = _MARKED_LINE.search(body)
    if match is not None and match.lastindex is not None:
        return tuple(_MARKS)[match.lastindex - 1]
    return SGLANG_GATEWAY if _FORWARDED.search(body) is not None else None


def read_router_page(body: bytes) -> RouterSample | None:
    """Parse a router's metrics page; None if it is not one of a known router.

    Raises:
        PageError: the page has more samples than any real router has.
    """
    kind = router_kind(body)
    if kind is None:
        return None
    if kind in _WITHOUT_FIGURES:
        return RouterSample(_UNDATED, kind, note=_WITHOUT_FIGURES[kind])
    return _READERS[kind](_READER.read(body))


def _read_dynamo(families: Mapping[str, Family]) -> RouterSample:
    stages = families.get(_DYNAMO_STAGES)
    queued = _sum_or_none(where(stages, "stage", *_BEFORE_WORKER)) if stages else None
    if queued is None:
        queued = _sum_or_none(families.get(_DYNAMO_PENDING, {}))
    note = None
    if queued is None and _DYNAMO_QUEUED in families:
        queued = _sum_or_none(families[_DYNAMO_QUEUED])
        note = None if queued is None else PREFILL_QUEUED
    active_family = next((families[name] for name in _DYNAMO_ACTIVE if name in families), {})
    return RouterSample(_UNDATED, DYNAMO, queued=queued, in_flight=_sum_or_none(active_family), note=note)


def _read_stack(families: Mapping[str, Family]) -> RouterSample:
    counts = _values_by_label(families.get(_STACK_RUNNING, {}), "server")
    running_by_server = {server: count for server, count in counts.items() if 0 <= count < math.inf}
    servers = {**running_by_server, **_values_by_label(families.get(_STACK_HEALTHY, {}), "server")}
    deployments = tuple(Deployment(server, server) for server in list(servers)[:_MOST_DEPLOYMENTS])
    return RouterSample(
        _UNDATED,
        STACK,
        deployments=deployments,
        sent=running_by_server or None,
        in_flight=sum(running_by_server.values()) if running_by_server else None,
        note=None if servers else "it has no server",
    )


def _read_epp(families: Mapping[str, Family]) -> RouterSample:
    family_of = partial(_first_family, families, _EPP)
    endpoints = family_of(*_EPP_ENDPOINTS)
    ids = _values_by_label(endpoints, "model_server_endpoint")
    ids = ids or _values_by_label(endpoints, "model_server_pod")  # of older versions
    deployments = tuple(
        Deployment(deployment, f"http://{deployment}" if _HOST_PORT.fullmatch(deployment) else None)
        for deployment in list(ids)[:_MOST_DEPLOYMENTS]
    )
    return RouterSample(
        _UNDATED,
        LLM_D,
        deployments=deployments or None,
        queued=_sum_or_none(family_of(_EPP_QUEUE)),
        in_flight=_sum_or_none(family_of(*_EPP_IN_FLIGHT)),
    )


def _first_family(families: Mapping[str, Family], prefixes: Sequence[str], *names: str) -> Family:
    """Return the first of these metrics that is on the page, under the first of `prefixes` that it has."""
    full_names = (f"{prefix}{name}" for prefix in prefixes for name in names)
    return next((families[name] for name in full_names if name in families), {})


def _read_aibrix(families: Mapping[str, Family]) -> RouterSample:
    pods = _values_by_label(families.get(_AIBRIX_PODS, {}), "pod")
    return RouterSample(
        _UNDATED,
        AIBRIX,
        deployments=tuple(map(Deployment, list(pods)[:_MOST_DEPLOYMENTS])) or None,
        in_flight=_sum_or_none(families.get(_AIBRIX_IN_FLIGHT, {})),
        note="it names its servers' pods without an address: list them under [[backends]]",
    )


def _read_workers(kind: str, families: Mapping[str, Family]) -> RouterSample:
    """Read the page of a router whose metrics have a label for the worker."""
    family_of = partial(_first_family, families, _WORKER_PREFIXES[kind])
    running_by_worker = _values_by_worker(family_of(*_WORKER_RUNNING))
    health, breakers = _values_by_worker(family_of(_WORKER_HEALTH)), _values_by_worker(family_of(*_BREAKERS))
    outcomes = family_of(*_OUTCOMES)
    failures = {labels: count for labels, count in outcomes.items() if label(labels, "outcome") == "failure"}
    troubles = {name: "circuit half open" for name, state in breakers.items() if state == _CIRCUIT_HALF_OPEN}
    troubles |= {name: "circuit open" for name, state in breakers.items() if state == _CIRCUIT_OPEN}
    troubles |= {name: "unhealthy" for name, state in health.items() if state == 0}
    refused = [
        number
        for labels, number in family_of(*_ERRORS).items()
        if (label(labels, "error_type") or "").startswith(_NO_WORKER) and 0 <= number < math.inf
    ]
    names = list(dict.fromkeys((*health, *breakers, *running_by_worker, *_values_by_worker(outcomes))))
    names = names[:_MOST_DEPLOYMENTS]
    return RouterSample(
        _UNDATED,
        kind,
        deployments=tuple(Deployment(name, name) for name in names) or None,
        sent=running_by_worker or None,
        in_flight=sum(running_by_worker.values()) if running_by_worker else None,
        failures=_values_by_worker(failures) if outcomes else None,
        refusals=math.fsum(refused),
        troubles=troubles,
        note=None if names else "it has no worker",
    )


def _values_by_worker(family: Family) -> dict[str, float]:
    """Return the valid values of a metric by worker, summed over its other labels."""
    values: dict[str, float] = {}
    for labels, value in family.items():
        name = clean(label(labels, "worker") or label(labels, "worker_url") or "", _ID_LIMIT)
        if name and 0 <= value < math.inf and (name in values or len(values) < _MOST_DEPLOYMENTS):
            values[name] = values.get(name, 0.0) + value
    return values


_WITHOUT_FIGURES: Mapping[str, str] = {
    LLAMA_SWAP: "its metrics have no engine figures",
    ENVOY_AI: "its metrics name no servers: list those behind it under [[backends]]",
    GPUSTACK: "its metrics have no engine figures: list its instances as servers",
}
"""Notes on the kinds of routers whose pages are recognised but not read."""
_READERS: Mapping[str, Callable[[Mapping[str, Family]], RouterSample]] = {
    DYNAMO: _read_dynamo,
    STACK: _read_stack,
    LLM_D: _read_epp,
    AIBRIX: _read_aibrix,
    VLLM_ROUTER: partial(_read_workers, VLLM_ROUTER),
    SGLANG_GATEWAY: partial(_read_workers, SGLANG_GATEWAY),
}


def _values_by_label(family: Family, name: str) -> dict[str, float]:
    """Return the values of a metric by the clean value of the label `name`, where that is present."""
    values = {clean(label(labels, name) or "", _ID_LIMIT): value for labels, value in family.items()}
    values.pop("", None)
    return values


def _sum_or_none(family: Family) -> float | None:
    """Return the sum of a gauge that counts requests; None if it is not on the page or invalid."""
    return requests(family) if family else None


def is_litellm(body: bytes) -> bool:
    """Return whether `body` is LiteLLM's answer on the route `LIVELINESS`, "I'm alive!"."""
    return len(body) <= _LONGEST_LIVELINESS and b"alive" in body.lower()
