"""Ours beside Prometheus', figure by figure: what deviates how much, and whether it may."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sparktop.model.snapshot import BackendView, Latency, Quantile
from sparktop.panels.parts.figures import quantile_text
from tests.prometheus.instants import Instant
from tests.prometheus.panels import PANELS, Figure, Kind, Panel
from tests.prometheus.prometheus_server import Prometheus, bucket_quantile
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
    raw: float | None
    """The same from the first and the last of its own samples in the window, without extrapolation."""
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
    parts = [await prometheus.raw(part.replace("$of", of), panel.window_s, at_ms) for part in panel.parts]
    if not parts or not all(parts):
        return Answer(panel, instant, value, None)
    if panel.kind is Kind.QUANTILE:
        buckets = [(float(series.labels["le"]), series.counted) for series in parts[0]]
        bounds = tuple(sorted(bound for bound, _ in buckets))
        return Answer(panel, instant, value, bucket_quantile(panel.share, buckets), bounds)
    if panel.kind is Kind.RATE:
        raw = sum(series.counted / series.span_s if series.span_s else math.nan for series in parts[0])
        return Answer(panel, instant, value, raw)
    part, whole = (sum(series.counted for series in part) for part in parts)
    return Answer(panel, instant, value, part / whole if whole else math.nan)


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


def _shown(ours: Figure) -> str:
    """Return a figure as a number; if it is only a bound, in the screen's words."""
    if isinstance(ours, Quantile):
        return quantile_text(ours).strip() if ours.below or ours.above else _number(ours.seconds)
    return _number(ours)


def table(judged: Mapping[str, list[Row]], free: Mapping[str, list[Row]]) -> str:
    """Return a table of the worst instant of each figure of each server, and of instants with other edges."""
    lines = [
        "| server | quantity | Prometheus | ours | deviation | from raw samples | instants | any instant | |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for server, rows in judged.items():
        for panel in PANELS:
            mine = [row for row in rows if row.answer.panel is panel]
            others = [row for row in free[server] if row.answer.panel is panel]
            lines.append(_line(server, mine, others))
    queries = [f"{panel.name}: `{panel.query}`" for panel in PANELS]
    return "\n".join([*queries, "", *lines, "", *_edges(judged)])


def _edges(judged: Mapping[str, list[Row]]) -> list[str]:
    """Return, for each server, how far both readings of the windows' edges are apart."""
    lines: list[str] = []
    for server, rows in judged.items():
        instants = [row.answer.instant for row in rows if row.answer.panel is PANELS[0]]
        apart = ", ".join(f"{one.apart_tokens:g} ({one.apart_ms:.0f} ms)" for one in instants)
        lines.append(f"{server}: tokens generated between both readings of the three edges: {apart}")
    return lines


def _line(server: str, rows: list[Row], others: list[Row]) -> str:
    worst = max(rows, key=_badness)
    answer = worst.answer
    percents = [abs(row.percent) for row in others if row.percent is not None]
    reasons = [row.why for row in rows]
    counts = ", ".join(f"{reasons.count(why)} {why}" for why in dict.fromkeys(reasons))
    deviation = "" if worst.percent is None else f"{worst.percent:+.2f} %"
    free = f"{max(percents):.2f} %" if percents else ""
    cells = [server, answer.panel.name, _number(answer.value), _shown(worst.ours), deviation]
    cells += [_number(answer.raw), counts, free, "ok" if all(row.holds for row in rows) else "WRONG"]
    return f"| {' | '.join(cells)} |"


def _badness(row: Row) -> tuple[bool, float]:
    return not row.holds, -1.0 if row.percent is None else abs(row.percent)


def _number(value: float | None) -> str:
    return "–" if value is None else "NaN" if math.isnan(value) else f"{value:.4g}"
