"""The states of servers and machines, walls of them, and the summary of a snapshot in one line.

A *wall* is the view of many servers and machines by group, the worst first.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from heapq import nlargest
from operator import itemgetter

from msgspec import Struct, field

from sparktop.analysis.speed_state import IDLE_PERCENT
from sparktop.model.balance import Balance, BalanceWord, balance_cost, leading
from sparktop.model.event import Alert, Progress, ProgressView, Severity, condition_of, kind_of
from sparktop.model.failure import Failure, FailureKind, failure_words
from sparktop.model.known import known_max, known_mean
from sparktop.model.router import Fleet, FleetNode, FleetServer, Sum, stale_s
from sparktop.model.snapshot import BackendState, BackendView, Limit, LimitKind, NodeView, Snapshot
from sparktop.model.targets import StateThresholds

# A state may be judged over the last seconds while the values shown beside it are current: requests waited
# in most of these seconds, but none waits now. Such a state carries the length of its time window, so that
# a reader never sees "queueing" beside 0 waiting, or "idle" beside a token rate, without an explanation.


GRAVITY = (
    BackendState.UNREACHABLE,
    BackendState.ENGINE_DEAD,
    BackendState.STUCK,
    BackendState.SUSPECT,
    BackendState.PREEMPTING,
    BackendState.KV_FULL,
    BackendState.STILL,
    BackendState.QUEUEING,
    BackendState.STALE,
    BackendState.LOADING,
    BackendState.CONNECTING,
    BackendState.BUSY,
    BackendState.BORED,
    BackendState.IDLE,
    BackendState.ASLEEP,
    BackendState.UNKNOWN,
)
"""The states of servers, the worst first: the order of walls, and of lists that are sorted by state."""
_LEAST_WINDOW_S = 1.0
"""A shorter window is shown as this many seconds; one of a single sample has no length."""
_LEAST_QUEUED = 0.5
"""Part of the state's window that must be known before requests that no longer wait are called a queue."""
_FAILED = {
    FailureKind.LOADING: BackendState.LOADING,
    FailureKind.ENGINE_DEAD: BackendState.ENGINE_DEAD,
    # It serves but reports no metrics: "unreachable" would suggest the wrong fault.
    FailureKind.METRICS_DISABLED: BackendState.UNKNOWN,
    FailureKind.OTHER_PROGRAM: BackendState.UNKNOWN,
    FailureKind.LATE: BackendState.STALE,
}
"""The state of a backend by the failure of its newest poll; any other failure makes it unreachable."""

_AT_WORK = frozenset(LimitKind) - {
    LimitKind.CLIENT,
    LimitKind.CLIENT_OR_ROUTER,
    LimitKind.ROUTER,
    LimitKind.UNKNOWN,
}
"""Limits of an engine that computes all the time, however few requests run: it is busy, not bored."""
_STOPPED = {
    Progress.STILL: BackendState.STILL,
    Progress.SUSPECT: BackendState.SUSPECT,
    Progress.STUCK: BackendState.STUCK,
}
"""The state of a backend by what is known of its standstill."""
USUAL = StateThresholds()
_LOADED = {BackendState.QUEUEING, BackendState.BUSY}
_AT_REST = {BackendState.BORED, BackendState.IDLE}
"""States that an engine in a long step does not have: it is busy."""


class LoadFigures(Struct, frozen=True):
    """The values of one backend that its state is judged by; None for a value that is unknown."""

    seen: bool = False
    """True once the backend has answered any poll."""
    failure: Failure | None = None
    """Failure of the newest poll; None if it succeeded."""
    asleep: bool | None = None
    progress: ProgressView | None = None
    """A standstill of the engine; None while it makes progress or holds no request."""
    preemptions: float | None = None
    """Preemptions in the window, or where it has one sample, in `preempted_s`."""
    preempted_s: float | None = None
    """Seconds in which preemptions were counted."""
    window_s: float = 0.0
    """Seconds from the first sample of the window to the newest."""
    kv_cache_percent: float | None = None
    swa_percent: float | None = None
    """Use of the pool of sliding-window layers, which holds tokens as the KV cache does."""
    states_percent: float | None = None
    """Use of the pool of states, one for a request, of layers such as Mamba's."""
    waiting: float | None = None
    waiting_share: float | None = None
    """Share of the window's samples with requests waiting, 0 to 1."""
    running: float | None = None
    running_mean: float | None = None
    """Mean of running requests over the window's samples."""
    tokens_moved: bool = False
    """True while a token rate that is shown beside the state is above 0."""
    slots: int | None = None
    prefill_s: float | None = None
    """Seconds up to now in which it has only computed prompts; None while it generates tokens."""
    limit: LimitKind | None = None
    """What holds the server back; None while that is not judged."""
    note: str | None = None
    """Why the server reports no more, as its reader explains it."""


