"""The page of `sparktop export`: the metric families of a snapshot, with bounded labels and series."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

from msgspec.structs import replace
from prometheus_client.core import InfoMetricFamily
from prometheus_client.core import Metric as Family

from sparktop import __version__
from sparktop.agent.exposition import node_families
from sparktop.agent.families import counter, gauge
from sparktop.analysis.roles import Role
from sparktop.export.metrics import (
    ALERT,
    BACKEND,
    EVENTS,
    GROUP,
    INFO,
    LABEL_LIMIT,
    NODE,
    PREFIX,
    SELF,
    Metric,
    Own,
    label_of,
)
from sparktop.export.sweeps import LEVEL, Level
from sparktop.model.balance import Balance
from sparktop.model.event import ALERT_KINDS, Alert, Event, Phase
from sparktop.model.snapshot import BackendView, NodeView, Snapshot
from sparktop.model.text import clean
from sparktop.report.current import current

MOST_SUBJECTS = 512
"""Servers, groups and machines that have series; further ones are counted."""
MOST_MEMBERS = 64
"""Members of a group that have series."""
MOST_ALERTS = 512
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
Part = TypeVar("Part")
Labels = Mapping[str, str]
Named = Sequence[tuple[Labels, Part]]
"""Parts of a snapshot, each with the labels that name it."""


def metric_tables() -> list[tuple[str, tuple[str, ...], Sequence[Metric[Any]]]]:
    """Return (title, labels that all its metrics have, metrics) for each kind of part of a page."""
    return [
        ("Servers", ("backend",), BACKEND),
        ("Groups", ("group", "scope"), GROUP),
        ("Machines", ("node",), NODE),
        ("Alerts and events", (), (ALERT, EVENTS)),
        ("The newest sweep", ("target", "load", "prompt_tokens", "depth"), LEVEL),
        ("The program itself", (), (INFO, *SELF)),
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
    snapshot: Snapshot, events: Iterable[tuple[str, int]] = (), levels: Sequence[Level] = ()
) -> list[Family]:
    """Return all families of the page; what is unknown, or not current, has no series.

    `events` are numbers of events by kind, `levels` those of the newest sweep.
    """
    found = current(snapshot)
    room = _Room(MOST_SUBJECTS)
    backends: Named[BackendView] = room.take("backend", [(view.name, view) for view in found.backends])
    nodes: Named[NodeView] = room.take("node", [(view.name, view) for view in found.nodes])
    groups = [_few(one) for one in found.balance]
    names = group_names(groups, found.backends)
    silent = {one.group for one in groups if _is_silent(one, found.backends)}
    named = [(name, one) for name, one in zip(names, groups, strict=True) if one.group not in silent]
    judged: Named[Balance] = [
        ({**labels, "scope": "servers" if one.lanes_of is None else "cores"}, one)
        for labels, one in room.take("group", named)
    ]
    version = InfoMetricFamily(f"{PREFIX}{INFO.name.removesuffix('_info')}", INFO.text)
    version.add_metric((), {"version": __version__})
    group_of = dict(zip((one.group for one in groups), names, strict=True))
    alerts = _alerts(found, group_of, silent)
    return [
        version,
        *_families(SELF, [({}, Own(found, room.left_out))]),
        *_families(BACKEND, backends),
        *_families(GROUP, judged),
        *_families(NODE, nodes),
        *_without_agent(nodes, simulated=found.simulated),
        *_families((ALERT,), [({}, alerts)]),
        *_families((EVENTS,), [({}, events)]),
        *_families(LEVEL, [(one.labels(), one) for one in levels]),
    ]


class _Room:
    """Names parts of a snapshot as long as there is room for more series."""

    def __init__(self, most: int) -> None:
        self._left = most
        self.left_out = 0

    def take(self, label: str, parts: Sequence[tuple[str, Part]]) -> list[tuple[dict[str, str], Part]]:
        """Return ({`label`: name}, part) for the parts that there is room for, each name once."""
        named: dict[str, Part] = {}
        for name, part in parts:
            named.setdefault(label_of(name), part)
        kept = list(islice(named.items(), self._left))
        self._left -= len(kept)
        self.left_out += len(parts) - len(kept)
        return [({label: name}, part) for name, part in kept]


def group_names(groups: Sequence[Balance], backends: Sequence[BackendView]) -> list[str]:
    """Return a name for each group that holds no name of a model.

    It is the name of the router, or of the server whose cores are judged, else of the group's first server;
    the role of its members follows where groups are judged by role. A repeated name gets a number.
    """
    names: list[str] = []
    for one in groups:
        role = next((f" {role}" for role in Role if one.group.endswith(f" {role}")), "")
        title = one.group.removesuffix(role)
        members = [view.name for view in backends if view.group in {one.group, title}]
        first = next(iter(members or one.backends), OTHER)
        base = f"{one.lanes_of or one.router or first}{role if one.lanes_of is None else ' cores'}"
        count = sum(name == base or name.startswith(f"{base} #") for name in names)
        names.append(f"{base} #{count + 1}" if count else base)
    return names


def _is_silent(one: Balance, backends: Sequence[BackendView]) -> bool:
    """Return whether no server of a group answers, so that its newest verdict is not current."""
    titles = {one.group, *(one.group.removesuffix(f" {role}") for role in Role)}
    members = [
        view
        for view in backends
        if (view.group in titles if one.lanes_of is None else view.name == one.lanes_of)
    ]
    return bool(members) and all(view.failure is not None for view in members)


def _few(found: Balance) -> Balance:
    """Return a group with at most `MOST_MEMBERS` members."""
    if len(found.requests_share) <= MOST_MEMBERS and len(found.starved_percent) <= MOST_MEMBERS:
        return found
    return replace(
        found,
        starved_percent=dict(islice(found.starved_percent.items(), MOST_MEMBERS)),
        requests_share=dict(islice(found.requests_share.items(), MOST_MEMBERS)),
    )


def _alerts(
    snapshot: Snapshot, group_of: Mapping[str, str], silent: Collection[str]
) -> list[tuple[str, ...]]:
    """Return (kind, subject, severity) of the alerts, the gravest first; no subject is a model's name.

    Verdicts on the groups `silent`, of which no server answers, are left out.
    """
    views = (snapshot.backends, snapshot.nodes, snapshot.routers)
    watched = {view.name for part in views for view in part}
    worst: Sequence[Alert] = sorted(snapshot.alerts, key=lambda one: -one.severity.rank)
    found: dict[tuple[str, ...], None] = {}
    current_ones = (one for one in worst if one.subject not in silent or not one.id.startswith(_BALANCE))
    for alert in islice(current_ones, MOST_ALERTS):
        kind = alert.id.rpartition(":")[2].partition("/")[0]
        own = alert.subject if alert.subject in watched else OTHER
        subject = group_of.get(alert.subject, own) if alert.id.startswith(_BALANCE) else own
        found[clean(kind, LABEL_LIMIT), label_of(subject), alert.severity.value] = None
    return list(found)


def _families(metrics: Iterable[Metric[Part]], parts: Named[Part]) -> Iterator[Family]:
    """Yield a family for each of `metrics` that has a finite value in at least one part.

    Of two values with the same labels the first is kept: Prometheus refuses a page with repeated series.
    """
    for metric in metrics:
        name = f"{PREFIX}{metric.name}"
        family = counter(name, metric.text) if metric.is_counter else gauge(name, metric.text)
        for labels, part in parts:
            taken: set[tuple[str, ...]] = set()
            for values, number in metric.read(part):
                if number is not None and math.isfinite(number) and values not in taken:
                    taken.add(values)
                    own = dict(zip(metric.labels, values, strict=True))
                    family.add_sample(metric.full_name, {**labels, **own}, float(number))
        if family.samples:
            yield family


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
            kept = merged.setdefault(family.name, family)
            samples = [one._replace(labels={**labels, **one.labels}) for one in family.samples]
            kept.samples = samples if kept is family else [*kept.samples, *samples]
    return list(merged.values())
