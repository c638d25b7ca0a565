"""The page of `sparktop export`: every metric with its labels and help, and how it is read.

Words, such as the state of a server, are labels of a series with the value 1; only the word that holds has a
series. The numbers of labels and series are bounded.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from prometheus_client.core import InfoMetricFamily
from prometheus_client.core import Metric as Family

from sparktop import __version__
from sparktop.agent.exposition import (
    LABEL_LIMIT,
    PREFIX,
    Labels,
    PageMetric,
    Point,
    Subject,
    families,
    node_families,
    share,
    single,
)
from sparktop.errors import UsageError
from sparktop.model.balance import Balance, BalanceWord
from sparktop.model.event import ALERT_KINDS, Alert, Event, Phase, kind_of
from sparktop.model.figures import Of, figures
from sparktop.model.series import known_min
from sparktop.model.snapshot import (
    BackendState,
    BackendView,
    LimitKind,
    NodeView,
    Quantile,
    Snapshot,
)
from sparktop.model.text import clean
from sparktop.report.tables import without_stale
from sparktop.store.load_log import Role
from sparktop.sweep.result.results import LevelResult
from sparktop.sweep.result.store import load

MOST_REASONS = 4
"""Throttle reasons of a node that have a series, those with the highest shares."""
MOST_POLLS = 512
"""Sources whose polls have a series."""


def label_of(name: str) -> str:
    """Return a name as the value of a label: clean, bounded, and of a URL only host, port and path."""
    _, scheme, address = name.rpartition("://")
    if scheme:
        host, slash, path = address.partition("?")[0].partition("/")
        name = f"{host.rpartition('@')[2]}{slash if path else ''}{path}"
    return clean(name, LABEL_LIMIT)


def _word_metric(
    name: str, label: str, text: str, read: Callable[[Subject], str | None]
) -> PageMetric[Subject]:
    """Return a metric whose label `label` is the word that holds, with the value 1."""

    def points(part: Subject) -> Iterator[Point]:
        word = read(part)
        if word is not None:
            yield (word,), 1.0

    return PageMetric(name, text, points, (label,))


def _metrics_of_figures(of: Of) -> list[PageMetric[Any]]:
    """Return the figures of the registry as metrics."""
    return [single(figure.metric, figure.help, figure.base_value) for figure in figures(of)]


def _bound_word(quantile: Quantile) -> str:
    """Return what the seconds of a quantile are, as the label `bound` has it."""
    if quantile.below:
        return "below"
    if quantile.above:
        return "above"
    return "in_bucket" if quantile.bucket_s else "exact"


def _quantile_metric(title: str, name: str, percent: int) -> PageMetric[BackendView]:
    """Return the metric of a quantile of the latency that the field `name` of the view holds."""

    def points(view: BackendView) -> Iterator[Point]:
        quantile: Quantile | None = getattr(getattr(view, name), f"p{percent}")
        if quantile is not None:
            yield (_bound_word(quantile),), quantile.seconds

    text = (
        f'{title}, p{percent} of the last 60 s; bound="below" or "above": less or more than this, '
        '"in_bucket": interpolated in a bucket whose upper edge is twice its lower one or more.'
    )
    return PageMetric(f"backend_{name}_p{percent}_seconds", text, points, ("bound",))


_LATENCIES = {
    "ttft": "Time to first token",
    "itl": "Time between two tokens",
    "e2e": "Duration of a request",
    "queue": "Time in the queue",
}

BACKEND: tuple[PageMetric[BackendView], ...] = (
    _word_metric(
        "backend_state",
        "state",
        "1 for the state that a server is in, such as queueing or stuck.",
        lambda view: None if view.state is BackendState.UNKNOWN else view.state.value,
    ),
    _word_metric(
        "backend_limit",
        "limit",
        "1 for what a server is limited by, such as slots or memory bandwidth.",
        lambda view: (
            None
            if view.limited_by is None or view.limited_by.kind is LimitKind.UNKNOWN
            else view.limited_by.kind.value
        ),
    ),
    _word_metric(
        "backend_standstill",
        "word",
        "1 for the verdict on a server that holds requests without progress, such as long step or stuck.",
        lambda view: None if view.progress is None else view.progress.word.value,
    ),
    *_metrics_of_figures(Of.SERVER),
    *(_quantile_metric(title, name, percent) for name, title in _LATENCIES.items() for percent in (50, 95)),
)
"""The metrics of a server, at most 25 series."""


GROUP: tuple[PageMetric[Balance], ...] = (
    _word_metric(
        "group_word",
        "word",
        "1 for the verdict on how evenly a group is loaded: balanced, oscillating, starved, uneven or "
        "idle; none where it is unknown.",
        lambda balance: None if balance.word is BalanceWord.UNKNOWN else balance.word.value,
    ),
    single("group_window_seconds", "Seconds that were judged.", lambda balance: balance.window_s or None),
    *_metrics_of_figures(Of.GROUP),
    PageMetric(
        "group_starved_ratio",
        "Share of the time with next to no work while another member had more than its share.",
        lambda group: [((label_of(name),), share(part)) for name, part in group.starved_percent.items()],
        ("member",),
    ),
    PageMetric(
        "group_request_share_ratio",
        "A member's part of the requests that the group received in the window.",
        lambda group: [((label_of(name),), part) for name, part in group.requests_share.items()],
        ("member",),
    ),
)
"""The metrics of a group, at most 15 series and two for each member."""


NODE: tuple[PageMetric[NodeView], ...] = (
    _word_metric(
        "node_speed",
        "word",
        "1 for the verdict on a GPU's speed: idle, normal, throttled, slow clock or slow steps.",
        lambda view: None if view.speed.word == "unknown" or not view.ok else view.speed.word,
    ),
    *_metrics_of_figures(Of.MACHINE),
    PageMetric(
        "node_throttled_ratio",
        "Share of the last minute in which a GPU was throttled, of the GPU with the highest share.",
        lambda view: [
            ((reason,), percent / 100)
            for reason, percent in sorted(view.throttled_percent.items(), key=lambda one: (-one[1], one[0]))
        ][:MOST_REASONS],
        ("reason",),
    ),
)
"""The metrics of a machine, at most 10 series."""


def _last_poll_s(snapshot: Snapshot) -> float | None:
    ages = [view.age_s for view in snapshot.backends]
    ages += [view.age_s for view in snapshot.nodes] + [view.age_s for view in snapshot.routers]
    return known_min(ages)


INFO: PageMetric[str] = PageMetric(
    "self_info", "The version of sparktop.", lambda version: (((version,), 1.0),), ("version",)
)
"""Of the version; in OpenMetrics it has a type of its own."""

SELF: tuple[PageMetric[Snapshot], ...] = (
    single("self_up", "1 while sparktop export answers.", lambda _: 1.0),
    single("self_simulated", "1 where what is watched is simulated.", lambda snapshot: snapshot.simulated),
    single("self_last_look_seconds", "Seconds since the newest answer of anything watched.", _last_poll_s),
    PageMetric(
        "self_poll_seconds",
        "Duration of the newest poll, by type and name of what was polled.",
        lambda snapshot: [
            ((label_of(name),), ms / 1000)
            for name, ms in islice(snapshot.self_cost.poll_ms.items(), MOST_POLLS)
        ],
        ("source",),
    ),
    single(
        "self_cpu_ratio",
        "CPU time that sparktop uses; 1 is one core.",
        lambda snapshot: share(snapshot.self_cost.cpu_percent),
    ),
    single("self_rss_bytes", "Memory that sparktop uses.", lambda snapshot: snapshot.self_cost.rss_bytes),
)
"""The metrics of the program itself."""
LEFT_OUT: PageMetric[int] = single(
    "self_left_out", "Servers, groups and machines without series, because there are more than 512.", float
)

ALERT: PageMetric[Iterable[tuple[str, ...]]] = PageMetric(
    "alert",
    "1 for each alert that holds now. The subject is the name of a server, router, machine or group.",
    lambda alerts: [(labels, 1.0) for labels in alerts],
    ("kind", "subject", "severity"),
)
EVENTS: PageMetric[Iterable[tuple[str, int]]] = PageMetric(
    "events",
    "Events since the start, by kind: alerts that began or became worse, and restarts.",
    lambda counts: [((kind,), count) for kind, count in counts],
    ("kind",),
    is_counter=True,
)


MOST_SUBJECTS = 512
"""Servers, groups and machines that have series; further ones are counted."""
MOST_MEMBERS = 64
"""Members of a group that have series."""
MOST_ALERTS = 512
"""Alerts that are exported, the most severe first, so that the number of series is bounded."""
MOST_KINDS = 64
"""Kinds of events that are counted by name; further ones are counted as "other"."""
MOST_OF_AGENT = 300
"""Series of the agent's metrics for each machine that has no agent of its own."""
_NOT_EXPORTED = frozenset({f"{PREFIX}node_cpu_core_usage_ratio", f"{PREFIX}node_gpu_process_memory_bytes"})
"""The agent's metrics with a series for each core or program, which are left out here."""
_EVENT_KINDS = (
    *("restarted", "loaded", "paused", "state", "model", "ranks", "shared-address", "boot", "engine-ended"),
    "note",
)
"""Kinds of events that are no alerts; "note" is for those without a kind."""
OTHER = "other"

