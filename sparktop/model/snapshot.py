"""The snapshot of all watched servers and machines, with its views: what screens, reports and rules read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from sparktop.model.balance import Balance
from sparktop.model.engine import Histogram, PrefixCache
from sparktop.model.event import Alert, Event, Finding, FindingKind, Phase, ProgressView, Values
from sparktop.model.failure import Failure
from sparktop.model.node import (
    EngineSetup,
    GpuReading,
    LostGpu,
    MemoryAsk,
    NodeIdentity,
    NodeSample,
    Workload,
)
from sparktop.model.ranks import RanksView
from sparktop.model.router import NO_COST, NO_TOTALS, FleetView, RouterView, Scrape, SelfView, Totals
from sparktop.model.series import Series
from sparktop.model.targets import NodeThresholds, StateThresholds
from sparktop.model.yardsticks import PastSetup, PublishedRates, YardstickBasis

PHASES = ("start", "GPU context", "weights", "compile", "KV pool", "CUDA graphs")
"""The phases of a start in order, as they can be distinguished from outside."""
LAST_TIME, GROWTH = "last time", "growth of GPU memory"
"""What an expected time is based on."""


class PastStart(Struct, frozen=True):
    """A start of a model that was seen from the start of its process to the first answer."""

    host: str
    """Name of the machine."""
    engine: str
    model: str
    total_s: float
    """Seconds from the start of the process to the first answer."""
    phases: Mapping[str, float] = {}
    """Seconds by name of the phase; empty if not all were seen."""
    boot_id: str | None = None
    """The boot of the machine in which it happened."""
    warm: bool = False
    """Whether an earlier start of the model was seen since the machine booted, which leaves files cached."""
    ended_at: float = 0.0
    """When it answered, as Unix time."""
    reported: Mapping[str, float] = {}
    """Seconds by phase that the server itself reports afterwards."""
    peak_bytes: int | None = None
    """How much less memory programs could allocate, at most, than at the begin of the start: what the start
    took in all, with the buffers of its loader. None unless it was seen from the begin."""
    gpu_peak_bytes: int | None = None
    """Most GPU memory that its processes on the machine held in the start."""
    gpu_bytes: int | None = None
    """GPU memory that they held when it answered."""
    asks: MemoryAsk | None = None
    """What its command line asked of memory."""

    @property
    def key(self) -> tuple[str, str, str]:
        """Return (host, engine, model)."""
        return self.host, self.engine, self.model


class Kept(Struct, frozen=True):
    """What files hold: earlier starts and setups of servers, and published rates."""

    starts: tuple[PastStart, ...] = ()
    setups: tuple[PastSetup, ...] = ()
    published: tuple[PublishedRates, ...] = ()


class StartMemory(Struct, frozen=True):
    """What is known of the memory that a start of a server takes, while its process is visible or was."""

    node: str
    """The machine of the server's process."""
    host: str
    """Name of the machine by itself, as in `PastStart`."""
    process: Workload
    """The server's process at the newest reading that shows it."""
    last: PastStart | None = None
    """The newest earlier start of the model on the machine."""
    begin_bytes: int | None = None
    """Memory that programs could allocate at the begin of the start that goes on; None without one that was
    seen from the begin."""
    alive: bool = True
    """Whether its process was there at the newest reading."""

    @property
    def key(self) -> tuple[str, str, str]:
        """Return (host, engine, model)."""
        return self.host, self.process.engine or "", self.process.model or ""

    @property
    def asks(self) -> MemoryAsk:
        """What its command line asks for."""
        return self.process.asks or MemoryAsk()