class JudgedState(Struct, frozen=True):
    """The state of a backend with its explanation."""

    state: BackendState
    rule: str
    """The rule behind the state as a text with its numbers, or the failure's message."""
    window_s: float | None = None
    """The seconds that the state covers, where the newest values alone would give another state; else
    None."""


def backend_state(load: LoadFigures, thresholds: StateThresholds) -> JudgedState:
    """Return the first state of a backend whose rule is met, with its explanation.

    The order: unreachable, engine dead or loading (by the failure of the newest poll), connecting, asleep,
    by its standstill (stuck, "stuck?", no progress, or busy with a long step), preempting, KV-full, queueing,
    unknown (running requests are not reported), busy, bored, idle.
    """
    if load.failure is not None:
        return JudgedState(_FAILED.get(load.failure.kind, BackendState.UNREACHABLE), load.failure.message)
    if not load.seen:
        return JudgedState(BackendState.CONNECTING, "no answer yet")
    if load.asleep:
        return JudgedState(BackendState.ASLEEP, "the engine sleeps")
    judged = _state_by_load(load, thresholds)
    states = load.states_percent
    if states is not None and states >= thresholds.kv_full_percent and judged.state in _LOADED:
        rule = f"{judged.rule}; states {states:.0f} % full: they limit requests, not tokens"
        judged = JudgedState(judged.state, rule, judged.window_s)
    return judged if load.progress is None else _state_without_progress(load.progress, judged)


def scraped_state(
    server: FleetServer, late_at: float = -math.inf, thresholds: StateThresholds = USUAL
) -> BackendState:
    """Return the state of a server on the wall of a Prometheus, by the rules of one that is polled.

    Its newest gauges decide, beside preemptions since the scrape before; those of scrapes before `late_at`
    (monotonic seconds) are stale.
    """
    if server.down:
        return BackendState.UNREACHABLE
    if server.at is not None and server.at < late_at:
        return BackendState.STALE
    load = LoadFigures(
        seen=True,
        preemptions=server.preemptions_per_s,
        kv_cache_percent=server.kv_cache_percent,
        waiting=server.waiting,
        waiting_share=1.0 if server.waiting else 0.0,
        running=server.running,
        tokens_moved=any((server.generation_tps, server.prompt_tps)),
    )
    return backend_state(load, thresholds).state


def _state_without_progress(progress: ProgressView, judged: JudgedState) -> JudgedState:
    """Return the state of an engine without progress; `judged` is its state by its requests."""
    still = progress.word is Progress.STILL
    fact = f"nothing has moved for {progress.seconds:.0f} s" if still else progress.fact
    reason = f"{fact} ({progress.why})" if progress.why else fact
    if progress.word in _STOPPED:
        return JudgedState(_STOPPED[progress.word], reason)
    state = BackendState.BUSY if judged.state in _AT_REST else judged.state
    return JudgedState(state, f"{reason}; {judged.rule}")


def _state_by_load(load: LoadFigures, thresholds: StateThresholds) -> JudgedState:
    """Return the state of a backend that answers and is awake, by its requests and their KV cache."""
    short = _short_of_room(load, thresholds)
    if short is not None:
        return short
    if load.running is None:
        reason = load.note or "it does not report how many requests run"
        return JudgedState(BackendState.UNKNOWN, reason)
    return _state_by_requests(load.running, load, thresholds)


def _short_of_room(load: LoadFigures, thresholds: StateThresholds) -> JudgedState | None:
    """Return the state preempting, KV-full or queueing, the first whose rule is met; None if none is."""
    window = _window_text(load)
    if load.preemptions is not None and load.preemptions > 0:
        plural = "" if load.preemptions == 1 else "s"
        when = f"{'in' if load.window_s else 'before'} {window}"
        if load.preempted_s and not load.window_s:
            when = f"in the last {load.preempted_s:.0f} s"
        return JudgedState(BackendState.PREEMPTING, f"{load.preemptions:.0f} preemption{plural} {when}")
    kv_percent = load.kv_cache_percent
    if kv_percent is not None and kv_percent >= thresholds.kv_full_percent:
        rule = f"KV cache {kv_percent:.1f} % full, at or above {thresholds.kv_full_percent:g} %"
        return JudgedState(BackendState.KV_FULL, rule)
    swa = load.swa_percent
    if swa is not None and swa >= thresholds.kv_full_percent:
        rest = "" if kv_percent is None else f", that of full attention {kv_percent:.0f} %"
        return JudgedState(BackendState.KV_FULL, f"SWA pool {swa:.1f} % full{rest}")
    seen = load.waiting or load.window_s >= _LEAST_QUEUED * thresholds.window_s
    if seen and load.waiting_share and load.waiting_share >= thresholds.queueing_share:
        now = "" if load.waiting is None else f", {load.waiting:.0f} now"
        share = f"{100 * load.waiting_share:.0f} % of " if load.window_s else ""
        rule = f"requests waited in {share}{window}{now}"
        return JudgedState(BackendState.QUEUEING, rule, None if load.waiting else load.window_s)
    return None


