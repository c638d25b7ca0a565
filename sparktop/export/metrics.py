"""All metrics of `sparktop export`: name, labels, help text, and how each is read from a snapshot.

Names begin with `sparktop_` and end with their base unit. An unknown value has no series. Words, such as the
state of a backend, are labels of a series with the value 1; only the word that holds has a series.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Generic, TypeVar

from msgspec import Struct

from sparktop.model.balance import Balance, BalanceWord
from sparktop.model.limit import LimitKind
from sparktop.model.snapshot import BackendState, BackendView, Latency, NodeView, Quantile, Snapshot
from sparktop.model.text import clean

PREFIX = "sparktop_"
MOST_REASONS = 4
"""Throttle reasons of a node that have a series, those with the highest shares."""
LABEL_LIMIT = 120
"""Most characters of a label's value."""
MOST_POLLS = 512
"""Sources whose polls have a series."""
_GIGA = 1e9

Part = TypeVar("Part")
Point = tuple[tuple[str, ...], float | None]
"""The values of a metric's own labels, and its value; None if that is unknown."""


class Metric(Struct, Generic[Part], frozen=True):
    """A metric: name, labels, help text, and how its values are read from a part of a snapshot."""

    name: str
    """Name without the prefix `sparktop_`, and for a counter without the suffix `_total`."""
    text: str
    """The help text: one sentence, or more."""
    read: Callable[[Part], Iterable[Point]]
    """Returns one point for each series of the part, such as one backend."""
    labels: tuple[str, ...] = ()
    """The metric's own labels, beside those that name the part."""
    is_counter: bool = False

    @property
    def full_name(self) -> str:
        """The name as it is on the page."""
        return f"{PREFIX}{self.name}{'_total' if self.is_counter else ''}"


def label_of(name: str) -> str:
    """Return a name as the value of a label: clean, bounded, and of a URL only host, port and path."""
    _, scheme, place = name.rpartition("://")
    if scheme:
        host, slash, path = place.partition("?")[0].partition("/")
        name = f"{host.rpartition('@')[2]}{slash if path else ''}{path}"
    return clean(name, LABEL_LIMIT)


def _value(name: str, text: str, read: Callable[[Part], float | None]) -> Metric[Part]:
    """Return a metric with one series for each part."""
    return Metric(name, text, lambda part: (((), read(part)),))


def _word(name: str, label: str, text: str, read: Callable[[Part], str | None]) -> Metric[Part]:
    """Return a metric whose label `label` is the word that holds, with the value 1."""

    def points(part: Part) -> Iterator[Point]:
        word = read(part)
        if word is not None:
            yield (word,), 1.0

    return Metric(name, text, points, (label,))


def _share(percent: float | None) -> float | None:
    return None if percent is None else percent / 100


def _times(factor: float, value: float | None) -> float | None:
    return None if value is None else value * factor


def _quantile(
    title: str, read: Callable[[BackendView], Latency], name: str, percent: int
) -> Metric[BackendView]:
    def points(view: BackendView) -> Iterator[Point]:
        found: Quantile | None = getattr(read(view), f"p{percent}")
        if found is not None:
            bound = "below" if found.below else "above" if found.above else "exact"
            yield ("in_bucket" if found.bucket_s else bound,), found.seconds

    text = (
        f'{title}, p{percent} of the last 60 s; bound="below" or "above": less or more than this, '
        '"in_bucket": interpolated in a bucket whose upper edge is twice its lower one or more.'
    )
    return Metric(f"backend_{name}_p{percent}_seconds", text, points, ("bound",))


_LATENCIES: tuple[tuple[str, str, Callable[[BackendView], Latency]], ...] = (
    ("ttft", "Time to first token", lambda view: view.ttft),
    ("itl", "Time between two tokens", lambda view: view.itl),
    ("e2e", "Duration of a request", lambda view: view.e2e),
    ("queue", "Time in the queue", lambda view: view.queue),
)