class Loading(Struct, frozen=True):
    """What is known about a server that loads its model."""

    elapsed_s: float | None = None
    """Since its process started; None where the process is not visible."""
    phase: str | None = None
    """One of `PHASES`, or "download"; None where the process is not visible."""
    step: int | None = None
    """Number of the phase, from 1; None with `phase` or without a number."""
    steps: int = len(PHASES)
    phase_s: float | None = None
    """Seconds in this phase."""
    left_s: float | None = None
    """Seconds until it answers, as far as earlier starts or the growth of GPU memory show it."""
    expected_s: float | None = None
    """Duration of the whole start by an earlier start of the model on this machine."""
    basis: str | None = None
    """What `left_s` is based on: `LAST_TIME` or `GROWTH` (of this phase only)."""
    warm: bool | None = None
    """Whether the earlier start, and this one, found files in the machine's cache; None without one."""
    memory_bytes: int | None = None
    """GPU memory of its processes, or their memory where no GPU reports any."""
    node: str | None = None
    pid: int | None = None
    """Process ID of the server on `node`."""

    @property
    def share(self) -> float | None:
        """Return the share of the expected time that has passed, at most 1; None without an earlier start."""
        if self.expected_s is None or self.elapsed_s is None or self.expected_s <= 0:
            return None
        return min(1.0, self.elapsed_s / self.expected_s)

    @property
    def phase_words(self) -> str:
        """Return the phase in words: "weights, phase 3 of 6"; "" if it is not known."""
        number = "" if self.step is None else f"phase {self.step} of {self.steps}"
        return ", ".join(filter(None, (self.phase, number)))

    @property
    def words(self) -> str:
        """Return the phase and the times in words: "weights, phase 3 of 6, 3:10 of ~4:40 last time"."""
        parts = [self.phase_words] if self.phase_words else []
        if self.elapsed_s is None:
            return self.phase_words
        passed = minutes(self.elapsed_s)
        if self.expected_s is None:
            more = f", ~{minutes(self.left_s)} left in it" if self.left_s is not None else ""
            return ", ".join([*parts, f"{passed} since its start"]) + more
        last = f"{minutes(self.expected_s)} last time"
        longer = self.elapsed_s > self.expected_s
        return ", ".join([*parts, f"{passed}, longer than {last}" if longer else f"{passed} of ~{last}"])

    @property
    def short(self) -> str:
        """Return the number of the phase and the times: "3/6 3:10/~4:40"."""
        step = "" if self.step is None else f"{self.step}/{self.steps} "
        passed = "" if self.elapsed_s is None else minutes(self.elapsed_s)
        return f"{step}{passed}" + ("" if self.expected_s is None else f"/~{minutes(self.expected_s)}")


def minutes(seconds: float) -> str:
    """Format seconds as minutes and seconds: "4:40"; with hours from one hour on: "1:02:03"."""
    whole = max(0, round(seconds))
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60}:{rest % 60:02}"


# What holds a server back: the verdict that screens, reports and results of sweeps show in one line.


class LimitKind(StrEnum):
    """What a server would need more of to generate more tokens per second."""

    KV = "KV cache"
    SLOTS = "slots"
    BANDWIDTH = "memory bandwidth"
    PREFILL = "prefill compute"
    DECODE = "decode compute"
    CPU = "one CPU core"
    POWER = "power or clock"
    NETWORK = "network between ranks"
    ROUTER = "router"
    CLIENT = "client"
    CLIENT_OR_ROUTER = "client or router"
    """Too few requests arrive, and the router may hold them back."""
    UNKNOWN = "unknown"