def _state_by_requests(running: float, load: LoadFigures, thresholds: StateThresholds) -> JudgedState:
    """Return the state busy, bored or idle of a backend, by its requests, with an explanation.

    A backend at which requests wait now is busy, and so is one whose steps, machine or network limit it. If
    no request runs now, the mean of the last seconds decides. If no request ran in these seconds either, the
    backend is bored if tokens were generated, else idle.
    """
    if load.waiting:
        of_slots = f" of {load.slots} slots" if load.slots else ""
        rule = f"{_count_text(load.waiting)} waiting now, beside {_count_text(running)} running{of_slots}"
        return JudgedState(BackendState.BUSY, rule)
    if running > 0:
        state, rule = _busy_or_bored(running, load, thresholds)
        return JudgedState(state, rule)
    window = _window_text(load)
    if load.running_mean:
        state, rule = _busy_or_bored(load.running_mean, load, thresholds)
        return JudgedState(state, f"{rule}; mean of {window}, none now", load.window_s)
    if load.tokens_moved:
        when = f"{'in' if load.window_s else 'before'} {window}"
        rule = f"tokens came {when}, in requests too short to be seen running"
        return JudgedState(BackendState.BORED, rule, load.window_s or None)
    return JudgedState(BackendState.IDLE, f"no request ran in {window}")


def _busy_or_bored(
    running: float, load: LoadFigures, thresholds: StateThresholds
) -> tuple[BackendState, str]:
    """Return (busy or bored, the rule that decided as text) for a number of running requests.

    `running` is compared with the requests that the server can run at once, or if this is unknown with a
    fixed number. With fewer requests it is busy too while it computes a long prompt, or if the engine itself
    is known to be the limit.
    """
    slots = load.slots
    enough = slots * thresholds.busy_share if slots else thresholds.busy_running
    said = f"running {_count_text(running)} of {slots} slots" if slots else f"running {_count_text(running)}"
    if running < enough and load.prefill_s is not None:
        reason = f"prefill: no token in the last {load.prefill_s:.0f} s while its KV cache fills"
        return BackendState.BUSY, f"{said}, {reason}"
    if running < enough and load.limit in _AT_WORK:
        return BackendState.BUSY, f"{said}, limited by {load.limit}"
    rule = f"{said}; busy from {enough:g}{'' if slots else ' (slots unknown)'}"
    return (BackendState.BUSY if running >= enough else BackendState.BORED), rule


def _window_text(load: LoadFigures) -> str:
    """Return the window in words: samples of a Prometheus are often further apart than it is long."""
    return f"the last {max(load.window_s, _LEAST_WINDOW_S):.0f} s" if load.window_s else "the newest sample"


def limit_to_show(limit: Limit | None, state: BackendState) -> Limit | None:
    """Return what holds a backend back, except a limit of work that an idle backend no longer has.

    The verdict on the limit covers more seconds than the state.
    """
    if limit is not None and state is BackendState.IDLE and limit.kind in _AT_WORK:
        return None
    return limit


def _count_text(value: float) -> str:
    """Format a number: without decimals if it is an integer, else with one decimal."""
    return f"{value:.0f}" if value == round(value) else f"{value:.1f}"


# Servers and machines by group, the worst first, and lists of the worst: what a wall of hundreds shows.


Server = FleetServer | BackendView
"""An inference server on a wall: one that is polled, or one that a Prometheus scrapes."""
STALE = "stale"
"""The state of a server whose newest figures are old, although nothing failed."""
NO_GPU = "no GPU"
"""The state of a machine that answers and has no GPU."""
NODE_GRAVITY = (
    "unreachable",
    "GPU lost",
    "low memory",
    "slow clock",
    "slow steps",
    "throttled",
    "hot",
    "busy",
    "idle",
    NO_GPU,
    "unknown",
)
"""The states of machines, the worst first."""
_RANKS: dict[str, int] = {state.value: rank for rank, state in enumerate(GRAVITY)}
_NODE_RANKS = {state: rank for rank, state in enumerate(NODE_GRAVITY)}
DOWN = frozenset({"unreachable", "engine dead", "stuck"})
"""States of servers that serve nobody."""
SLOW = frozenset({"slow clock", "slow steps", "throttled"})
"""States of machines whose GPU is slower than its load explains."""
MOST_LISTED = 100
"""Most servers in a list of the worst."""
_SILENT = frozenset({"unreachable", "engine dead", STALE})
"""States of servers whose figures are not those of now."""
_SHORT_OF_KV = frozenset({"preempting", "KV-full"})
"""States of servers whose KV cache is too small for their load."""
_LATE_POLLS, _LATE_S = 3.0, 5.0
"""Figures of servers that are polled are stale after this many polls, and not before `_LATE_S`."""
_MEMORY_ALERTS, _HEAT_ALERTS = frozenset({"headroom", "headroom-limit"}), frozenset({"thermal"})
"""Kinds of alerts by which a machine is "low memory" or "hot"."""


