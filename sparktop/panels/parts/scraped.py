"""Where a source's figures come from, for the edge of its panel: a Prometheus, and how old its sample is."""

from __future__ import annotations

from sparktop.graphics import numbers
from sparktop.model.failure import FailureKind
from sparktop.model.fleet import Scrape, stale_s
from sparktop.model.snapshot import NodeView
from sparktop.panels.parts.figures import label
from sparktop.panels.parts.rows import Row


def scraped(scrape: Scrape, age_s: float | None) -> Row:
    """Return which Prometheus a source is read from, and the age of its newest sample."""
    old = "no sample yet" if age_s is None else f"{numbers.age(age_s)} old"
    late = age_s is not None and age_s > stale_s(scrape.every_s)
    return [(f" {scrape.source} every {scrape.every_s:g} s, {old} ", "warn" if late else "muted")]


def is_stale(view: NodeView) -> bool:
    """Return whether the newest sample of a node through a Prometheus is old."""
    return view.failure is not None and view.failure.kind is FailureKind.LATE


def has_failed(view: NodeView) -> bool:
    """Return whether a node does not answer, except where it is not asked itself."""
    return view.failure is not None and not is_stale(view)


def failure_role(view: NodeView) -> str:
    """Return the role of a node's failure: a node whose Prometheus fails is not at fault."""
    return "warn" if is_stale(view) else "bad"


def failed_since(view: NodeView) -> str:
    """Return since when a node fails, and how old its figures are: " since 09:00:07, figures 16 s old".

    "" where neither is known. The age of a sample through a Prometheus stands in the upper edge.
    """
    since = "" if view.failing_since is None else f" since {view.failing_since.astimezone():%H:%M:%S}"
    if view.age_s is None or is_stale(view):
        return since
    return f"{since}, figures {numbers.age(view.age_s)} old"


def read_by(view: NodeView, *more: str | None) -> Row:
    """Return how a node is read, and `more` words, as far as known; of a Prometheus with the sample's age."""
    if view.scrape is not None:
        return scraped(view.scrape, view.age_s)
    return [label(f" {' · '.join(part for part in (view.via, *more) if part)} ")]
