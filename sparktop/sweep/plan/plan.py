"""What a sweep is to do: targets, levels, limits. Values only; `presets` makes plans of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from sparktop.model.load import Level, LoadMode


class Api(StrEnum):
    """Which of the two completion interfaces is asked."""

    CHAT = "chat"
    COMPLETIONS = "completions"


class Order(StrEnum):
    """In which order levels and targets follow one another."""

    ASCENDING = "ascending"
    """Target by target, each from the first concurrency to the last."""
    ABBA = "abba"
    """Level by level, the runs of all targets interleaved A B B A: what drifts, drifts for all."""


class TargetKind(StrEnum):
    """What stands at a target's address."""

    ENGINE = "engine"
    ROUTER = "router"


@dataclass(frozen=True, slots=True)
class SweepTarget:
    """A server or router to put load on."""

    name: str
    url: str
    """Without a trailing slash and without /v1."""
    kind: TargetKind = TargetKind.ENGINE
    model: str | None = None
    """The model asked for; the server's only or first one when None."""
    api_key: str | None = field(default=None, repr=False)
    backends: Mapping[str, str] = field(default_factory=dict)
    """Of a router: URL of each watched backend behind it, by name."""
    deployments: Mapping[str, str] = field(default_factory=dict)
    """Of a router: backend by the id that the router names in its answers."""
    strategy: str | None = None
    """Of a router: how it chooses, where that is known."""
    nodes: tuple[str, ...] = ()
    """Watched machines that it runs on."""
    known: bool = False
    """On this machine or in the configuration: needs no question before load is put on it."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """What a request may take, in seconds."""

    connect_s: float = 10.0
    first_token_s: float = 300.0
    between_tokens_s: float = 60.0
    whole_s: float = 1800.0


@dataclass(frozen=True, slots=True)
class Guard:
    """Where a running sweep stops itself."""

    min_headroom_gib: float | None = None
    """None: 8 GiB on unified memory, elsewhere no limit. 0: no limit."""
    max_gpu_c: float | None = None
    """None: 92 °C beside unified memory, elsewhere no limit. 0: no limit."""
    max_error_share: float = 0.5
    """Failed requests of a level, once ten have ended."""


@dataclass(frozen=True, slots=True)
class SloCondition:
    """One thing that must hold: `ttft_p90_ms <= 2000`, `stream_tps >= 15`."""

    figure: str
    limit: float
    at_least: bool = False
    """True where more is better."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole sweep."""

    targets: tuple[SweepTarget, ...]
    concurrency: tuple[int, ...] = (1, 4, 16)
    pp: int = 128
    """Prompt tokens of each request."""
    prompt_lengths: tuple[int, ...] = ()
    """Several of them, each level with each; `pp` alone where empty."""
    tg: int = 64
    """Tokens that each request generates."""
    runs: int = 3
    mode: LoadMode = LoadMode.BURST
    duration_s: float | None = None
    """Of a steady run; of a burst level: no run begins after it."""
    requests: int | None = None
    """Bound of a steady run by requests instead of seconds; of a burst level: as many runs as that takes."""
    order: Order = Order.ASCENDING
    api: Api = Api.CHAT
    seed: int = 0
    warmup: bool = True
    """One run ahead of each level that is not measured."""
    timeouts: Timeouts = Timeouts()
    guard: Guard = Guard()
    slo: tuple[SloCondition, ...] = ()
    longest: bool = False
    """Of a prompt length that a target refuses, look for the largest that fits and measure it too."""
    max_error_share: float = 0.01
    """Above it a sweep's result is bad (exit 1)."""
    preset: str | None = None
    """The name it came from."""

    @property
    def loaded(self) -> frozenset[str]:
        """The names of all targets, and of the backends behind them."""
        return frozenset(name for one in self.targets for name in (one.name, *one.backends))

    @property
    def lengths(self) -> tuple[int, ...]:
        """Every prompt length, in order."""
        return self.prompt_lengths or (self.pp,)

    def runs_of(self, concurrency: int) -> int | None:
        """Give how many runs a level has; None where only the time tells."""
        if self.mode is LoadMode.STEADY:
            return self.runs
        if self.requests is not None:
            return -(-self.requests // concurrency)
        return self.runs if self.duration_s is None else None

    def level(self, target: SweepTarget, concurrency: int, prompt_tokens: int | None = None) -> Level:
        """Give one level of this plan."""
        return Level(
            target=target.name,
            concurrency=concurrency,
            prompt_tokens=prompt_tokens or self.pp,
            output_tokens=self.tg,
            mode=self.mode,
            runs=self.runs_of(concurrency) or self.runs,
            duration_s=self.duration_s if self.mode is LoadMode.STEADY else None,
        )
