"""Where a source's figures come from, for the edge of its panel: a Prometheus, and how old its sample is."""

from __future__ import annotations

from sparktop.graphics import numbers
from sparktop.model.fleet import Scrape, stale_s
from sparktop.model.snapshot import NodeView
from sparktop.panels.parts.figures import label
from sparktop.panels.parts.rows import Row


def scraped(scrape: Scrape, age_s: float | None) -> Row:
    """Return which Prometheus a source is read from, and the age of its newest sample."""
    old = "no sample yet" if age_s is None else f"{numbers.age(age_s)} old"
    late = age_s is not None and age_s > stale_s(scrape.every_s)
    return [(f" {scrape.source} every {scrape.every_s:g} s, {old} ", "warn" if late else "muted")]


def read_by(view: NodeView, *more: str | None) -> Row:
    """Return how a node is read, and `more` words, as far as known; of a Prometheus with the sample's age."""
    if view.scrape is not None:
        return scraped(view.scrape, view.age_s)
    return [label(f" {' · '.join(part for part in (view.via, *more) if part)} ")]