class Limit(Struct, frozen=True):
    """What holds a server back, with the figures that show it."""

    kind: LimitKind
    reason: str
    """The figure and its limit in words; of an unknown limit, what is missing to name it."""
    hint: str | None = None
    """What would help, only where a calculation supports it; else None."""
    value: float | None = None
    """The figure of `reason` as a number; None if there is none."""
    limit: float | None = None
    """The limit that `value` is compared with; None if there is none."""
    unit: str | None = None
    """Unit of `value` and `limit`: "%", "requests", "GB/s" or "MHz"."""
    window_s: float | None = None
    """Seconds that were judged, up to the newest poll."""

    @property
    def title(self) -> str:
        """The kind with the words before it: "limited by slots", or "limit not known"."""
        return "limit not known" if self.kind is LimitKind.UNKNOWN else f"limited by {self.kind.value}"

    @property
    def line(self) -> str:
        """The verdict in one line: "limited by slots, last 30 s: 16 of 16 run, 9 wait on average; …"."""
        return f"{self.title}{', ' if self.judged else ''}{self.judged}: {self.words}"

    @property
    def judged(self) -> str:
        """The seconds that were judged, "last 30 s"; "" if they are not known or the reason names them."""
        span = "" if self.window_s is None else f"{self.window_s:.0f} s"
        return "" if span in self.reason else f"last {span}"

    @property
    def words(self) -> str:
        """The reason and the hint."""
        return self.reason if self.hint is None else f"{self.reason}; {self.hint}"


class BackendState(StrEnum):
    """The state of a backend, by which screens and reports summarize its load."""

    CONNECTING = "connecting"
    """Not polled yet, or no answer yet."""
    UNREACHABLE = "unreachable"
    ENGINE_DEAD = "engine dead"
    """The HTTP server reports that the engine behind it has died (vLLM's 503)."""
    LOADING = "loading"
    ASLEEP = "asleep"
    STUCK = "stuck"
    SUSPECT = "stuck?"
    STILL = "no progress"
    PREEMPTING = "preempting"
    KV_FULL = "KV-full"
    QUEUEING = "queueing"
    STALE = "stale"  # its newest sample through a Prometheus is old
    BUSY = "busy"
    BORED = "bored"
    IDLE = "idle"
    UNKNOWN = "unknown"
    """The server answers, but does not report what the rules for states need."""


_FULL = frozenset({BackendState.PREEMPTING, BackendState.KV_FULL, BackendState.QUEUEING})
"""States of a server that gets more requests than it can run: what a sweep looks for."""


class Quantile(Struct, frozen=True):
    """A quantile estimated from histogram buckets.

    If the buckets only show that the quantile is below or above some value, `seconds` is that value, and
    `below` or `above` is set.
    """

    seconds: float
    """Interpolated in the bucket as histogram_quantile does; its finite edge if `below` or `above` is set."""
    below: bool = False
    """The quantile lies in the first bucket: only "< seconds" is known."""
    above: bool = False
    """The quantile lies beyond the last finite bound: only "> seconds" is known."""
    bucket_s: tuple[float, float] | None = None
    """The edges of its bucket if the upper one is at least twice the lower: no digit of `seconds` is sure."""

    @property
    def bound_sign(self) -> str:
        """The sign before `seconds` where it is only a bound: "<" or ">"; else ""."""
        if self.below:
            return "<"
        return ">" if self.above else ""


_NEAR_MEAN = 0.97
"""Share of the p95 from which on a mean looks like it: both are shown in two or three digits."""


class Latency(Struct, frozen=True):
    """A latency over a time window, from histogram buckets; quantiles are None below 5 observations."""

    mean_s: float | None = None
    """Sum / count of the window, without the error of buckets."""
    p50: Quantile | None = None
    p90: Quantile | None = None
    p95: Quantile | None = None
    p99: Quantile | None = None
    count: float | None = None
    """Observations in the window."""
    window_s: float | None = None
    """Seconds that the window really spans."""
    note: str | None = None
    """Why there is no quantile although there are observations: engine cores have different buckets."""
    slow_s: float | None = None
    """Configured duration from which a quantile is slow; None where none is configured."""

    @property
    def has_long_few(self) -> bool:
        """Whether the mean reaches the p95: a few observations were so long that they make up the mean."""
        if self.mean_s is None or self.p95 is None or self.p95.above:
            return False
        _, shown_s = self.p95.bucket_s or (0.0, self.p95.seconds)
        return self.mean_s >= _NEAR_MEAN * shown_s

    def is_slow(self, quantile: Quantile | None) -> bool:
        """Return whether a quantile of this latency is certainly at or above `slow_s`."""
        if self.slow_s is None or quantile is None or quantile.below:
            return False
        least_s, _ = quantile.bucket_s or (quantile.seconds, None)
        return least_s >= self.slow_s