class Top(StrEnum):
    """The lists of the worst servers or machines, by what makes them the worst."""

    WAITING = "most waiting"
    KV = "fullest KV"
    TTFT = "slowest TTFT p95"
    CLOCK = "slow clock"


class Stated(Struct, frozen=True):
    """A server with its state in a word, which for stale figures differs from the last one reported."""

    server: Server
    state: str

    @property
    def rank(self) -> int:
        """The place of its state in `GRAVITY`: 0 is the worst."""
        return _RANKS.get(self.state, len(_RANKS))

    @property
    def is_current(self) -> bool:
        """Whether its figures are those of now: it answers, and its newest sample is not old."""
        return self.state not in _SILENT and (
            isinstance(self.server, FleetServer) or self.server.failure is None
        )


class WallGroup(Struct, frozen=True, eq=False):
    """The servers of one group, the worst first, with sums and extremes of what is known of them."""

    name: str
    servers: tuple[Stated, ...]
    counts: Mapping[str, int]
    """Number of servers by state, the worst first."""
    balance: Balance | None = None
    """The verdict on how evenly the group is loaded; None where it is not judged."""
    running: Sum = Sum()
    waiting: Sum = Sum()
    generation_tps: Sum = Sum()
    kv_percent: float | None = None
    """Of the fullest server."""
    ttft_p95_s: float | None = None
    """Of the slowest server."""

    @property
    def states(self) -> list[str]:
        """The states of its servers, the worst first."""
        return [server.state for server in self.servers]

    @property
    def badness(self) -> tuple[float, ...]:
        """A sort key: first what is down, then a bad verdict, a full KV cache, and waiting requests.

        Waiting requests count by powers of two, so that groups do not change places at every poll.
        """
        down = sum(count for state, count in self.counts.items() if state in DOWN)
        full = sum(count for state, count in self.counts.items() if state in _SHORT_OF_KV)
        waits = int(self.waiting.value or 0).bit_length()
        return (-down, -verdict_rank(self.balance), -full, -waits)


class Wall(Struct, frozen=True, eq=False):
    """All servers and machines that a wall shows, after its filter."""

    groups: tuple[WallGroup, ...]
    """The groups, the worst first."""
    nodes: tuple[FleetNode, ...] = ()
    """The machines, the worst first."""
    total: int = 0
    """Servers before the filter."""
    total_nodes: int = 0
    """Machines before the filter."""
    tops: Mapping[Top, tuple[tuple[Stated, float], ...]] = field(default_factory=dict)
    """By list of servers: at most `MOST_LISTED` servers with the highest figures, and these figures."""

    @property
    def count(self) -> int:
        """Number of servers."""
        return sum(len(group.servers) for group in self.groups)

    @property
    def slow_nodes(self) -> list[FleetNode]:
        """The machines whose GPU is slower than its load explains, the worst first."""
        return [node for node in self.nodes if node.state in SLOW]

    def group(self, name: str) -> WallGroup | None:
        """Return the group of a name; None if there is none."""
        return next((group for group in self.groups if group.name == name), None)


def verdict_rank(balance: Balance | None) -> int:
    """Return how bad a verdict on a group's balance is: 0 where it calls for no action."""
    if balance is None or not balance.bad:
        return 0
    return 2 if balance.word in {BalanceWord.OSCILLATING, BalanceWord.STARVED} else 1


def wall_of(snapshot: Snapshot, words: str = "") -> Wall:
    """Return the wall of all servers and machines that are watched directly, filtered by `words`."""
    late_s = max(_LATE_POLLS * snapshot.interval_s, _LATE_S)
    result = [Stated(backend, _state_word(backend, late_s)) for backend in snapshot.backends]
    balances = {one.group: one for one in snapshot.balance if one.lanes_of is None}
    by_member = {name: balance for balance in balances.values() for name in balance.backends}
    kept = _filter_servers(result, words)
    groups = _wall_groups(kept, balances, by_member)
    alerted = _alert_kinds_by_node(snapshot)
    nodes = [node_of(view, alerted.get(view.name, frozenset())) for view in snapshot.nodes]
    return Wall(groups, _filter_nodes(nodes, words), len(result), len(nodes), _top_lists(kept))


