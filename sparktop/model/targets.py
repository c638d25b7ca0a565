"""The servers, routers and machines to watch, and the settings that the rest of the program uses."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import asdict, replace

from sparktop.model.event import Severity
from sparktop.model.plain import hide_in_repr
from sparktop.model.router import Scrape

ENGINE_PORTS = (8000, 8001, 8080, 8888, 30000, 11434)
"""Usual ports of engines: vLLM (8000, 8001), llama.cpp (8080), SGLang (8888, 30000), Ollama (11434)."""
ENGINE_NAMES = (
    *("vllm", "sglang", "llamacpp", "trtllm", "aphrodite", "fastdeploy", "lmdeploy", "ray", "tgi", "nim"),
    *("mindie", "triton", "max", "dynamo", "lmcache", "ollama", "openai"),
)
"""The engines that a configuration can name: those of `sparktop.engines.registry`, in its order.

A file is checked before the first picture, which needs no reader of pages."""
ROUTER_PORT = 4000
"""The usual port of LiteLLM."""
SEARCHED_PORTS = (*ENGINE_PORTS, ROUTER_PORT)
"""Ports that are tried on each host where servers are searched."""
SEARCH_HERE_S, SEARCH_ELSEWHERE_S = 10.0, 30.0
"""Seconds after which hosts without a server are searched again: this machine alone, where a
closed port costs nothing, and others."""
LONGEST_POLL_S = 10.0
"""Default of `Watch.timeout_s`: as long as Prometheus waits for a page."""
AGENT_PORT = 9750
"""Usual port of an agent."""
_API_PATHS = (
    *("/metrics", "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"),
    *("/v1/embeddings", "/v1/models", "/v1", "/chat/completions", "/api/chat", "/api/generate"),
)
"""Ends of the addresses of single requests, which clients are configured with, beside the page of metrics."""
_THIS_MACHINE = frozenset({"localhost", "127.0.0.1", "::1"})


def search_again_s(hosts: Collection[str]) -> float:
    """Return the seconds after which `hosts`, where no server was found, are searched again."""
    return SEARCH_HERE_S if _THIS_MACHINE.issuperset(hosts) else SEARCH_ELSEWHERE_S


def server_path(path: str) -> str:
    """Return the part of a URL's path that names a server: without the path of a request and last slashes."""
    kept = path.rstrip("/")
    for api_path in _API_PATHS:
        kept = kept.removesuffix(api_path).rstrip("/")
    return kept


@hide_in_repr("token")
class NodeTarget(Struct, frozen=True):
    """A machine to watch."""

    name: str
    via: str = "local"
    """local, agent, ssh or prometheus."""
    url: str | None = None
    """URL of the sparktop agent, without a trailing slash."""
    ssh: str | None = None
    """The destination as ssh accepts it: a host of its configuration, or user@host."""
    token: str | None = None
    """The token that the agent requires."""
    token_file: str | None = None
    """A file whose first line is the token; read at each connection, so that it can be changed."""
    tls_ca: str | None = None
    """Path of a certificate file that verifies the agent's TLS certificate, where the system's
    certificates do not."""
    command: str | None = None
    """The installed sparktop that ssh runs on the machine, if it is there and not older than this one."""
    ssh_bundle: bool = True
    """Whether ssh may send the reader of this version to the machine; if not, sparktop must be installed."""
    scrape: Scrape | None = None
    """The Prometheus that its samples come from, where `via` is "prometheus"."""