NO_LATENCY = Latency()


class PrefixUse(Struct, frozen=True):
    """What caches spared a server of its prompts, since its start, summed over engine cores."""

    cache: PrefixCache
    prompts: float | None
    """Prompts whose tokens are in `prompt_tokens`; None where the server does not count them."""
    prompt_tokens: float
    asked_tokens: float
    """Tokens looked up; those of all prompts where the server does not count lookups."""
    cached_tokens: float
    """Tokens found: in its own cache, or in one that servers share."""
    lengths: Histogram | None = None
    """Tokens of finished requests' prompts."""
    lmcache_tokens: tuple[float, float] | None = None
    """Tokens that LMCache was asked for, and found; None without it."""


class BackendHistory(Struct, frozen=True):
    """The metrics of a backend that are drawn over time, as series on one common time axis.

    Token rates cover about 1 s; quantiles and ratios cover the last 60 s, as in `BackendView`. A quantile of
    which only a bound is known is drawn as this bound. Of an engine core, and at every poll, only `running`,
    `waiting` and `generation_tps` are known; other series are empty.
    """

    generation_tps: Series = Series()
    prompt_tps: Series = Series()
    prompt_cached_tps: Series = Series()
    running: Series = Series()
    waiting: Series = Series()
    kv_cache_percent: Series = Series()
    ttft_p50_s: Series = Series()
    ttft_p95_s: Series = Series()
    itl_p50_s: Series = Series()
    itl_p95_s: Series = Series()
    e2e_p50_s: Series = Series()
    e2e_p95_s: Series = Series()
    queue_p50_s: Series = Series()
    queue_p95_s: Series = Series()
    prefix_cache_hit_percent: Series = Series()
    spec_decode_accept_percent: Series = Series()
    tokens_per_step: Series = Series()
    step_ms: Series = Series()
    preemptions_per_s: Series = Series()
    estimated_read_gb_per_s: Series = Series()


class LaneView(Struct, frozen=True):
    """The metrics of one engine core (data-parallel rank, "lane") of a backend."""

    lane: str
    running: float | None = None
    waiting: float | None = None
    kv_cache_percent: float | None = None
    generation_tokens: float | None = None
    """Since the server's start."""
    history: BackendHistory | None = None
    """None for a server with one engine core: the server's own history is the same."""