_BALANCE = "balance:"
"""Beginning of the ids of alerts about groups."""
Named = Sequence[tuple[Labels, Subject]]
"""Parts of a snapshot, each with the labels that name it."""


def metric_tables() -> list[tuple[str, tuple[str, ...], Sequence[PageMetric[Any]]]]:
    """Return (title, labels that all its metrics have, metrics) for each kind of part of a page."""
    return [
        ("Servers", ("backend",), BACKEND),
        ("Groups", ("group", "scope"), GROUP),
        ("Machines", ("node",), NODE),
        ("Alerts and events", (), (ALERT, EVENTS)),
        ("The newest sweep", ("target", "load", "prompt_tokens", "depth"), LEVEL),
        ("The program itself", (), (INFO, *SELF, LEFT_OUT)),
    ]


class EventCounts:
    """Numbers of events since the start, by kind."""

    def __init__(self) -> None:
        """Start with 0 for each known kind, so that its first increase is seen."""
        self._counts = Counter(dict.fromkeys((*ALERT_KINDS, *_EVENT_KINDS, OTHER), 0))

    def add(self, event: Event) -> None:
        """Count an announced event, unless it is the end of an alert."""
        if event.phase is Phase.END:
            return
        kind = clean(event.kind or "note", LABEL_LIMIT)
        is_known = kind in self._counts or len(self._counts) < MOST_KINDS
        self._counts[kind if is_known else OTHER] += 1

    def items(self) -> list[tuple[str, int]]:
        """Return (kind, number of events) for each kind."""
        return list(self._counts.items())