@hide_in_repr("api_key")
class BackendTarget(Struct, frozen=True):
    """An inference server to watch."""

    name: str
    url: str
    """Without a trailing slash; http or https."""
    engine: str = "auto"
    nodes: tuple[str, ...] = ()
    slots: int | None = None
    """Most requests that the server runs at once (vLLM's --max-num-seqs), where configured."""
    capture_sizes: tuple[int, ...] | None = None
    """Batch sizes with a captured CUDA graph on this server, where configured; empty: none."""
    api_key: str | None = None
    tls_ca: str | None = None
    """Path of a certificate file that verifies the server's, as in `NodeTarget`."""
    scrape: Scrape | None = None
    """The Prometheus that its samples come from; None where this program polls the server."""
    group: str | None = None
    """The group that labels in Prometheus or a job name; used where no router is known."""

    def updated_by(self, target: BackendTarget) -> BackendTarget:
        """Return this backend with what is new in `target`, which has the same name.

        Through a Prometheus, its machines may have become known; at an address that is polled, a newer job
        may have begun, with other machines, another group and another key.
        """
        if self.scrape is not None and target.scrape is not None:
            return replace(self, nodes=target.nodes)
        if self.url != target.url or self.scrape is not None or target.scrape is not None:
            return self
        return replace(self, nodes=target.nodes, group=target.group, api_key=target.api_key)


@hide_in_repr("bearer", "password")
class PrometheusTarget(Struct, frozen=True):
    """A Prometheus, or another server with its HTTP API, through which servers are watched."""

    name: str
    url: str
    """Without a trailing slash, and without /api/v1."""
    bearer: str | None = None
    bearer_file: str | None = None
    """A file whose first line is the token; read at each query, so that it can be changed."""
    basic_user: str | None = None
    password: str | None = None
    tls_ca: str | None = None
    """Paths of certificate files, as in `NodeTarget`; the next two are this program's own."""
    tls_cert: str | None = None
    tls_key: str | None = None
    headers: Mapping[str, str] = {}
    """Further request headers, such as X-Scope-OrgID."""
    selector: str = ""
    """Matchers that every query has, as between the braces of PromQL: `namespace="llm"`."""
    group_by: tuple[str, ...] = ()
    """Labels whose values name the group of a server; empty: model, job and namespace."""
    machine_selector: str = ""
    """Matchers that the queries for machines have, as `selector`, whose labels machines may lack."""
    machines: Mapping[str, tuple[str, ...]] = {}
    """Hosts of servers by `instance`, where labels do not show on which machines a server runs."""
    closer: str = "ask"
    """When a group is polled directly for a closer look: "ask" (at a key press), "auto" or "never"."""


@hide_in_repr("api_key")
class RouterTarget(Struct, frozen=True):
    """A router to watch, and the backends behind it, among which the balance of load is judged."""

    name: str
    url: str
    strategy: str | None = None
    backends: tuple[str, ...] = ()
    deployments: Mapping[str, str] = {}
    """Backend name by the router's deployment id, where configured."""
    weights: Mapping[str, float] = {}
    """By backend: the relative part of the requests that it is given on purpose; empty: equal ones."""
    api_key: str | None = None
    tls_ca: str | None = None
    """Path of a certificate file that verifies the router's, as in `NodeTarget`."""


Target: TypeAlias = BackendTarget | NodeTarget | RouterTarget | PrometheusTarget
"""Anything that is watched."""
ARGUMENTS = "arguments"
"""The value of `Watch.source` for targets given as TARGET arguments."""


class StateThresholds(Struct, frozen=True):
    """Thresholds between the states of a backend (idle, busy, queueing and so on), and of its latencies."""

    kv_full_percent: float = 98.0
    busy_running: float = 8.0
    """Running requests from which a backend counts as busy, where its number of slots is unknown."""
    busy_share: float = 0.5
    """Share of the slots in use, 0 to 1, from which a backend counts as busy, where their number is known."""
    queueing_share: float = 0.5
    """Share of the time window, 0 to 1, with waiting requests from which a backend counts as queueing."""
    window_s: float = 10.0
    """Seconds over which queueing and preemptions are judged."""
    ttft_slow_s: float | None = None
    """Time to first token from which a quantile is shown as slow; None or 0: from none on, as below."""
    itl_slow_ms: float | None = None
    """The same for the time between two tokens."""
    queue_slow_s: float | None = None
    """The same for the time that requests wait in the queue."""
    refused_warn_per_min: float | None = 3.0
    """Requests refused within a minute from which there is an alert; None or 0: there never is, as below."""
    http_5xx_warn_per_min: float | None = 3.0
    """The same for requests answered with an HTTP status from 500 on."""