class BackendView(Struct, frozen=True, eq=False):
    """A backend as screens and reports show it; after a failed poll, with its last known values."""

    name: str
    url: str
    group: str
    """Name of the backend's group, whose backends serve one model behind one router and share a scale."""
    role: str | None = None
    """"prefill" or "decode" where the server reports it, or its token counters show that it does only that.
    Another word that the server reports, such as the name of its component, or None."""
    state: BackendState = BackendState.CONNECTING
    state_rule: str = "no answer yet"
    """The rule that decided the state, in words with its numbers."""
    progress: ProgressView | None = None
    state_window_s: float | None = None
    """Seconds over which the state was judged; None where the current values give the same state."""
    loading: Loading | None = None
    start_memory: StartMemory | None = None
    failure: Failure | None = None
    """Why the newest poll failed; None while it succeeds."""
    failing_since: datetime | None = None  # UTC; when the current run of failures began
    age_s: float | None = None  # since the last good sample; None when there never was one
    scrape: Scrape | None = None  # the Prometheus that it is read from; None where it is polled
    engine: str | None = None
    version: str | None = None
    model: str | None = None
    max_model_len: int | None = None
    nodes: tuple[str, ...] = ()
    slots: int | None = None
    lanes: tuple[LaneView, ...] = ()
    lanes_balance: Balance | None = None
    """The verdict on its lanes, if the backend is in a group, whose verdict counts first."""
    running: float | None = None
    waiting: float | None = None
    waiting_for_capacity: float | None = None
    """Waiting requests that would run if the engine had a free place; part of `waiting`."""
    kv_cache_percent: float | None = None
    kv_fullest_percent: float | None = None
    """Of the engine core with the fullest KV cache: its requests wait even if other cores have room."""
    kv_capacity_tokens: float | None = None
    prompt_tps: float | None = None
    """Prompt tokens per second over 10 s, without cached ones where the server distinguishes them."""
    prompt_cached_tps: float | None = None
    """Prompt tokens per second from a cache, over 10 s; None where `prompt_tps` includes them."""
    generation_tps: float | None = None  # over 10 s
    generation_tps_1s: float | None = None  # over `live_window_s`: 1 s, or more between slower samples
    live_window_s: float | None = None
    """Seconds that the newest rates cover; None where they are the server's own gauge, or unknown."""
    rate_window_s: float | None = None
    """Seconds that the rates over 10 s really cover, fewer after a start; None where they are too few."""
    rate_note: str | None = None
    """Of the generation rates: "per finished request" where the counter moves only at a request's end."""
    page_note: str | None = None
    """What is wrong with its page: impossible figures, or "the page changes every 5 s", as of a cache."""
    page_every_s: float | None = None
    """Seconds between two changes of a page from a cache; None of a live page, or while unknown."""
    requests_per_s: float | None = None
    preemptions_per_s: float | None = None
    prefix_cache_hit_percent: float | None = None
    spec_decode_accept_percent: float | None = None
    spec_accepted_per_draft: float | None = None  # mean, over 60 s
    spec_drafts_per_s: float | None = None  # over 10 s
    spec_draft_length: float | None = None  # mean tokens in a draft, over 10 s
    tokens_per_step: float | None = None
    """Mean tokens per engine step, prompt and generated, over 60 s."""
    steps_per_s: float | None = None
    """Engine steps per second over 10 s, summed over engine cores."""
    step_ms: float | None = None
    """Mean duration of an engine step over 10 s; None unless every engine core had requests all the time."""
    best_step_ms: float | None = None
    """The best such time of this session at this batch; None while the batch varies or is new."""
    spec_accept_by_position: tuple[float | None, ...] = ()
    """Percentage of drafts whose token was accepted, by position in the draft, over 60 s."""
    spec_verdict: str | None = None
    """Why drafts are too long or not worth their time (finding "draft-length"); None unless shown."""
    counter_figures: Mapping[str, float | None] = {}
    """Values of the metrics in `COUNTER_FIGURES`, by name."""
    estimated_read_gb_per_s: float | None = None  # over 10 s, summed over engine cores
    roofline_percent: float | None = None
    """`estimated_read_gb_per_s` as a percentage of the memory bandwidth, where that is known (GB10)."""
    yardstick_basis: YardstickBasis = YardstickBasis()
    """What its decode rate is compared with."""
    capture_sizes: tuple[int, ...] | None = None
    """Batch sizes with a captured CUDA graph, as configured for this server; empty: none."""
    roofline_tps: float | None = None
    """Tokens per second of a single request that the memory bandwidth allows, where known."""
    ttft: Latency = NO_LATENCY
    itl: Latency = NO_LATENCY
    e2e: Latency = NO_LATENCY
    queue: Latency = NO_LATENCY
    tpot: Latency = NO_LATENCY
    """Per request: time after the first token, divided by the number of tokens after the first."""
    prefill: Latency = NO_LATENCY
    decode: Latency = NO_LATENCY
    prompt_tokens: float | None = None
    """Counter since the server's start, summed over engine cores, like the next two fields."""
    generation_tokens: float | None = None
    preemptions: float | None = None
    finished: Mapping[str, float] = {}
    limited_by: Limit | None = None
    """What holds the server back; None while that is not judged."""
    findings: tuple[Finding, ...] = ()
    client: tuple[int, int] | None = None
    """As in `EngineSample`."""
    prefix: PrefixUse | None = None
    """None where it is not known whether its prefix cache is on, or what that found."""
    responses: float | None = None
    """Requests of the Responses API that it has accepted since its start: those in the background run without
    a connection. None where it does not count them."""
    in_sweep: bool = False
    """Whether a sweep of this program loads the server, on purpose."""
    restarts: int = 0  # since the first sample
    start_time: float | None = None
    """The server process's start as Unix time, where it is reported."""
    uptime_s: float | None = None  # from `start_time` to now, by the local clock
    poll_ms: float | None = None  # of the last poll, from request to last byte
    history: BackendHistory = BackendHistory()
    ranks: RanksView | None = None
    """What NCCL answered about its ranks; None if it was not asked."""
    load: BackendHistory | None = None
    """The load at every poll, where `history` has one point per interval; None before the first poll."""

    @property
    def ok(self) -> bool:
        """Whether the newest poll of the backend succeeded; False before the first."""
        return self.failure is None and self.age_s is not None

    @property
    def yardsticks(self) -> Values:
        """Its decode rate beside its yardsticks, as "own_best_percent"; empty where nothing is known now."""
        evidence = (finding.values for finding in self.findings if finding.kind == FindingKind.YARDSTICKS)
        return next(evidence, {}) if self.failure is None else {}

    @property
    def is_full_by_sweep(self) -> bool:
        """Whether a sweep of this program explains why requests wait, are preempted or fill the KV cache."""
        return self.in_sweep and self.state in _FULL

    @property
    def state_word(self) -> str:
        """The state; "long step" for a server that is busy without progress."""
        is_long = self.state is BackendState.BUSY and self.progress is not None
        return self.progress.word.value if self.progress is not None and is_long else self.state.value

    @property
    def is_state_past(self) -> bool:
        """Whether the state is one of the last `state_window_s`, not of this moment.

        "bored" has nothing to add: it means little or no work now, and some in these seconds. A state that a
        sweep of this program causes is marked instead.
        """
        is_past = self.state_window_s is not None and self.state is not BackendState.BORED
        return is_past and not self.is_full_by_sweep

    @property
    def state_text(self) -> str:
        """The state; "queueing lately" where it is past, "queueing (sweep)" where a sweep causes it."""
        if self.is_full_by_sweep:
            return f"{self.state_word} (sweep)"
        return f"{self.state_word} lately" if self.is_state_past else self.state_word


