"""Collects samples of the servers during a level: batch sizes, queues, KV caches, and load balance."""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct, field
from msgspec.structs import replace

from sparktop.model.balance import Balance
from sparktop.model.snapshot import BackendView, Snapshot
from sparktop.model.sweep_view import BackendShare
from sparktop.sweep.result.results import LevelResult
from sparktop.sweep.view.grid import MOST_SLOTS

_NOT_YET = -1.0


class _Seen(Struct, eq=False):
    """Samples of one server during one level."""

    running: list[float | None] = field(default_factory=list)
    newest: float = _NOT_YET
    waiting_max: float | None = None
    kv_max: float | None = None
    prefill_s: float | None = None
    """Mean prefill time in seconds over the server's last minute, at the newest sample."""

    def take(self, view: BackendView) -> None:
        """Add the newest sample of the server's view, unless it is the sample that was added last."""
        last_at = view.history.running.last_at
        if last_at is None or last_at <= self.newest:
            return
        self.newest = last_at
        if len(self.running) < MOST_SLOTS:
            self.running.append(view.history.running.last)
        self.waiting_max = _larger(self.waiting_max, view.waiting)
        self.kv_max = _larger(self.kv_max, view.kv_cache_percent)
        if view.prefill.mean_s is not None:
            self.prefill_s = view.prefill.mean_s


class LevelLooks(Struct, eq=False):
    """The samples of all servers that received load at one level."""

    _seen: dict[str, _Seen] = field(default_factory=dict)
    balance: Balance | None = None
    """How evenly the servers are loaded as of the newest snapshot; None if unknown, or for one server."""
    slot_s: float | None = None
    """Seconds between two samples."""

    def look(self, snapshot: Snapshot, names: Collection[str]) -> None:
        """Add the samples in `snapshot` of the servers named in `names`, and how evenly these are loaded."""
        self.slot_s = snapshot.interval_s
        for view in snapshot.backends:
            if view.name in names:
                self._seen.setdefault(view.name, _Seen()).take(view)
        if len(names) > 1:
            found = (one for one in snapshot.balance if set(names) <= set(one.backends))
            self.balance = next(found, self.balance)

    def shares(self, level: LevelResult | None = None) -> tuple[BackendShare, ...]:
        """Return the activity of each server during the level, sorted by name.

        If the level is complete, its result `level` adds the numbers of requests and exact mean batch
        sizes.
        """
        served, batches = ({}, {}) if level is None else (level.served_by, level.busy_batch)
        names = sorted({*self._seen, *served})
        return tuple(self._share(name, served.get(name), batches.get(name)) for name in names)

    def _share(self, name: str, requests: int | None, batch: float | None) -> BackendShare:
        seen = self._seen.get(name)
        if seen is None:
            return BackendShare(name, requests, batch)
        known = [value for value in seen.running if value is not None]
        busy = [value for value in known if value > 0]
        return BackendShare(
            name=name,
            requests=requests,
            busy_batch=batch if batch is not None or not busy else sum(busy) / len(busy),
            running_max=max(known, default=None),
            waiting_max=seen.waiting_max,
            kv_cache_max_percent=seen.kv_max,
            running=tuple(seen.running),
        )

    def balance_of(self, target: str) -> Balance | None:
        """Return how evenly the target `target` loads the servers; None if unknown.

        The monitor judges each backend as part of one router's group. If this router is not `target`, the
        group's strategy, cause and hint do not apply to the load of `target` and are removed.
        """
        if self.balance is None or self.balance.group == target:
            return self.balance
        return replace(self.balance, strategy=None, cause=None, hint=None)

    def prefill_s(self) -> dict[str, float]:
        """Return the mean prefill time in seconds by server; servers that do not report it are left out."""
        return {name: seen.prefill_s for name, seen in self._seen.items() if seen.prefill_s is not None}


def _larger(one: float | None, other: float | None) -> float | None:
    known = [value for value in (one, other) if value is not None]
    return max(known, default=None)