class NodeThresholds(Struct, frozen=True):
    """Thresholds for alerts about a node.

    An alert clears only when the value is a little better than its threshold.
    """

    headroom_warn_gib: float = 12.0
    """Headroom of unified memory. Below it the kernel has been seen to kill processes, or the machine to
    hang."""
    headroom_critical_gib: float = 8.0
    available_warn_percent: float = 10.0
    """Available memory of machines whose GPUs have memory of their own."""
    available_critical_percent: float = 5.0
    thermal_margin_warn_c: float = 5.0
    """Degrees Celsius below the GPU's thermal limit."""
    thermal_margin_critical_c: float = 2.0
    throttled_warn_percent: float = 10.0
    """Percent of the last minute in which the GPU was throttled for one reason."""
    swap_in_warn_mib_per_s: float = 1.0
    rdma_errors_warn_per_s: float = 1.0
    slow_clock_mhz: float = 1000.0
    """A GB10 under load whose SM clock stays below this is slow; a power-delivery fault looks like this."""
    slow_step_ratio: float = 1.3
    """Engine steps count as slow when, at a healthy clock, a step takes this multiple of its earlier time
    for the same batch size."""


class Thresholds(Struct, frozen=True):
    """All thresholds that a store judges by; a store may get others while it runs."""

    states: StateThresholds = StateThresholds()
    nodes: NodeThresholds = NodeThresholds()


class ModelFacts(Struct, frozen=True):
    """Facts about a model from the configuration file, which no server reports."""

    bytes_per_token_gb: float | None = None
    """Gigabytes (1e9 bytes) of weights read to generate one token at batch size 1."""
    cudagraph_capture_sizes: tuple[int, ...] = ()
    """Batch sizes with a captured graph, unless a backend has a list of its own; a batch between two of them
    is padded to the larger."""


AXES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "trace": ("trace_format", "trace_speed", "trace_range"),
        "agents": ("workload",),
        "rate": ("arrivals",),
        "concurrency": ("climb_to",),
    }
)
"""The settings of which a sweep has one, what varies from level to level, each with those that go with it."""
_ENDS = ("runs", "more_runs", "duration_s", "requests", "mode")
"""How the levels of an axis follow and end: settings without a meaning on another one."""