def wall_of_fleet(fleet: Fleet, words: str = "", thresholds: StateThresholds = USUAL) -> Wall:
    """Return the wall of all servers and machines that a Prometheus scrapes, filtered by `words`."""
    late_at = fleet.late_at
    result = [Stated(server, scraped_state(server, late_at, thresholds).value) for server in fleet.servers]
    kept = _filter_servers(result, words)
    nodes = _filter_nodes(fleet.nodes, words)
    return Wall(_wall_groups(kept, {}, {}), nodes, len(result), len(fleet.nodes), _top_lists(kept))


def _wall_groups(
    servers: Iterable[Stated], balances: Mapping[str, Balance], by_member: Mapping[str, Balance]
) -> tuple[WallGroup, ...]:
    found: dict[str, list[Stated]] = {}
    for server in servers:
        found.setdefault(server.server.group, []).append(server)
    groups = [
        _wall_group(name, members, balances.get(name) or by_member.get(members[0].server.name))
        for name, members in found.items()
    ]
    return tuple(sorted(groups, key=lambda group: (group.badness, group.name)))


def _wall_group(name: str, servers: Sequence[Stated], balance: Balance | None) -> WallGroup:
    known = [server.server for server in servers if server.is_current and server.state not in DOWN]

    def gravity(one: Stated) -> tuple[float, ...]:
        load = (
            ()
            if one.state in DOWN or not one.is_current
            else (-(one.server.waiting or 0.0), -(one.server.running or 0.0))
        )
        return (one.rank, *load)

    def total(of: Callable[[Server], float | None]) -> Sum:
        """Return a sum over the servers, a lower bound where some are down or late, as in the top line."""
        return Sum.of_values(map(of, known), absent=len(servers) - len(known))

    ordered = tuple(sorted(servers, key=gravity))
    return WallGroup(
        name,
        ordered,
        Counter(one.state for one in ordered),
        balance,
        total(lambda one: one.running),
        total(lambda one: one.waiting),
        total(lambda one: one.generation_tps),
        known_max(map(kv_percent, known)),
        known_max(map(ttft_s, known)),
    )


def kv_percent(server: Server) -> float | None:
    """Return the used share of the KV cache in percent, of the fullest engine core where that is known."""
    fullest = None if isinstance(server, FleetServer) else server.kv_fullest_percent
    return server.kv_cache_percent if fullest is None else fullest


def ttft_s(server: Server) -> float | None:
    """Return the 95 % quantile of the time to first token in seconds; its bound where only that is known."""
    if isinstance(server, FleetServer):
        return server.ttft_p95_s
    return None if server.ttft.p95 is None else server.ttft.p95.seconds


def _state_word(view: BackendView, late_s: float) -> str:
    if view.scrape is not None:
        late_s = stale_s(view.scrape.every_s)
    late = view.failure is None and view.age_s is not None and view.age_s > late_s
    return STALE if late else view.state.value


def _alert_kinds_by_node(snapshot: Snapshot) -> dict[str, frozenset[str]]:
    """Return the kinds of alerts on each machine, by its name."""
    result: dict[str, frozenset[str]] = {}
    for alert in snapshot.alerts:
        if alert.id.startswith("node:"):
            result[alert.subject] = result.get(alert.subject, frozenset()) | {kind_of(alert.id)}
    return result


def node_of(view: NodeView, alerts: frozenset[str] = frozenset()) -> FleetNode:
    """Return a machine that is watched directly as a machine on a wall; `alerts` are the kinds that hold."""
    sample, failure = view.sample, view.failure
    if failure is not None and failure.kind is FailureKind.LATE:  # its Prometheus is not at fault alone
        return FleetNode(view.name, None if sample is None else sample.at)
    if sample is None:
        return FleetNode(view.name, down=failure is not None, state=_node_state(view, None, alerts))
    use = known_mean(gpu.utilization_percent for gpu in sample.gpus)
    return FleetNode(
        view.name,
        at=sample.at,
        down=failure is not None,
        state=_node_state(view, use, alerts),
        gpus=len(sample.gpus),
        gpu_percent=use,
        temperature_c=sample.hottest_c,
        power_w=sample.gpu_power_w,
        sm_clock_mhz=min((gpu.sm_clock_mhz for gpu in sample.gpus if gpu.sm_clock_mhz), default=None),
        memory_total_bytes=sample.memory.total_bytes,
        headroom_bytes=sample.memory.headroom_bytes,
        load1=sample.cpu.load1,
        backends=tuple(
            {
                engine_process.backend: None
                for engine_process in view.engine_processes
                if engine_process.backend
            }
        ),
    )