class NodeHistory(Struct, frozen=True):
    """The metrics of a node that are drawn over time, as series."""

    cpu_percent: Series = Series()
    gpu_percent: Series = Series()
    """Mean over the node's GPUs."""
    memory_percent: Series = Series()
    power_w: Series = Series()
    """Sum over the node's GPUs."""
    rx_bytes_per_s: Series = Series()
    """Sum over interfaces that are up; without bridges, tunnels and RDMA, which carry the same bytes."""
    tx_bytes_per_s: Series = Series()
    temperature_c: Series = Series()
    """Of the node's hottest GPU."""
    sm_clock_mhz: Series = Series()
    """Mean over the node's GPUs."""
    headroom_gib: Series = Series()
    """Memory that programs can still allocate."""
    throttled_percent: Series = Series()
    """Percent of the time in which a GPU was throttled, for the reason and GPU with the highest share."""
    rdma_rx_bytes_per_s: Series = Series()
    """Sum over RDMA ports; not included in `rx_bytes_per_s`."""
    rdma_tx_bytes_per_s: Series = Series()
    swap_in_bytes_per_s: Series = Series()


QUIET_SPEEDS = frozenset({"unknown", "idle", "normal"})
"""Words of a `SpeedState` that need no attention."""


class SpeedState(Struct, frozen=True):
    """The verdict on whether a node's GPU runs as fast as it should under its load."""

    word: str = "unknown"
    """"unknown", "idle", "normal", "throttled", "slow clock" or "slow steps"."""
    reason: str = ""
    """The rule that decided `word`, with its numbers."""
    cause: str | None = None
    """The most likely cause; None where all is well."""
    fix: str | None = None
    """What the user can do about it."""

    @property
    def title(self) -> str:
        """The word where nothing beside it says what it is about: "GPU idle", "clock normal"."""
        titles = {"idle": "GPU idle", "normal": "clock normal", "throttled": "GPU throttled"}
        return titles.get(self.word, self.word)

    @property
    def unthrottled(self) -> str:
        """What is said of the GPU while its driver reports no reason to throttle it."""
        return "no reason given" if self.word == "slow clock" else "not throttled"


