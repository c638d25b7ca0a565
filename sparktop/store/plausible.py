"""Figures that no server can have: each is unknown as it enters the store or the samples of a sweep.

Of a server that is polled, a remark says which it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from sparktop.model.engine import EngineSample, LaneSample
from sparktop.model.figures import COUNTER_FIGURES, How
from sparktop.model.router import FleetServer
from sparktop.model.snapshot import BackendView
from sparktop.rates import LATENCY_WINDOW_S

_REQUESTS = 1e6
"""A server holds a connection for each request, of which a client's address has 65 535."""
_GENERATED = 1e7
"""Tokens per second; racks of 72 GPUs are published with about 1e6."""
_READ = 1e9
"""Prompt tokens per second, cached ones included: ten thousand prompts of 100 000 tokens."""
_GAUGES = {"running": _REQUESTS, "waiting": _REQUESTS, "generation_tps_gauge": _GENERATED}
"""The most that these fields of `LaneSample` can be."""
_GROWTH = {
    **dict.fromkeys(("generation_tokens", "spec_draft_tokens", "spec_accepted_tokens"), _GENERATED),
    **dict.fromkeys(("prompt_tokens", "prompt_tokens_computed", "prompt_tokens_cached"), _READ),
    **dict.fromkeys(("prefix_cache_hits", "prefix_cache_queries"), _READ),
    **dict.fromkeys(("external_cache_hits", "external_cache_queries"), _READ),
    "preemptions": _REQUESTS,
    "read_bytes_per_gpu": 1e14,
}
"""The most by which these counters can grow in a second; HBM of 2025 is read at 8e12 bytes/s."""
_OF_FLEET = {
    **dict.fromkeys(("running", "waiting", "preemptions_per_s"), _REQUESTS),
    "generation_tps": _GENERATED,
    "prompt_tps": _READ,
}
"""The most that these fields of `FleetServer` can be."""
_LEAST_S = 1.0
"""Samples closer together count as so many seconds apart: servers may count what they did in bursts."""
_OWN_SHARES = ("prefix_cache_hit_percent", "spec_decode_accept_percent")
_SHARES = (*_OWN_SHARES, *(figure.name for figure in COUNTER_FIGURES if figure.how is How.PERCENT))
"""Figures of a view that are parts of a whole, each counted by a counter."""
_WHOLE, _ROUNDING = 100.0, 1.0
"""Percent of the whole, and by how much a part may exceed it: a page is not written in one instant."""


def without_impossible(server: FleetServer) -> FleetServer:
    """Return a server of a Prometheus without figures that no server can have."""
    unknown: dict[str, Any] = dict.fromkeys(_out_of_range(server, _OF_FLEET))
    return replace(server, **unknown)


def _out_of_range(record: LaneSample | FleetServer, most: Mapping[str, float]) -> dict[str, float]:
    """Return the fields of `record` that are negative or above the most that they can be, by name."""
    figures = {name: getattr(record, name) for name in most}
    return {
        name: value for name, value in figures.items() if value is not None and not 0 <= value <= most[name]
    }


class Plausibility:
    """Takes impossible figures out of what a server reports, and remembers them for a minute."""

    def __init__(self) -> None:
        """Start without any."""
        self._seen: dict[str, tuple[float, str]] = {}
        """By metric: when it was impossible last, and its words."""

    @property
    def words(self) -> str | None:
        """The impossible figures of the last minute, as text; None without any."""
        said = ", ".join(words for _, words in self._seen.values())
        return f"impossible value: {said}" if said else None

    def lanes(self, sample: EngineSample, before: EngineSample | None) -> tuple[LaneSample, ...]:
        """Return the lanes of `sample`, which continue those of `before`, without impossible figures."""
        at = sample.at
        self._seen = {name: seen for name, seen in self._seen.items() if at - seen[0] <= LATENCY_WINDOW_S}
        self._seen |= {name: (at, f"{name} = {value:g}") for name, value in sample.impossible.items()}
        earlier = {lane.lane: lane for lane in before.lanes} if before else {}
        span_s = max(_LEAST_S, at - before.at) if before else _LEAST_S
        return tuple(self._lane(lane, earlier.get(lane.lane), at, span_s) for lane in sample.lanes)

    def _lane(self, lane: LaneSample, before: LaneSample | None, at: float, span_s: float) -> LaneSample:
        beyond = _out_of_range(lane, _GAUGES)
        wrong = {name: (at, f"{name} = {value:g}") for name, value in beyond.items()}
        for name, most_per_s in _GROWTH.items():
            value, earlier = getattr(lane, name), getattr(before, name, None)
            if value is not None and earlier is not None and value - earlier > most_per_s * span_s:
                wrong[name] = at, f"{name} grew by {value - earlier:.3g} in {span_s:.3g} s"
        self._seen |= wrong
        unknown: dict[str, Any] = dict.fromkeys(wrong)
        return replace(lane, **unknown) if wrong else lane

    def shares(self, view: BackendView, at: float) -> BackendView:
        """Return `view`, dated `at` (monotonic seconds), without parts that exceed their whole."""
        figures = {name: getattr(view, name) for name in _OWN_SHARES} | dict(view.counter_figures)
        beyond = {name: value for name in _SHARES if (value := figures[name]) is not None and value > _WHOLE}
        if not beyond:
            return view
        wrong = [name for name, value in beyond.items() if value > _WHOLE + _ROUNDING]
        self._seen |= {name: (at, f"{name} = {beyond[name]:.0f}") for name in wrong}
        figures |= dict.fromkeys(beyond, _WHOLE) | dict.fromkeys(wrong)
        own = {name: figures.pop(name) for name in _OWN_SHARES}
        return replace(view, counter_figures=figures, **own)