def _node_state(view: NodeView, gpu_percent: float | None, alerts: frozenset[str]) -> str:
    """Return the state of a machine in a word, the first of `NODE_GRAVITY` that holds."""
    works = None if gpu_percent is None else "busy" if gpu_percent >= IDLE_PERCENT else "idle"
    if view.sample is not None and not view.sample.gpus and view.scrape is None:  # else its exporter may lack
        works = NO_GPU
    rules = (
        ("unreachable", view.failure is not None),
        ("GPU lost", bool(view.gpus_lost)),
        ("low memory", bool(alerts & _MEMORY_ALERTS)),
        (view.speed.word, view.speed.word in SLOW),
        ("hot", bool(alerts & _HEAT_ALERTS)),
        (works or "unknown", True),
    )
    return next(word for word, holds in rules if holds)


def counts_of(groups: Iterable[WallGroup]) -> dict[str, int]:
    """Return the number of servers of some groups by state, the worst first."""
    counts: dict[str, int] = {}
    for group in groups:
        for state, count in group.counts.items():
            counts[state] = counts.get(state, 0) + count
    return {state: counts[state] for state in sorted(counts, key=lambda one: _RANKS.get(one, len(_RANKS)))}


def node_rank(state: str) -> int:
    """Return the place of a machine's state in `NODE_GRAVITY`: 0 is the worst, and where it is unknown."""
    return _NODE_RANKS.get(state, 0)


def _filter_nodes(nodes: Iterable[FleetNode], words: str) -> tuple[FleetNode, ...]:
    wanted = words.casefold().split()
    kept = (
        node for node in nodes if not wanted or _contains_all(wanted, ("machines", node.name, node.state))
    )
    return tuple(sorted(kept, key=lambda one: (node_rank(one.state), -(one.gpu_percent or 0.0), one.name)))


def _filter_servers(servers: Sequence[Stated], words: str) -> Sequence[Stated]:
    wanted = words.casefold().split()
    return (
        servers
        if not wanted
        else [server for server in servers if _contains_all(wanted, _searched_texts(server))]
    )


def _searched_texts(one: Stated) -> tuple[str, ...]:
    server = one.server
    further = () if isinstance(server, FleetServer) else (server.model or "", server.engine or "")
    return (server.name, server.group, server.url, one.state, *further, *server.nodes)


def _contains_all(words: Iterable[str], texts: Iterable[str]) -> bool:
    result = " ".join(texts).casefold()
    return all(word in result for word in words)


_SERVER_FIGURES: Mapping[Top, Callable[[Server], float | None]] = {
    Top.WAITING: lambda one: one.waiting,
    Top.KV: kv_percent,
    Top.TTFT: ttft_s,
}


def _top_lists(servers: Iterable[Stated]) -> dict[Top, tuple[tuple[Stated, float], ...]]:
    """Return the lists of servers, without those that are down or stale, or whose figure is unknown or 0."""
    answering = [server for server in servers if server.is_current and server.state not in DOWN]
    result: dict[Top, tuple[tuple[Stated, float], ...]] = {}
    for top, value in _SERVER_FIGURES.items():
        known = [(one, figure) for one in answering if (figure := value(one.server))]
        result[top] = tuple(nlargest(MOST_LISTED, known, key=itemgetter(1)))
    return result


# The summary of a snapshot in one line, which a user reads first: its most severe problem.


_LONGEST = 60
"""Most characters of an alert's message that are part of the verdict."""
_CLAUSE = re.compile(r" \(|; |: ")
"""Ends the first clause of a sentence."""
_FIRST_CHOICE = re.compile(r" or |, ")
"""Ends the first of several suggestions."""
_MUTE = {FailureKind.TIMEOUT, FailureKind.REFUSED, FailureKind.UNREACHABLE}
_WELL = {BackendState.BUSY, BackendState.BORED, BackendState.IDLE}


class Verdict(Struct, frozen=True):
    """The most severe problem at present as text, or that all is well."""

    severity: Severity | None
    """Severity of the alert; INFO for a problem without an alert; None if all is well."""
    words: str
    short: str
    """The text of `words` shortened for narrow screens."""
    hint: str = ""
    """What to try; "" if that is not known."""
    key: str = ""
    """The key on the keyboard that shows more about the problem; "" for none."""
    subject: str = ""
    """Name of the backend or node that it is about; "" if it is about none or several."""
    about: str = ""
    """The id of the alert that it names; "" without an alert."""

    @property
    def short_hint(self) -> str:
        """The first of the suggestions in `hint`."""
        return _FIRST_CHOICE.split(self.hint)[0]


