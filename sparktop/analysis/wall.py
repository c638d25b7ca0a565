"""The figures of a wall, the view of hundreds of servers: groups, the worst first, and lists of the worst."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from heapq import nlargest
from operator import itemgetter

from msgspec import Struct

from sparktop.analysis.speed_state import IDLE_PERCENT
from sparktop.analysis.state import GRAVITY, USUAL, scraped_state
from sparktop.model.balance import Balance, BalanceWord
from sparktop.model.event import kind_of
from sparktop.model.failure import FailureKind
from sparktop.model.router import Fleet, FleetNode, FleetServer, Sum, stale_s
from sparktop.model.series import known_max, known_mean
from sparktop.model.snapshot import BackendView, NodeView, Snapshot
from sparktop.model.targets import StateThresholds

WallServer = FleetServer | BackendView
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

    server: WallServer
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
    tops: Mapping[Top, tuple[tuple[Stated, float], ...]] = {}
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
    balances = {balance.group: balance for balance in snapshot.balance if balance.lanes_of is None}
    by_member = {name: balance for balance in balances.values() for name in balance.backends}
    filtered = _filter_servers(result, words)
    groups = _wall_groups(filtered, balances, by_member)
    alerts = [alert for alert in snapshot.alerts if alert.id.startswith("node:")]
    nodes = [
        node_of(view, frozenset(kind_of(alert.id) for alert in alerts if alert.subject == view.name))
        for view in snapshot.nodes
    ]
    return Wall(groups, _filter_nodes(nodes, words), len(result), len(nodes), _top_lists(filtered))


def wall_of_fleet(fleet: Fleet, words: str = "", thresholds: StateThresholds = USUAL) -> Wall:
    """Return the wall of all servers and machines that a Prometheus scrapes, filtered by `words`."""
    late_at = fleet.late_at
    result = [Stated(server, scraped_state(server, late_at, thresholds).value) for server in fleet.servers]
    filtered = _filter_servers(result, words)
    nodes = _filter_nodes(fleet.nodes, words)
    return Wall(_wall_groups(filtered, {}, {}), nodes, len(result), len(fleet.nodes), _top_lists(filtered))


def _wall_groups(
    servers: Iterable[Stated], balances: Mapping[str, Balance], by_member: Mapping[str, Balance]
) -> tuple[WallGroup, ...]:
    by_group: dict[str, list[Stated]] = {}
    for server in servers:
        by_group.setdefault(server.server.group, []).append(server)
    # A balance may have another name for the same servers: then it is found by one of them.
    groups = [
        _wall_group(name, members, balances.get(name) or by_member.get(members[0].server.name))
        for name, members in by_group.items()
    ]
    return tuple(sorted(groups, key=lambda group: (group.badness, group.name)))


def _wall_group(name: str, servers: Sequence[Stated], balance: Balance | None) -> WallGroup:
    """Return a group with its servers in order, and sums and extremes of those that answer."""
    answering = [server.server for server in servers if server.is_current and server.state not in DOWN]

    def gravity(stated: Stated) -> tuple[float, ...]:
        if stated.state in DOWN or not stated.is_current:
            return (stated.rank,)
        return stated.rank, -(stated.server.waiting or 0.0), -(stated.server.running or 0.0)

    def total(figure_of: Callable[[WallServer], float | None]) -> Sum:
        """Return a sum over the servers, a lower bound where some are down or late, as in the top line."""
        return Sum.of_values(map(figure_of, answering), absent=len(servers) - len(answering))

    ordered = tuple(sorted(servers, key=gravity))
    return WallGroup(
        name,
        ordered,
        Counter(stated.state for stated in ordered),
        balance,
        total(lambda server: server.running),
        total(lambda server: server.waiting),
        total(lambda server: server.generation_tps),
        known_max(map(kv_percent, answering)),
        known_max(map(ttft_s, answering)),
    )


def kv_percent(server: WallServer) -> float | None:
    """Return the used share of the KV cache in percent, of the fullest engine core where that is known."""
    fullest = None if isinstance(server, FleetServer) else server.kv_fullest_percent
    return server.kv_cache_percent if fullest is None else fullest


def ttft_s(server: WallServer) -> float | None:
    """Return the 95 % quantile of the time to first token in seconds; its bound where only that is known."""
    if isinstance(server, FleetServer):
        return server.ttft_p95_s
    return None if server.ttft.p95 is None else server.ttft.p95.seconds


def _state_word(view: BackendView, late_s: float) -> str:
    """Return the state of a polled server, "stale" if its newest figures are older than `late_s`."""
    if view.scrape is not None:
        late_s = stale_s(view.scrape.every_s)
    late = view.failure is None and view.age_s is not None and view.age_s > late_s
    return STALE if late else view.state.value


def node_of(view: NodeView, alerts: frozenset[str] = frozenset()) -> FleetNode:
    """Return a machine as it stands on a wall; `alerts` are the kinds that hold."""
    sample, failure = view.sample, view.failure
    if failure is not None and failure.kind is FailureKind.LATE:  # its Prometheus is not at fault alone
        return FleetNode(view.name, None if sample is None else sample.at)
    if sample is None:
        return FleetNode(view.name, down=failure is not None, state=_node_state(view, None, alerts))
    used_percent = known_mean(gpu.utilization_percent for gpu in sample.gpus)
    return FleetNode(
        view.name,
        at=sample.at,
        down=failure is not None,
        state=_node_state(view, used_percent, alerts),
        gpus=len(sample.gpus),
        gpu_percent=used_percent,
        temperature_c=sample.hottest_c,
        power_w=sample.gpu_power_w,
        sm_clock_mhz=min((gpu.sm_clock_mhz for gpu in sample.gpus if gpu.sm_clock_mhz), default=None),
        memory_total_bytes=sample.memory.total_bytes,
        headroom_bytes=sample.memory.left_bytes,
        load1=sample.cpu.load1,
        backends=tuple(
            dict.fromkeys(process.backend for process in view.engine_processes if process.backend)
        ),
    )


def _node_state(view: NodeView, gpu_percent: float | None, alerts: frozenset[str]) -> str:
    """Return the state of a machine in a word, the first of `NODE_GRAVITY` that holds."""
    works = None
    if gpu_percent is not None:
        works = "busy" if gpu_percent >= IDLE_PERCENT else "idle"
    if view.sample is not None and not view.gpus and view.scrape is None:  # an exporter may lack them
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
    counts = Counter[str]()
    for group in groups:
        counts.update(group.counts)
    ordered = sorted(counts, key=lambda state: _RANKS.get(state, len(_RANKS)))
    return {state: counts[state] for state in ordered}


def node_rank(state: str) -> int:
    """Return the place of a machine's state in `NODE_GRAVITY`: 0 is the worst.

    A word that is not in it, of another version's recording, has 0 as well: it is not to be overlooked.
    """
    return _NODE_RANKS.get(state, 0)


def _filter_nodes(nodes: Iterable[FleetNode], words: str) -> tuple[FleetNode, ...]:
    wanted = words.casefold().split()
    filtered = [node for node in nodes if _contains_all(wanted, ("machines", node.name, node.state))]
    filtered.sort(key=lambda node: (node_rank(node.state), -(node.gpu_percent or 0.0), node.name))
    return tuple(filtered)


def _filter_servers(servers: Sequence[Stated], words: str) -> Sequence[Stated]:
    wanted = words.casefold().split()
    if not wanted:
        return servers
    return [server for server in servers if _contains_all(wanted, _searched_texts(server))]


def _searched_texts(stated: Stated) -> tuple[str, ...]:
    server = stated.server
    further = () if isinstance(server, FleetServer) else (server.model or "", server.engine or "")
    return (server.name, server.group, server.url, stated.state, *further, *server.nodes)


def _contains_all(words: Iterable[str], texts: Iterable[str]) -> bool:
    result = " ".join(texts).casefold()
    return all(word in result for word in words)


_SERVER_FIGURES: Mapping[Top, Callable[[WallServer], float | None]] = {
    Top.WAITING: lambda server: server.waiting,
    Top.KV: kv_percent,
    Top.TTFT: ttft_s,
}


def _top_lists(servers: Iterable[Stated]) -> dict[Top, tuple[tuple[Stated, float], ...]]:
    """Return the lists of servers, without those that are down or stale, or whose figure is unknown or 0."""
    answering = [server for server in servers if server.is_current and server.state not in DOWN]
    result: dict[Top, tuple[tuple[Stated, float], ...]] = {}
    for top, figure_of in _SERVER_FIGURES.items():
        figures = [(stated, figure_of(stated.server)) for stated in answering]
        known_figures = [(stated, figure) for stated, figure in figures if figure]
        result[top] = tuple(nlargest(MOST_LISTED, known_figures, key=itemgetter(1)))
    return result