def page_families(
    snapshot: Snapshot, events: Iterable[tuple[str, int]] = (), levels: Named[LevelResult] = ()
) -> list[Family]:
    """Return all families of the page; what is unknown, or not current, has no series.

    `events` are numbers of events by kind, `levels` those of the newest sweep.
    """
    current = without_stale(snapshot)
    backends = _named("backend", [(view.name, view) for view in current.backends], MOST_SUBJECTS)
    most_nodes = MOST_SUBJECTS - len(backends)
    nodes = _named("node", [(view.name, view) for view in current.nodes], most_nodes)
    groups = [_limit_members(group) for group in current.balance]
    names = dict(zip((group.group for group in groups), group_names(groups, current.backends), strict=True))
    silent = {group.group for group in groups if _is_silent(group, current.backends)}
    heard = [(names[group.group], group) for group in groups if group.group not in silent]
    judged_groups: Named[Balance] = [
        ({**labels, "scope": "servers" if group.lanes_of is None else "cores"}, group)
        for labels, group in _named("group", heard, most_nodes - len(nodes))
    ]
    shown = len(backends) + len(nodes) + len(judged_groups)
    left_out = len(current.backends) + len(current.nodes) + len(heard) - shown
    version = InfoMetricFamily(f"{PREFIX}{INFO.name.removesuffix('_info')}", INFO.text)
    version.add_metric((), {"version": __version__})
    alerts = _alert_labels(current, names, silent)
    return [
        version,
        *families(SELF, [({}, current)]),
        *families((LEFT_OUT,), [({}, left_out)]),
        *families(BACKEND, backends),
        *families(GROUP, judged_groups),
        *families(NODE, nodes),
        *_without_agent(nodes, simulated=current.simulated),
        *families((ALERT,), [({}, alerts)]),
        *families((EVENTS,), [({}, events)]),
        *families(LEVEL, levels),
    ]


def _named(label: str, parts: Sequence[tuple[str, Subject]], most: int) -> Named[Subject]:
    """Return ({`label`: name}, part) for the first `most` parts, each name once."""
    part_by_name: dict[str, Subject] = {}
    for name, part in parts:
        part_by_name.setdefault(label_of(name), part)
    return [({label: name}, part) for name, part in islice(part_by_name.items(), most)]