class Headroom(Struct, frozen=True):
    """How fast a node's headroom (allocatable memory) shrinks, and when it reaches the critical limit."""

    slope_bytes_per_s: float | None = None
    """Change of headroom over the last minutes; None where it cannot be distinguished from noise."""
    window_s: float | None = None
    """Seconds over which the slope was measured, or looked for; None while they are too few."""
    until_limit_s: float | None = None
    """Seconds until the critical limit at this pace; None when headroom does not fall."""
    limit_bytes: int | None = None
    """The critical limit that `until_limit_s` refers to."""


class EngineProcess(Struct, frozen=True):
    """A process on a node's GPU that belongs to an inference engine."""

    pid: int
    name: str
    engine: str
    backend: str | None = None
    """The watched backend that it most likely serves; None when that is unknown."""


class NodeView(Struct, frozen=True, eq=False):
    """A node (machine) as screens and reports show it; after a failed poll, with its last known values."""

    name: str
    via: str
    """How the node is read: "local", "agent", "ssh" or "prometheus"."""
    sample: NodeSample | None = None  # the newest good one
    identity: NodeIdentity = NodeIdentity()
    failure: Failure | None = None
    failing_since: datetime | None = None
    age_s: float | None = None
    history: NodeHistory = NodeHistory()
    speed: SpeedState = SpeedState()
    headroom: Headroom = Headroom()
    engine_processes: tuple[EngineProcess, ...] = ()
    throttled_percent: Mapping[str, float] = {}
    """Percent of the last minute by throttle reason, of the GPU with the highest share."""
    gpus_lost: tuple[LostGpu, ...] = ()
    """GPUs that do not answer, although the driver lists them or earlier samples had them."""
    findings: tuple[Finding, ...] = ()
    scrape: Scrape | None = None  # the Prometheus that its samples come from

    @property
    def gpus(self) -> tuple[GpuReading, ...]:
        """The GPUs of the newest good sample; empty without one."""
        return self.sample.gpus if self.sample is not None else ()

    @property
    def ok(self) -> bool:
        """Whether the newest poll of the node succeeded; False before the first."""
        return self.failure is None and self.age_s is not None

    def process_of(self, backend: str) -> EngineSetup | None:
        """Return the process of a server here: that of a rank which has loaded NCCL, if one has."""
        others = {process.pid for process in self.engine_processes if process.backend not in {None, backend}}
        processes = () if self.identity.setup is None else self.identity.setup.engines
        own = [process for process in processes if process.pid not in others]
        return next((process for process in own if process.nccl is not None), own[0] if own else None)


NODE_INTERVALS = 2.0
"""Poll interval of nodes as a multiple of that of backends, because values of nodes change more slowly."""