def verdict(snapshot: Snapshot) -> Verdict:
    """Return the most severe alert of a snapshot as text; without alerts, a summary of the servers' states.

    Among alerts of equal severity, the first choice is uneven load that a user can mend, because all backends
    suffer from it, and the second is the oldest alert. Alerts of severity INFO are ignored, and those about
    the engine cores of a server whose group has a graver verdict.
    """
    groups = {_alert_id(one): one for one in snapshot.balance}
    calm = groups.keys() - {_alert_id(one) for one in leading(snapshot.balance)}
    hinted = {alert_id for alert_id, balance in groups.items() if balance.hint}
    worst = min(
        (one for one in snapshot.alerts if one.severity is not Severity.INFO and one.id not in calm),
        key=lambda alert: (-alert.severity.rank, alert.id not in hinted),
        default=None,
    )
    if worst is None:
        return _verdict_without_alert(snapshot)
    return (
        _verdict_of_balance(worst, groups[worst.id])
        if worst.id in groups
        else _verdict_of_alert(worst, snapshot)
    )


def _alert_id(balance: Balance) -> str:
    return f"balance:{balance.group}:{balance.word.value}"


def _group_text(balance: Balance) -> str:
    return f"{balance.group} {'is' if balance.lanes_of is None else 'are'} {balance.word.value}"


def _verdict_of_balance(alert: Alert, balance: Balance) -> Verdict:
    word, cost = balance.word.value, balance_cost(balance)
    short = f"{'' if balance.lanes_of is None else 'lanes '}{word} {cost}".strip()
    named = _group_text(balance) + (f", {cost}" if cost else "") + balance.doubt
    hint = _CLAUSE.split(balance.hint or "")[0]
    return Verdict(alert.severity, named, short, hint, "w", about=alert.id)


def _verdict_of_alert(alert: Alert, snapshot: Snapshot) -> Verdict:
    kind = kind_of(alert.id)
    _, known, hint, key = condition_of(alert.id)
    views: tuple[BackendView | NodeView, ...] = (*snapshot.backends, *snapshot.nodes)
    found = [finding for view in views for finding in view.findings if finding.kind == kind]
    if found:
        fixes = (one.fix for one in found if one.line == alert.message)
        hint, key = _CLAUSE.split(next(fixes, None) or "")[0], "enter"
    elif kind in {"slow-clock", "slow-steps"}:
        fixes = (node.speed.fix for node in snapshot.nodes if node.name == alert.subject)
        hint = _CLAUSE.split(next(fixes, None) or "")[0]
    said = re.split(r"\. |: (?=its log)", alert.message)[0]
    if kind == "stuck":
        said = next(
            (_standstill_text(view) for view in snapshot.backends if view.name == alert.subject), said
        )
    if len(said) > _LONGEST:
        said = (kind == "unreachable" and _why_down(snapshot, alert.subject)) or known
    words = f"{alert.subject}: {said}"
    return Verdict(alert.severity, words, f"{alert.subject} {known}", hint, key, alert.subject, alert.id)


def _why_down(snapshot: Snapshot, name: str) -> str:
    """Return in a few words why a server or machine fails; "" if it does not."""
    nodes = ((node.name, node.failure, node.via) for node in snapshot.nodes)
    failing = (*nodes, *((backend.name, backend.failure, "") for backend in snapshot.backends))
    result = (failure_words(failure, via) for one, failure, via in failing if one == name and failure)
    return next(result, "")


def _standstill_text(view: BackendView) -> str:
    """Return how long an engine has been stuck, in words."""
    progress = view.progress
    return view.state.value if progress is None else f"{progress.word.value}, {progress.fact}"


def _standstill_verdict(snapshot: Snapshot) -> Verdict | None:
    """Return the verdict where an engine holds requests without progress; None if none does."""
    standing = [
        (backend.progress.seconds, backend.name, backend.progress.fact)
        for backend in snapshot.backends
        if backend.progress is not None
    ]
    if not standing:
        return None
    _, name, fact = max(standing)
    return Verdict(Severity.INFO, f"{name}: {fact}", f"{name}: {fact}", key="z", subject=name)


def _verdict_without_alert(snapshot: Snapshot) -> Verdict:
    backends = snapshot.backends
    silent = _verdict_of_silence(snapshot)
    if silent is not None:
        return silent
    if not backends:
        result = "no inference server found yet" if snapshot.searching else "no backend to watch"
        return Verdict(Severity.INFO, result, "no server")
    swinging = next((one for one in leading(snapshot.balance) if one.bad), None)
    if swinging is not None:
        word = swinging.word.value
        return Verdict(Severity.INFO, _group_text(swinging), word, key="w")
    awake = (view for view in backends if view.state is not BackendState.ASLEEP)
    queueing = [view for view in awake if view.waiting and not view.in_sweep]
    if queueing:
        return _verdict_of_queues(queueing, alone=len(backends) == 1)
    return _verdict_of_states(snapshot)


