"""Ours beside Prometheus', figure by figure: what deviates how much, and whether it may."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sparktop.model.snapshot import BackendView, Latency, Quantile
from tests.prometheus.instants import Instant
from tests.prometheus.panels import PANELS, Figure, Kind, Panel
from tests.prometheus.prometheus_server import Prometheus
from tests.prometheus.recording import Poll

TOLERANCE_PERCENT = {Kind.RATE: 3.0, Kind.MEAN: 2.0, Kind.QUANTILE: 2.0, Kind.GAUGE: 1e-9}
"""Of Prometheus' value. A gauge is the same number, in percent or as a share."""
FEWEST = 5
"""Observations below which we show no quantile."""


@dataclass(frozen=True)
class Answer:
    """What Prometheus says of one figure at one instant."""

    panel: Panel
    instant: Instant
    value: float | None
    """None where it has no series; NaN where nothing was divided by nothing."""
    bounds: tuple[float, ...] = ()
    """Of the buckets."""

    @property
    def known(self) -> float | None:
        """The value, None for NaN."""
        return None if self.value is None or math.isnan(self.value) else self.value


@dataclass(frozen=True)
class Row:
    """One figure at one instant."""

    server: str
    answer: Answer
    ours: Figure
    percent: float | None
    """How far ours deviates; None where there are not two numbers."""
    holds: bool
    why: str


async def ask(name: str, instants: Iterable[Instant], prometheus: Prometheus) -> list[Answer]:
    """Ask for every figure of a server at every instant."""
    return [
        await _ask(f'server="{name}"', panel, instant, prometheus) for instant in instants for panel in PANELS
    ]


async def _ask(of: str, panel: Panel, instant: Instant, prometheus: Prometheus) -> Answer:
    at_ms = instant.at_ms[panel.window_s]
    value = await prometheus.value(panel.query.replace("$of", of), at_ms)
    buckets = (
        await prometheus.raw(panel.buckets.replace("$of", of), panel.window_s, at_ms) if panel.buckets else ()
    )
    return Answer(panel, instant, value, tuple(sorted(float(one.labels["le"]) for one in buckets)))


def judge(server: str, answers: Iterable[Answer], polls: Sequence[Poll]) -> list[Row]:
    """Compare what was shown after our polls with the answers."""
    return [_judge(server, answer, polls) for answer in answers]


def _judge(server: str, answer: Answer, polls: Sequence[Poll]) -> Row:
    panel, view = answer.panel, polls[answer.instant.end].view
    ours, theirs = panel.ours(view), answer.known
    if ours is None:
        why = _silence(answer, view)
        return Row(server, answer, ours, None, why is not None, why or "ours is missing")
    if theirs is None:
        return Row(server, answer, ours, None, holds=False, why="Prometheus knows of none")
    number = ours.seconds if isinstance(ours, Quantile) else ours
    if isinstance(ours, Quantile) and (ours.below or ours.above):
        holds = 0 <= theirs <= number == answer.bounds[0] if ours.below else theirs == number
        return Row(server, answer, ours, None, holds, "edge" if holds else "ours is at an edge")
    percent = 0.0 if number == theirs else 100 * (number - theirs) / theirs if theirs else math.inf
    if abs(percent) <= TOLERANCE_PERCENT[panel.kind]:
        return Row(server, answer, ours, percent, holds=True, why="near")
    if panel.kind is Kind.QUANTILE and _bucket(answer.bounds, number) == _bucket(answer.bounds, theirs):
        return Row(server, answer, ours, percent, holds=True, why="same bucket")
    return Row(server, answer, ours, percent, holds=False, why="too far")


def _silence(answer: Answer, view: BackendView) -> str | None:
    """Return the reason for which we may show nothing; None if we should have shown a figure."""
    if answer.known is None:
        return "no traffic"
    if answer.panel.kind is not Kind.QUANTILE:
        return None
    latency: Latency = getattr(view, answer.panel.latency)
    return "too few" if latency.count is not None and 0 < latency.count < FEWEST else None


def _bucket(bounds: Sequence[float], seconds: float) -> int:
    return sum(bound < seconds for bound in bounds)
