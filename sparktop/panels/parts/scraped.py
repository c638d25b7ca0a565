"""Where a source's figures come from, for the edge of its panel: a Prometheus, and how old its sample is."""

from __future__ import annotations

from sparktop.graphics import numbers
from sparktop.model.failure import FailureKind
from sparktop.model.fleet import Scrape, stale_s
from sparktop.model.snapshot import BackendView, NodeView
from sparktop.panels.parts.figures import label
from sparktop.panels.parts.rows import Row

_SLOW_PAGE_MS = 1000.0
"""From here on the age of the figures is shown: the page is computed at a time that is not known."""


def scraped(scrape: Scrape, age_s: float | None) -> Row:
    """Return which Prometheus a source is read from, and the age of its newest sample."""
    old = "no sample yet" if age_s is None else f"{numbers.age(age_s)} old"
    late = age_s is not None and age_s > stale_s(scrape.every_s)
    return [(f" {scrape.source} every {scrape.every_s:g} s, {old} ", "warn" if late else "muted")]


def slow_page(view: BackendView) -> str:
    """Return how long a server takes for its metrics page, and how old its figures are; "" below a second."""
    if view.poll_ms is None or view.poll_ms < _SLOW_PAGE_MS or view.age_s is None or view.failure is not None:
        return ""
    old = numbers.age(view.age_s + view.poll_ms / 1000)
    return f"page takes {view.poll_ms / 1000:.1f} s, figures up to {old} old"


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