class Snapshot(Struct, frozen=True, eq=False):
    """The state of all watched servers and machines at one time."""

    taken_at: datetime
    """UTC."""
    at: float
    """Time of the snapshot in monotonic seconds: the right edge of every graph."""
    interval_s: float  # seconds between two samples of a backend
    node_interval_s: float  # the same of a node
    nodes: tuple[NodeView, ...] = ()
    backends: tuple[BackendView, ...] = ()
    routers: tuple[RouterView, ...] = ()
    fleets: tuple[FleetView, ...] = ()  # one for each Prometheus
    balance: tuple[Balance, ...] = ()
    """One entry for each group of two or more backends, or of engine cores of one server."""
    alerts: tuple[Alert, ...] = ()
    events: tuple[Event, ...] = ()
    """Newest last."""
    totals: Totals = NO_TOTALS
    self_cost: SelfView = NO_COST
    simulated: bool = False
    searching: tuple[str, ...] = ()  # hosts whose usual ports are tried: no server was found there yet
    thresholds: StateThresholds = StateThresholds()  # by which states of backends are judged

    @property
    def poll_seconds(self) -> tuple[str, ...]:
        """The shortest and the longest time between two polls of a server, in s, as text; one if they agree.

        Groups whose balance is judged may be polled oftener than `interval_s`.
        """
        times = {group.poll_s for group in self.balance if group.poll_s is not None}
        ordered = sorted({self.interval_s, *times})
        return tuple(dict.fromkeys(f"{seconds:g}" for seconds in (ordered[0], ordered[-1])))

    @property
    def watched_s(self) -> float | None:
        """Seconds from the oldest reading of a server or machine that is kept; None without a reading."""
        histories = (
            *(view.history.running for view in self.backends),
            *(view.history.cpu_percent for view in self.nodes),
        )
        begins = [series.first_at for series in histories if series.first_at is not None]
        return self.at - min(begins) if begins else None

    def finding_of(self, alert: Alert) -> Finding | None:
        """Return the finding that an alert is about; None if it is about none."""
        views: tuple[BackendView | NodeView, ...] = (*self.backends, *self.nodes)
        findings = (finding for view in views for finding in view.findings)
        return next((finding for finding in findings if finding.alert_id == alert.id), None)

    @property
    def events_beside_alerts(self) -> tuple[Event, ...]:
        """The events for a list below that of the alerts, newest last.

        An alert says since when it holds, and what holds now: the event of its begin is left out; where that
        counts earlier alerts too, only the number is told.
        """
        active = {alert.id for alert in self.alerts}
        shown = (
            replace(event, message=event.counted, values={})
            if event.about in active and event.phase is Phase.BEGIN
            else event
            for event in self.events
            if event.count > 1 or event.phase is not Phase.BEGIN or event.about not in active
        )
        return tuple(sorted(shown, key=lambda event: event.since))


class Situation(Struct, frozen=True, eq=False):
    """Servers, machines and routers as they are now, by name."""

    at: float
    """Monotonic seconds."""
    wall: datetime
    """UTC."""
    backends: Mapping[str, BackendView] = {}
    nodes: Mapping[str, NodeView] = {}
    routers: tuple[RouterView, ...] = ()
    starts: tuple[PastStart, ...] = ()
    """Earlier starts of servers."""
    thresholds: NodeThresholds = NodeThresholds()
    """The user's limits of alerts."""


class Rule(Protocol):
    """Finds one kind of trouble; may keep what it saw before."""

    def look(self, now: Situation) -> Iterable[Finding]:
        """Return what holds now; called once a second, with situations in the order of time."""
        ...


class ServerRule(Protocol):
    """Finds one kind of trouble of one server, of which it keeps what it saw before."""

    def look(self, now: Situation, view: BackendView) -> Iterable[Finding]:
        """Return what holds now of the server; called as `Rule.look`."""
        ...


class EachServer:
    """A rule about servers: an object of its own judges each, until the server is not watched any more."""

    def __init__(self, make: Callable[[], ServerRule]) -> None:
        """Judge each server by what `make` returns for it."""
        self._make = make
        self._servers: dict[str, ServerRule] = {}

    def servers(self, now: Situation) -> Mapping[str, ServerRule]:
        """Return the rule of each server that is watched now, by its name: a new server gets one."""
        self._servers = {name: self._servers.get(name) or self._make() for name in now.backends}
        return self._servers

    def look(self, now: Situation) -> Iterator[Finding]:
        """Yield what holds now of each server."""
        for name, rule in self.servers(now).items():
            yield from rule.look(now, now.backends[name])
