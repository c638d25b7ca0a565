"""Sweeps to draw: one that runs, one that is done, and the published table."""

from __future__ import annotations

from functools import cache

from msgspec.structs import replace

from sparktop.model.load import Level, concurrency_point
from sparktop.model.sweep import LevelEvidence, SweepView, SweptTarget, Topologies
from sparktop.sweep.compare.compare import compare
from sparktop.sweep.compare.series import load_reference, published_series
from sparktop.sweep.result.results import SweepResult, Validity
from sparktop.sweep.view.result import result_view, topologies
from tests.known import known
from tests.sweep.made_results import made_level, made_sweep
from tests.sweep.played_sweeps import PlayedSweep

REFERENCE = "spark-topologies-2026-03"


@cache
def result() -> SweepResult:
    """Return a sweep of a server and of a router in front of two."""
    doubt = Validity(code="too_short", message="all runs together lasted 7.6 s, it takes 10 s")
    made = (made_level(1), made_level(2, step=0.2), made_level(4, step=0.15))
    levels = tuple(level.model_copy(update={"validity": (doubt,)}) for level in made)
    return made_sweep(("spark-a", levels), ("proxy", levels), preset="quick").model_copy(
        update={"simulated": True}
    )


@cache
def running() -> SweepView:
    """Return the sweep with two levels done and the third half way."""
    played = PlayedSweep(result())
    played.level("spark-a", 1)
    played.level("spark-a", 2)
    played.view.sample(played.snapshot())
    played.run("spark-a", 4, 0)
    played.run("spark-a", 4, 1, upto_s=1.5)
    return played.view.view()


@cache
def done() -> SweepView:
    """Return the sweep as read from its file, with the published table over its curves."""
    return result_view(result(), references=[load_reference(REFERENCE)])


@cache
def finished() -> SweepView:
    """Return the sweep just after its end, with its tracks."""
    played = PlayedSweep(result())
    played.whole()
    return played.view.view()


@cache
def evidence() -> LevelEvidence:
    """Return the evidence on the router's level with four requests at once."""
    played = PlayedSweep(result())
    played.whole()
    return known(played.view.evidence(Level("proxy", concurrency_point(4), 100, 4)))


@cache
def published() -> Topologies:
    """Return the four published topologies."""
    reference = load_reference(REFERENCE)
    return topologies(compare(published_series(reference)), published_series(reference))


def renamed(view: SweepView, name: str) -> SweepView:
    """Return a view whose first target has another name."""
    first, *others = view.targets
    old = first.name

    def key(one: Level) -> Level:
        return replace(one, target=name) if one.target == old else one

    return replace(
        view,
        title=name,
        targets=(SweptTarget(name, first.kind), *others),
        levels=tuple(replace(one, key=key(one.key)) for one in view.levels),
        rows=tuple(replace(one, key=key(one.key)) for one in view.rows),
    )


@cache
def starting() -> SweepView:
    """Return the sweep before its first event."""
    return PlayedSweep(result()).view.view()


def with_servers(view: SweepView, count: int) -> SweepView:
    """Return a view in which `count` servers carry the load."""
    live = known(view.live)
    first = live.backends[0]
    servers = tuple(replace(first, name=f"spark-{index}") for index in range(count))
    return replace(view, live=replace(live, backends=servers))