@hide_in_repr("extra_body", "headers")
class SweepSpec(Struct, frozen=True):
    """What somebody wants a sweep (load test) to be: a preset, the options of a command, an editor's fields.

    All settings may be left open; `preset | options` lays one over another, and `make_plan` resolves them.
    For settings that stay open, the defaults of `sparktop.sweep.plan.plan.Plan` hold.
    """

    name: str = ""
    """Name of the preset; empty for settings that are laid over one."""
    targets: tuple[str, ...] = ()
    """Names of backends and routers."""
    concurrency: tuple[int, ...] = ()
    prompt_lengths: tuple[int, ...] = ()
    """Prompt tokens of each request. With several lengths, every concurrency is measured with every
    length."""
    tg: int | None = None
    """Tokens generated by each request."""
    runs: int | None = None
    depths: tuple[int, ...] = ()
    """Tokens of context before each prompt, each combined with all other loads."""
    whole: bool = False
    """Whether context and prompt are one request, instead of one after the other."""
    climb_to: int | None = None
    """Highest concurrency to which the sweep goes on while tokens/s rise; None: it measures `concurrency`
    only."""
    more_runs: bool = False
    """Whether a level in burst mode gets more than `runs` runs where these are too short for a reliable
    result."""
    mode: str | None = None
    """burst or steady."""
    duration_s: float | None = None
    requests: int | None = None
    order: str | None = None
    """ascending or abba."""
    trace: str | None = None
    """Path of a file with recorded traffic; it sets rate, lengths and duration."""
    trace_format: str | None = None
    """Format of that file; None: recognised from its first line."""
    trace_speed: float | None = None
    """2 replays twice as fast as recorded."""
    trace_range: str | None = None
    """Part of the file, such as "10m..1h"."""
    key: str | None = None
    """The key that starts the sweep on the screen."""
    agents: tuple[int, ...] = ()
    """Numbers of agents, instead of `concurrency`; `workload` is what they do."""
    workload: str | None = None
    rate: str | None = None
    """Requests per second instead of `concurrency`, such as "0.5,1,2", "0.5..4" or "auto"."""
    arrivals: str | None = None
    """How the gaps between requests at a rate vary, such as "poisson"."""
    prompts: str | None = None
    """Path of a file with the user's own prompts, which replace made ones and their lengths."""
    texts: tuple[str, ...] = ()
    """Kinds of built-in text, such as "code": each concurrency is measured with prompts of every kind."""
    extra_body: Mapping[str, Any] = {}
    """Further fields of each request's body."""
    headers: Mapping[str, str] = {}
    """Further headers of each request."""
    timeout_s: float | None = None
    """Seconds that a request may wait for its first and each next token; None: the plan's own."""
    slo: str | None = None
    """Conditions of a search for the highest concurrency, such as "ttft_p90_ms=2000,stream_tps=15"."""
    longest: bool = False
    """Whether the largest length that fits is looked for where a server refuses a prompt length."""
    leave: bool = False
    """Whether clients hang up in the middle of answers after each level."""
    beside: int | None = None
    """Tokens of long prompts that arrive while each level is measured again; None for none."""
    api: str | None = None
    """chat or completions."""
    seed: int | None = None
    warmup: bool | None = None
    max_error_share: float | None = None
    """Share (0 to 1) of failed requests above which the sweep counts as failed."""

    @property
    def axis(self) -> str | None:
        """The name in `AXES` of what varies from level to level; None if it is left open."""
        return next((name for name in AXES if getattr(self, name)), None)

    @property
    def given(self) -> dict[str, Any]:
        """The settings that are not left open, by name."""
        left_open = SweepSpec()
        return {name: value for name, value in asdict(self).items() if value != getattr(left_open, name)}

    def __or__(self, other: SweepSpec) -> SweepSpec:
        """Return these settings with those of `other` laid over them.

        Another axis drops this one and how its levels end, and a trace the preset's name; bodies and headers
        are joined.
        """
        given, dropped = other.given, set[str]()
        axis = other.axis or ("concurrency" if other.mode else None)
        if axis is not None and axis != (self.axis or "concurrency"):
            dropped.update(AXES, *AXES.values(), _ENDS, ("name",) if axis == "trace" else ())
        elif other.axis is not None:
            dropped.update(AXES[other.axis])
        if given.keys() & {"runs", "duration_s", "requests"}:
            dropped.add("more_runs")
        if "runs" in given:
            dropped.add("requests")
        if "prompt_lengths" in given:
            dropped.add("prompts")
        kept = {name: value for name, value in self.given.items() if name not in dropped}
        both = {name: {**kept[name], **given[name]} for name in _MAPPINGS if name in kept and name in given}
        return SweepSpec(**{**kept, **given, **both})


_MAPPINGS = ("extra_body", "headers")
"""Settings of a sweep that are joined and not replaced."""


class GuardLimits(Struct, frozen=True):
    """Limits at which a running sweep (load test) stops itself.

    0 switches a limit off. None means the limit's default value on machines with unified memory, and no limit
    on others.
    """

    min_headroom_gib: float | None = None
    """Minimum free memory; by default 8 GiB."""
    max_gpu_c: float | None = None
    """Maximum GPU temperature; by default 92 °C."""


@hide_in_repr("webhook", "webhook_token")
class EventSettings(Struct, frozen=True):
    """How users are notified of events: bell, desktop notification, hook program, webhook; default: none."""

    severity: Severity = Severity.WARNING
    """The least severity of an event that is sent by any of these ways."""
    bell: bool = False
    """Whether the viewer rings the terminal's bell."""
    notify: str = "off"
    """The escape sequence by which the viewer asks the terminal for a desktop notification: off, osc9 or
    osc777."""
    hook: tuple[str, ...] = ()
    """A program with its arguments, run once for each event; empty: none."""
    webhook: str | None = None
    """The URL that each event is posted to; its path may be a secret."""
    webhook_token: str | None = None
    """Sent to the webhook as a bearer token."""