BACKEND: tuple[Metric[BackendView], ...] = (
    _word(
        "backend_state",
        "state",
        "1 for the state that a server is in, such as queueing or stuck.",
        lambda view: None if view.state is BackendState.UNKNOWN else view.state.value,
    ),
    _word(
        "backend_limit",
        "limit",
        "1 for what a server is limited by, such as slots or memory bandwidth.",
        lambda view: (
            None
            if view.limited_by is None or view.limited_by.kind is LimitKind.UNKNOWN
            else view.limited_by.kind.value
        ),
    ),
    _word(
        "backend_standstill",
        "word",
        "1 for the verdict on a server that holds requests without progress, such as long step or stuck.",
        lambda view: None if view.progress is None else view.progress.word.value,
    ),
    _value(
        "backend_no_progress_seconds",
        "Seconds without any progress, of a server that holds requests.",
        lambda view: None if view.progress is None else view.progress.seconds,
    ),
    _value(
        "backend_loading_left_seconds",
        "Seconds that a server still needs to load its model, by earlier starts.",
        lambda view: None if view.loading is None else view.loading.left_s,
    ),
    _value(
        "backend_step_seconds",
        "Mean duration of an engine step over 10 s; only while all engine cores have requests.",
        lambda view: _times(1e-3, view.step_ms),
    ),
    _value(
        "backend_tokens_per_step",
        "Mean tokens in an engine step, prompt and generated, over 60 s.",
        lambda view: view.tokens_per_step,
    ),
    _value(
        "backend_batch_per_step",
        "The older name of backend_tokens_per_step.",
        lambda view: view.tokens_per_step,
    ),
    _value(
        "backend_read_bytes_per_second",
        "Bytes that the engine reads from memory, as it estimates them, over 10 s.",
        lambda view: _times(_GIGA, view.estimated_read_gb_per_s),
    ),
    _value(
        "backend_roofline_ratio",
        "Those bytes as a share of the memory bandwidth, where that is known.",
        lambda view: _share(view.roofline_percent),
    ),
    _value(
        "backend_kv_fullest_ratio",
        "Used share of the KV cache of the fullest engine core.",
        lambda view: _share(view.kv_fullest_percent),
    ),
    _value(
        "backend_rate_window_seconds",
        "Seconds that the rates over 10 s really cover, fewer after a start.",
        lambda view: view.rate_window_s,
    ),
    *(_quantile(title, read, name, percent) for name, title, read in _LATENCIES for percent in (50, 95)),
    _value("backend_age_seconds", "Seconds since the newest answer of a server.", lambda view: view.age_s),
)
"""The metrics of a server, at most 25 series."""


def _members(
    values: Callable[[Balance], Iterable[tuple[str, float | None]]],
) -> Callable[[Balance], Iterator[Point]]:
    def points(found: Balance) -> Iterator[Point]:
        for name, value in values(found):
            yield (label_of(name),), value

    return points


GROUP: tuple[Metric[Balance], ...] = (
    _word(
        "group_word",
        "word",
        "1 for the verdict on how evenly a group is loaded: balanced, oscillating, starved, uneven or "
        "idle; none where it is unknown.",
        lambda found: None if found.word is BalanceWord.UNKNOWN else found.word.value,
    ),
    _value(
        "group_bad",
        "1 where the verdict calls for action: the router is known, and no sweep loads the group.",
        lambda found: float(found.bad),
    ),
    _value(
        "group_confidence_ratio",
        "How far the deciding value is beyond its limit, less a deduction for missing samples.",
        lambda found: found.confidence,
    ),
    _value("group_window_seconds", "Seconds that were judged.", lambda found: found.window_s or None),
    _value("group_sample_hertz", "Samples of each member a second.", lambda found: found.sample_hz),
    _value(
        "group_period_seconds",
        "Period of the load's swing, while it oscillates.",
        lambda found: found.period_s,
    ),
    _value(
        "group_dispersion",
        "Spread of the load over that of random routing: 1 is random, near 0 even, far above 1 herding.",
        lambda found: found.dispersion_z,
    ),
    _value(
        "group_lead_changes_per_second",
        "How often another member has the most load, in the window.",
        lambda found: _times(1 / 60, found.lead_changes_per_min),
    ),
    _value(
        "group_lost_ratio",
        "Share of the tokens lost, against the best split of the same requests.",
        lambda found: _share(found.lost_percent),
    ),
    _value(
        "group_skew_ratio",
        "Mean load above its share, of the member that is furthest above.",
        lambda found: found.skew,
    ),
    _value(
        "group_free_slot_ratio",
        "Share of the time in which a member had a free slot while requests waited at another.",
        lambda found: _share(found.free_slot_percent),
    ),
    Metric(
        "group_starved_ratio",
        "Share of the time with next to no work while another member had more than its share.",
        _members(lambda found: [(name, _share(part)) for name, part in found.starved_percent.items()]),
        ("member",),
    ),
    Metric(
        "group_request_share_ratio",
        "A member's part of the requests that the group received in the window.",
        _members(lambda found: found.requests_share.items()),
        ("member",),
    ),
)
"""The metrics of a group, at most 15 series and two for each member."""