def _verdict_of_queues(queueing: list[BackendView], *, alone: bool) -> Verdict:
    """Return the verdict where requests wait: at which server, and whether it is full.

    The header has their number already. `alone` is True if only one server is watched.
    """
    most = max(queueing, key=lambda view: view.waiting or 0.0)
    name, slots, running = most.name, most.slots, most.running
    if len(queueing) > 1:
        words, short = f"longest queue: {most.waiting:.0f} at {name}", f"{name}: {most.waiting:.0f} wait"
    elif slots and running is not None and running >= slots:
        words, short = f"{name} is full: {running:.0f} of {slots} slots run", f"{name} is full"
    else:
        words, short = f"{'' if alone else 'only '}{name} has a queue", f"{name} has a queue"
    return Verdict(Severity.INFO, words, short, subject=name)


def _verdict_of_states(snapshot: Snapshot) -> Verdict:
    """Return the verdict where nothing is wrong: how many servers have which state."""
    backends = snapshot.backends
    states = Counter((view.state, view.is_full_by_sweep) for view in backends)
    said = ", ".join(
        f"{states[state, by_sweep]} {state.value}{' (sweep)' if by_sweep else ''}"
        for state in BackendState
        for by_sweep in (False, True)
        if states[state, by_sweep]
    )
    open_groups = [
        one
        for one in snapshot.balance
        if one.within is None
        and not one.in_sweep
        and ((one.word is BalanceWord.UNKNOWN and not one.is_slow) or one.word_now.bad)
    ]
    open_groups.sort(key=lambda one: one.too_few)
    # The balance covers a sweep for longer than the states do.
    swept = [
        balance
        for balance in snapshot.balance
        if balance.within is None and balance.in_sweep and not _is_settled(balance)
    ]
    if swept or any(view.in_sweep for view in backends):
        swung = next((one for one in leading(swept) if one.word.bad), None)
        words = said if swung is None else f"{said}; {swung.group}: {swung.word.value} (sweep)"
        return Verdict(Severity.INFO, words, said, key="" if swung is None else "w")
    slow = next(
        (router for router in snapshot.routers if router.slow is not None and router.failure is None), None
    )
    if slow is not None:
        return Verdict(Severity.INFO, f"{slow.name} is slow: {slow.slow}", f"{slow.name} is slow")
    if open_groups and any(view.running for view in backends):
        group = open_groups[0].group
        doubt = open_groups[0].word_now
        if open_groups[0].too_few and not doubt.bad:
            # It lasts, and nothing is wrong: whatever else there is to say comes first.
            calm = all(state in _WELL or by_sweep for state, by_sweep in states)
            head = f"all well: {said}" if calm else said
            return Verdict(
                None if calm else Severity.INFO,
                f"{head}; {group}: {open_groups[0].title}",
                "all well" if calm else said,
                key="w",
            )
        judged = f"perhaps {doubt.value}" if doubt.bad else "balance not known yet"
        return Verdict(Severity.INFO, f"{said}; {group}: {judged}", f"{group}: {judged}", key="w")
    if all(state in _WELL or by_sweep for state, by_sweep in states):
        return Verdict(None, f"all well: {said}", "all well")
    return Verdict(Severity.INFO, said, said)


def _is_settled(balance: Balance) -> bool:
    """Return whether the newest window confirms a verdict that is not bad."""
    known = balance.word is not BalanceWord.UNKNOWN and balance.word is balance.word_now
    return known and not balance.word.bad


def _verdict_of_silence(snapshot: Snapshot) -> Verdict | None:
    """Return the verdict where a server or machine does not answer, is stale, loads or stands still."""
    loads = [view for view in snapshot.backends if view.state is BackendState.LOADING]
    failed = [(view.name, view.failure) for view in snapshot.backends if view not in loads and view.failure]
    failed += [(view.name, view.failure) for view in snapshot.nodes if view.failure]
    if failed:
        name, failure = failed[0]
        if failure.kind in _MUTE:
            said = f"{name} does not answer"
        elif failure.kind is FailureKind.LATE:
            said = f"{name} is stale"
        else:
            said = f"{name}: {_why_down(snapshot, name)}"
        return Verdict(Severity.INFO, said, said, key="e")
    if not loads:
        return _standstill_verdict(snapshot)
    words = loads[0].loading.words if loads[0].loading is not None else ""
    said = f"{loads[0].name} loads its model"
    full = f"{said}: {words}" if words else said
    return Verdict(Severity.INFO, full, said, key="z", subject=loads[0].name)
