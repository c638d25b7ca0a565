"""Token rates of servers whose counters do not move with each token."""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.model.engine import LaneSample

PER_FINISHED_REQUEST = "per finished request"


def rate_note(lanes: Sequence[LaneSample]) -> str | None:
    """Return a note on the generation rates of a page; None where they need none."""
    return PER_FINISHED_REQUEST if any(lane.per_finished_request for lane in lanes) else None


def live_generation(
    lanes: Sequence[LaneSample], counted_tps: float | None, live_tps: float | None
) -> float | None:
    """Return the live rate: the server's own where it reports one, else the counted `live_tps`.

    An idle SGLang refreshes its gauge only every 30 s. So where its counter moves with the tokens, the gauge
    is used only while `counted_tps`, the rate over the last seconds, is above 0.
    """
    reported = [lane.generation_tps_gauge for lane in lanes if lane.generation_tps_gauge is not None]
    if not reported:
        return live_tps
    if not counted_tps and counted_tps is not None and rate_note(lanes) is None:
        return live_tps
    return sum(reported)