def _throttled(view: NodeView) -> Sequence[Point]:
    worst = sorted(view.throttled_percent.items(), key=lambda item: (-item[1], item[0]))
    return [((reason,), percent / 100) for reason, percent in worst[:MOST_REASONS]]


NODE: tuple[Metric[NodeView], ...] = (
    _word(
        "node_speed",
        "word",
        "1 for the verdict on a GPU's speed: idle, normal, throttled, slow clock or slow steps.",
        lambda view: None if view.speed.word == "unknown" or not view.ok else view.speed.word,
    ),
    _value(
        "node_headroom_bytes",
        "Memory that programs can still allocate.",
        lambda view: None if view.sample is None else view.sample.memory.headroom_bytes,
    ),
    _value(
        "node_headroom_slope_bytes_per_second",
        "Change of headroom over the last minutes; negative while it falls.",
        lambda view: view.headroom.slope_bytes_per_s,
    ),
    _value(
        "node_headroom_limit_bytes", "The critical limit of headroom.", lambda view: view.headroom.limit_bytes
    ),
    _value(
        "node_headroom_end_seconds",
        "Seconds until headroom reaches that limit at this pace, while it falls.",
        lambda view: view.headroom.until_limit_s,
    ),
    Metric(
        "node_throttled_ratio",
        "Share of the last minute in which a GPU was throttled, of the GPU with the highest share.",
        _throttled,
        ("reason",),
    ),
    _value("node_age_seconds", "Seconds since the newest sample of a machine.", lambda view: view.age_s),
)
"""The metrics of a machine, at most 10 series."""


class Own(Struct, frozen=True):
    """What the program reports about itself."""

    snapshot: Snapshot
    left_out: int
    """Number of servers, groups and machines beyond the limit, which have no series."""


def _last_poll_s(own: Own) -> float | None:
    found = own.snapshot
    ages = [
        *(view.age_s for view in found.backends),
        *(view.age_s for view in found.nodes),
        *(view.age_s for view in found.routers),
    ]
    return min((age for age in ages if age is not None), default=None)


def _polls(own: Own) -> Iterator[Point]:
    for name, ms in islice(own.snapshot.self_cost.poll_ms.items(), MOST_POLLS):
        yield (label_of(name),), ms / 1000


INFO: Metric[str] = Metric(
    "self_info", "The version of sparktop.", lambda version: (((version,), 1.0),), ("version",)
)
"""Of the version; in OpenMetrics it has a type of its own."""

SELF: tuple[Metric[Own], ...] = (
    _value("self_up", "1 while sparktop export answers.", lambda _: 1.0),
    _value("self_simulated", "1 where what is watched is simulated.", lambda own: own.snapshot.simulated),
    _value("self_last_look_seconds", "Seconds since the newest answer of anything watched.", _last_poll_s),
    Metric(
        "self_poll_seconds",
        "Duration of the newest poll, by type and name of what was polled.",
        _polls,
        ("source",),
    ),
    _value(
        "self_cpu_ratio",
        "CPU time that sparktop uses; 1 is one core.",
        lambda own: _share(own.snapshot.self_cost.cpu_percent),
    ),
    _value("self_rss_bytes", "Memory that sparktop uses.", lambda own: own.snapshot.self_cost.rss_bytes),
    _value(
        "self_left_out",
        "Servers, groups and machines without series, because there are more than 512.",
        lambda own: own.left_out,
    ),
)
"""The metrics of the program itself."""

ALERT: Metric[Iterable[tuple[str, ...]]] = Metric(
    "alert",
    "1 for each alert that holds now. The subject is the name of a server, router, machine or group.",
    lambda found: [(labels, 1.0) for labels in found],
    ("kind", "subject", "severity"),
)
EVENTS: Metric[Iterable[tuple[str, int]]] = Metric(
    "events",
    "Events since the start, by kind: alerts that began or became worse, and restarts.",
    lambda found: [((kind,), count) for kind, count in found],
    ("kind",),
    is_counter=True,
)
