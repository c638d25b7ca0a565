"""What to watch and how: the settings that the rest of the program works with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

ENGINE_PORTS = (8000, 8001, 8080, 8888, 30000, 11434)
"""Where engines usually listen: vLLM (8000, 8001), llama.cpp (8080), SGLang (8888, 30000), Ollama (11434)."""
ROUTER_PORT = 4000
"""LiteLLM's."""
AGENT_PORT = 9750
MIN_INTERVAL_S = 0.25
MAX_INTERVAL_S = 60.0
"""Bounds of `Watch.interval_s`, wherever it comes from."""
_NO_NAMES: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class NodeTarget:
    """A machine to watch."""

    name: str
    via: str = "local"
    """local, agent or ssh."""
    url: str | None = None
    """Of the agent, without a trailing slash."""
    ssh: str | None = None
    """Where to, as ssh takes it: a host of its configuration, user@host."""
    token: str | None = field(default=None, repr=False)
    """What the agent demands."""
    token_file: str | None = None
    """A file whose first line is the token; read at each connection, so that it can be changed."""
    tls_ca: str | None = None
    """A file of certificates that sign the agent's, where the system's do not."""
    command: str = "sparktop"
    """What ssh runs there."""


@dataclass(frozen=True, slots=True)
class BackendTarget:
    """An inference server to watch."""

    name: str
    url: str
    """Without a trailing slash; http or https."""
    engine: str = "auto"
    nodes: tuple[str, ...] = ()
    slots: int | None = None
    """Requests it runs at once (vLLM's --max-num-seqs), where the user says."""
    api_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class RouterTarget:
    """A router and the backends behind it: the group whose balance matters."""

    name: str
    url: str
    strategy: str | None = None
    backends: tuple[str, ...] = ()
    deployments: Mapping[str, str] = field(default_factory=lambda: _NO_NAMES)
    """Backend by the router's id, where the user says."""
    api_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class StateThresholds:
    """Where one state word ends and the next begins."""

    kv_full_percent: float = 98.0
    busy_running: float = 8.0
    """Running requests that count as busy where the slots are unknown."""
    busy_share: float = 0.5
    """Share of known slots that counts as busy."""
    queueing_share: float = 0.5
    """Share of the window with waiting > 0 that counts as queueing."""
    window_s: float = 10.0
    """The window for queueing and preemptions."""


@dataclass(frozen=True, slots=True)
class NodeThresholds:
    """Where a node's readings become alerts; each clears again a little on the good side of its limit."""

    headroom_warn_gib: float = 12.0
    """Of unified memory: below it the kernel was seen to kill, or the machine to stop."""
    headroom_critical_gib: float = 8.0
    available_warn_percent: float = 10.0
    """Of memory where GPUs have their own."""
    available_critical_percent: float = 5.0
    thermal_margin_warn_c: float = 5.0
    """Degrees left to the GPU's limit."""
    thermal_margin_critical_c: float = 2.0
    throttled_warn_percent: float = 10.0
    """Share of the time for one reason, over a minute."""
    swap_in_warn_mib_per_s: float = 1.0
    rdma_errors_warn_per_s: float = 1.0
    slow_clock_mhz: float = 1000.0
    """An SM clock that a GB10 under load stays below: what a power-delivery fault looks like."""
    slow_step_ratio: float = 1.3
    """A step at a healthy clock that takes this many times what it took before for the same batch."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What the user knows of a model and no server tells."""

    bytes_per_token_gb: float | None = None
    """GB (1e9 bytes) of weights read to make one token at batch 1."""


_NO_MODELS: Mapping[str, ModelFacts] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Watch:
    """Everything to watch, resolved from arguments, config file or discovery."""

    nodes: tuple[NodeTarget, ...] = ()
    backends: tuple[BackendTarget, ...] = ()
    routers: tuple[RouterTarget, ...] = ()
    discover: tuple[str, ...] = ()
    """Hosts whose usual ports are still to be tried."""
    interval_s: float = 1.0
    theme: str = "spark-dark"
    thresholds: StateThresholds = StateThresholds()
    low_bandwidth: bool = False
    """Draw seldom and coarsely: for slow lines."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """Keys of the overview by the names of `sparktop.keys`, where they are not the usual ones."""
    source: str = "defaults"
    """Where it came from, in words: a file's path, "arguments", "this machine"."""
    node_thresholds: NodeThresholds = NodeThresholds()
    models: Mapping[str, ModelFacts] = field(default_factory=lambda: _NO_MODELS)
    """Facts by served model name."""