class ViewSettings(Struct, frozen=True):
    """How graphs and lists are drawn, as the configuration file sets it; None where it does not."""

    graphs: str | None = None
    """The characters of graphs: "braille dots" or "blocks"."""
    window_s: int | None = None
    """Least number of seconds that the graphs of the board show."""
    columns: str | None = None
    """The columns that come first in the list of backends, such as "latency first"."""
    wall_from: int | None = None
    """Number of servers or machines from which on the board is a wall; 0 for never, None by its size."""


INCIDENTS = (
    "unreachable",
    "engine-dead",
    "stuck",
    "headroom",
    "throttled",
    "slow-clock",
    "gpu-lost",
    "gpus-gone",
)
"""Default of `Watch.incidents`: a server or machine is dead, an engine is stuck, memory is nearly used up, or
a GPU is slow or lost."""


class Watch(Struct, frozen=True):
    """All targets and settings for watching, merged from arguments, configuration file or discovery."""

    nodes: tuple[NodeTarget, ...] = ()
    backends: tuple[BackendTarget, ...] = ()
    routers: tuple[RouterTarget, ...] = ()
    discover: tuple[str, ...] = ()
    """Hosts on which to search for servers, at the engines' usual ports."""
    interval_s: float = 1.0
    timeout_s: float = LONGEST_POLL_S
    """Longest time that one poll may take; one of a source that answers fast is given less."""
    theme: str = "spark-dark"
    thresholds: StateThresholds = StateThresholds()
    low_bandwidth: bool = False
    """Draw less often and more coarsely, for slow connections."""
    keys: Mapping[str, str] = {}
    """Keys of the overview, by action name (see `sparktop.config.keys`), where they differ from the
    defaults."""
    source: str = "defaults"
    """Origin of the settings, in words: a file's path, "arguments", "this machine"."""
    node_thresholds: NodeThresholds = NodeThresholds()
    models: Mapping[str, ModelFacts] = {}
    """`ModelFacts` by served model name."""
    sweeps: tuple[SweepSpec, ...] = ()
    """Presets of the load generator from the configuration."""
    guard: GuardLimits = GuardLimits()
    events: EventSettings = EventSettings()
    flight: bool = True
    """Whether the viewer keeps the newest minutes in files (the flight recorder)."""
    flight_mib: int = 64
    """MiB that these files may take."""
    incidents: tuple[str, ...] = INCIDENTS
    """Kinds of alerts whose minutes before and after are saved (see `ALERT_KINDS`)."""
    ask_ranks: bool = False
    """Whether NCCL is asked about the ranks of an engine that seems to be stuck, without a key press."""
    prometheus: tuple[PrometheusTarget, ...] = ()
    target_files: tuple[str, ...] = ()
    """Paths of files of Prometheus' file_sd format whose servers are watched, with wildcards."""
    sparkrun: bool = False
    """Whether the servers of this user's sparkrun jobs, and their machines, are watched."""
    view: ViewSettings = ViewSettings()
    sweep_routers: tuple[RouterTarget, ...] = ()
    """Routers that are not watched, but that sweeps can name as targets."""
    is_trusted: bool = True
    """Whether the user named or approved the configuration file; if not, no server in it is loaded without a
    question."""


def poll_groups(watch: Watch) -> list[tuple[str, list[BackendTarget]]]:
    """Return the backends in groups, each polled at the same instant, as (router name, backends) pairs.

    Each router has a group; all backends without a router are in the group named "". Empty groups are left
    out.
    """
    router_of: dict[str, str] = {}
    for router in watch.routers:
        for name in router.backends:
            router_of.setdefault(name, router.name)
    groups: dict[str, list[BackendTarget]] = {}
    for target in watch.backends:
        groups.setdefault(router_of.get(target.name, ""), []).append(target)
    return list(groups.items())
