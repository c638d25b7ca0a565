"""What held the servers of a level back, as its result stores it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparktop.sweep.plan.plan import TargetKind
from sparktop.sweep.result.results import LimitSide
from sparktop.sweep.run.limit_log import LimitLog, Part, level_limit
from sparktop.sweep.run.preparation import PreparedTarget
from sparktop.sweep.run.server_side import Span


def limit_side(
    prepared: PreparedTarget, log: LimitLog, loaded: Sequence[Span], busy: Mapping[str, float]
) -> LimitSide | None:
    """Return what held the servers of `prepared` back while requests were in flight; None if unknown.

    `loaded` has the spans of time with requests in flight, `busy` the mean batch size by server.
    """
    names, target = prepared.backends, prepared.target
    parts = [Part(name, prepared.placed.get(name, ()), prepared.slots.get(name)) for name in names]
    router = target.name if target.kind is TargetKind.ROUTER else None
    found = level_limit(log.judge(parts, loaded, router), busy)
    if found is None:
        return None
    name, limit = found
    server = name if len(names) > 1 else None
    return LimitSide(kind=limit.kind.value, reason=limit.reason, hint=limit.hint, server=server)
