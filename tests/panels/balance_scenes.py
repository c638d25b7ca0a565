"""Groups to draw: the recorded traces of real servers, and made-up herds of more."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cache

from msgspec.structs import replace

from sparktop.analysis.balance.judge import judge
from sparktop.analysis.balance.load_grid import GroupLoad, LoadTrack
from sparktop.model.balance import Balance
from sparktop.model.router import RouterSample, RouterView
from sparktop.model.series import HistoryTable
from sparktop.model.snapshot import (
    BackendHistory,
    BackendState,
    BackendView,
    Snapshot,
)
from tests.analysis.balance import routed_load
from tests.analysis.balance.balance_traces import LIFE_S, trace
from tests.analysis.balance.routed_load import cut

START = datetime(2026, 1, 15, 9, 0, 0, tzinfo=UTC)
_GAUGES = ("running", "waiting", "generation_tps")


def histories(track: LoadTrack, until: float) -> HistoryTable:
    """Return what a store would have kept of a track up to `until`."""
    table = HistoryTable(BackendHistory.__struct_fields__, 5000)
    columns = (track.running, track.waiting, track.generation_tps)
    for index, time in enumerate(track.times_s):
        if time <= until:
            told = (math.nan if column is None else column[index] for column in columns)
            known = (None if math.isnan(value) else value for value in told)
            table.append(time, dict(zip(_GAUGES, known, strict=True)))
    return table


def backend(track: LoadTrack, until: float, group: str) -> BackendView:
    """Return a backend with the history of a track."""
    history = BackendHistory(**histories(track, until).series())
    return BackendView(
        track.name,
        f"http://{track.name}:8000",
        group,
        state=BackendState.BUSY,
        age_s=0.2,
        running=history.running.last,
        waiting=history.waiting.last,
        generation_tps=history.generation_tps.last,
        history=history,
    )


def group_of(
    tracks: Sequence[LoadTrack], life_s: float | None, until: float, *, group: str, strategy: str
) -> tuple[Balance, tuple[BackendView, ...]]:
    """Judge a group at `until`; return it and its backends."""
    seen = tuple(cut(track, until - 700, until) for track in tracks)
    found = judge(GroupLoad(group, seen, life_s, strategy), until)
    since = START + timedelta(seconds=until - 40)
    found = replace(found, since=since, strategy=strategy, e2e_s=life_s)
    return found, tuple(backend(track, until, group) for track in tracks)


def snapshot_of(
    balance: Balance, backends: tuple[BackendView, ...], until: float, router: RouterView | None = None
) -> Snapshot:
    """Return a snapshot with one group."""
    return Snapshot(
        taken_at=START + timedelta(seconds=until),
        at=until + 0.1,
        interval_s=1.0,
        node_interval_s=2.0,
        backends=backends,
        routers=() if router is None else (router,),
        balance=(balance,),
    )


@cache
def traced(name: str, until: float | None = None) -> Snapshot:
    """Return a recorded trace as it was at `until`, or at its end if None."""
    tracks = trace(name)
    at = tracks[0].times_s[-1] if until is None else until
    strategy = "simple-shuffle" if "shuffle" in name else "least-busy"
    found, backends = group_of(tracks, LIFE_S[name], at, group="proxy", strategy=strategy)
    router = RouterView(
        "proxy",
        "http://proxy:4000",
        strategy=strategy,
        strategy_read=True,
        sample=RouterSample(at, alive=True),
        age_s=0.1,
        backends=found.backends,
    )
    return snapshot_of(found, backends, at, router)


@cache
def herd(backends: int, group: str = "herd") -> Snapshot:
    """Return backends of which one after the other gets all requests of a lifetime."""
    tracks = routed_load.herd(backends, 10.0, per_s=1.6 * backends)
    found, views = group_of(tracks, 10.0, 120.0, group=group, strategy="least-busy")
    return snapshot_of(found, views, 120.0)