def group_names(groups: Sequence[Balance], backends: Sequence[BackendView]) -> list[str]:
    """Return a name for each group that holds no name of a model.

    It is the name of the router, or of the server whose cores are judged, else of the group's first server;
    the role of its members follows where groups are judged by role. A repeated name gets a number.
    """
    names: list[str] = []
    for group in groups:
        role = next((f" {role}" for role in Role if group.group.endswith(f" {role}")), "")
        title = group.group.removesuffix(role)
        members = [view.name for view in backends if view.group in {group.group, title}]
        first = next(iter(members or group.backends), OTHER)
        base = f"{group.router or first}{role}" if group.lanes_of is None else f"{group.lanes_of} cores"
        count = sum(name == base or name.startswith(f"{base} #") for name in names)
        names.append(f"{base} #{count + 1}" if count else base)
    return names


def _is_silent(group: Balance, backends: Sequence[BackendView]) -> bool:
    """Return whether no server of a group answers, so that its newest verdict is not current."""
    titles = {group.group, *(group.group.removesuffix(f" {role}") for role in Role)}
    members = [
        view
        for view in backends
        if (view.group in titles if group.lanes_of is None else view.name == group.lanes_of)
    ]
    return bool(members) and all(view.failure is not None for view in members)


def _limit_members(balance: Balance) -> Balance:
    """Return a group with at most `MOST_MEMBERS` members."""
    if len(balance.requests_share) <= MOST_MEMBERS and len(balance.starved_percent) <= MOST_MEMBERS:
        return balance
    return replace(
        balance,
        starved_percent=dict(islice(balance.starved_percent.items(), MOST_MEMBERS)),
        requests_share=dict(islice(balance.requests_share.items(), MOST_MEMBERS)),
    )


def _alert_labels(
    snapshot: Snapshot, group_of: Mapping[str, str], silent: Collection[str]
) -> list[tuple[str, ...]]:
    """Return (kind, subject, severity) of the alerts, the gravest first; no subject is a model's name.

    `group_of` has the name of each group on the page. Verdicts on the groups `silent`, of which no server
    answers, are left out.
    """
    views = (snapshot.backends, snapshot.nodes, snapshot.routers)
    watched = {view.name for part in views for view in part}
    worst_first: Sequence[Alert] = sorted(snapshot.alerts, key=lambda active: -active.severity.rank)
    labels: dict[tuple[str, ...], None] = {}
    current_ones = (
        active for active in worst_first if active.subject not in silent or not active.id.startswith(_BALANCE)
    )
    for alert in islice(current_ones, MOST_ALERTS):
        subject = alert.subject if alert.subject in watched else OTHER
        if alert.id.startswith(_BALANCE):
            subject = group_of.get(alert.subject, subject)
        labels[clean(kind_of(alert.id), LABEL_LIMIT), label_of(subject), alert.severity.value] = None
    return list(labels)


def _without_agent(nodes: Named[NodeView], *, simulated: bool) -> list[Family]:
    """Return the agent's families of the machines that no Prometheus scrapes already, with a label `node`."""
    merged: dict[str, Family] = {}
    for labels, view in nodes:
        if view.via in {"agent", "prometheus"} or view.sample is None:
            continue
        room = MOST_OF_AGENT
        for family in node_families(view.identity, view.sample, simulated=simulated):
            if family.name in _NOT_EXPORTED or len(family.samples) > room:
                continue
            room -= len(family.samples)
            family.samples = [
                sample._replace(labels={**labels, **sample.labels}) for sample in family.samples
            ]
            if family.name in merged:
                merged[family.name].samples += family.samples
            else:
                merged[family.name] = family
    return list(merged.values())


MOST_LEVELS = 64
"""Levels that have series, the last ones in the order of the result."""
KEPT_S = 86_400.0
"""Seconds since the last level for which the levels have series."""
REFRESH_EVERY_S = 5.0
"""Seconds between two searches for new results."""


def named_level(target: str, level: LevelResult, plan_prompt: int | None) -> tuple[Labels, LevelResult]:
    """Return a measured level with the labels that name it. Names of targets are names, not URLs.

    The prompt length of the plan holds where the level has none of its own.
    """
    prompt = plan_prompt if level.pp is None else level.pp
    labels = {
        "target": label_of(target),
        "load": level.point.short,
        "prompt_tokens": "" if prompt is None else str(prompt),
        "depth": str(level.depth),
    }
    return labels, level


class NewestSweep:
    """The levels of the newest result in the folder of stored sweeps, read again when its file changes.

    A level appears once it is measured.
    """

    def __init__(self, folder: Path, *, wall: Callable[[], float] = time.time) -> None:
        """Prepare to read results in `folder`; `wall` returns Unix seconds."""
        self._folder = folder
        self._wall = wall
        self._stamp: tuple[Path, int, int] | None = None
        self._written_at = 0.0
        self._levels: Named[LevelResult] = ()

    @property
    def levels(self) -> Named[LevelResult]:
        """The levels as of the newest `refresh`; empty once the newest one is older than `KEPT_S` seconds."""
        return self._levels if self._wall() - self._written_at < KEPT_S else ()

    async def watch(self) -> None:
        """Search for new results until cancelled."""
        while True:
            await asyncio.to_thread(self.refresh)
            await asyncio.sleep(REFRESH_EVERY_S)

    def refresh(self) -> None:
        """Read the newest result if it is new or has changed; one that cannot be read changes nothing."""
        newest = _newest_result(self._folder)
        if newest is None or newest == self._stamp or self._wall() - newest[1] / 1e9 >= KEPT_S:
            return
        self._stamp = newest
        try:
            result = load(newest[0])
        except UsageError:
            return  # a sweep that has no level yet, or a damaged file
        self._written_at = newest[1] / 1e9
        # Of two levels with the same labels, the later one counts.
        levels = [
            named_level(target.name, level, result.plan.pp)
            for target in result.targets
            for level in target.levels
            if level.error is None
        ]
        level_by_labels = {tuple(labels.values()): (labels, level) for labels, level in levels}
        self._levels = tuple(level_by_labels.values())[-MOST_LEVELS:]


def _newest_result(folder: Path) -> tuple[Path, int, int] | None:
    """Return (path, time of the change in ns, size) of the result that changed last; None without one."""
    dated_results = []
    try:
        for path in folder.glob("*.json"):
            if not path.name.startswith("."):
                stat = path.stat()
                dated_results.append((path, stat.st_mtime_ns, stat.st_size))
    except OSError:
        return None
    return max(dated_results, key=lambda dated: dated[1], default=None)


def _latency_reader(latency: str, statistic: str) -> Callable[[LevelResult], float | None]:
    """Return a function that reads a statistic of a latency, such as "p90" of "ttft_ms", in seconds."""

    def read(level: LevelResult) -> float | None:
        value_ms: float | None = getattr(getattr(level, latency), statistic, None)
        return None if value_ms is None else value_ms / 1000

    return read


def _rate_reader(name: str) -> Callable[[LevelResult], float | None]:
    """Return a function that reads the mean over runs of the rate `name`."""

    def read(level: LevelResult) -> float | None:
        rate = level.rate(name)
        return None if rate is None else rate.mean

    return read


def _limit_word(level: LevelResult) -> str | None:
    limited_by = level.limited_by
    kinds = {kind.value for kind in LimitKind if kind is not LimitKind.UNKNOWN}
    return limited_by.kind if limited_by is not None and limited_by.kind in kinds else None


LEVEL: tuple[PageMetric[LevelResult], ...] = (
    single(
        "sweep_level_sustained_tokens_per_second",
        "Tokens over the time with 95 % of the requests in flight, of a level of the newest sweep here.",
        _rate_reader("sustained_tps"),
    ),
    single(
        "sweep_level_decode_tokens_per_second",
        "Tokens after each request's first, from the earliest first to the latest last, of the level.",
        _rate_reader("decode_tps"),
    ),
    single(
        "sweep_level_output_tokens_per_second",
        "All generated tokens over the duration of the level.",
        _rate_reader("output_tps"),
    ),
    single(
        "sweep_level_ttft_p50_seconds",
        "Time to first token of the level, p50.",
        _latency_reader("ttft_ms", "p50"),
    ),
    single(
        "sweep_level_ttft_p90_seconds",
        "Time to first token of the level, p90; from 36 requests on.",
        _latency_reader("ttft_ms", "p90"),
    ),
    single(
        "sweep_level_tpot_mean_seconds",
        "Time per output token of the level, mean.",
        _latency_reader("tpot_ms", "mean"),
    ),
    single(
        "sweep_level_failed_requests",
        "Requests of the level that failed.",
        lambda level: level.requests.failed,
    ),
    single(
        "sweep_level_doubts",
        "Warnings on the figures of the level.",
        lambda level: len(level.validity),
    ),
    _word_metric(
        "sweep_level_limit", "limit", "1 for what held the server back during the level.", _limit_word
    ),
)
"""The metrics of a level, at most 9 series; its labels are target, load, prompt_tokens and depth."""
