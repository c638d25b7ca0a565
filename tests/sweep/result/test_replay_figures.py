"""What a replay shows beside an open loop: its equal parts, and tokens from the prefix cache."""

from __future__ import annotations

import pytest

from sparktop.model.load import EndReason, FirstToken, LoadEvent, RequestEnded, RequestStarted
from sparktop.sweep.result.level import PHASES, cached_tokens, phases
from sparktop.sweep.result.measure import RequestTrace, collect


def replayed(count: int, gap_s: float = 1.0, cached: int | None = None) -> list[RequestTrace]:
    """Return requests due every `gap_s` seconds from 100 s on; each TTFT is 0.1 s, and each takes 0.5 s."""
    events: list[LoadEvent] = []
    for number in range(count):
        due, name = 100.0 + gap_s * number, f"r{number}"
        hits = cached if number else None  # servers leave out a 0
        events += [
            RequestStarted(name, due, 0, 50, due),
            FirstToken(name, due + 0.1),
            RequestEnded(name, due + 0.5, EndReason.LENGTH, None, 50, hits, 1),
        ]
    return collect(events)


def test_the_parts_of_a_long_replay_have_rates_and_latencies() -> None:
    """1,000 requests a second apart: 100 in each part, at 1 /s; times are those of the file at 2×."""
    found = phases(replayed(1000), {0: (100.0, 1100.0)}, 60.0, 2.0, stable=True)
    assert len(found) == PHASES
    assert [one.requests for one in found] == [100] * PHASES
    assert [one.from_s for one in found][:2] == [60.0, 260.0]
    assert found[-1].to_s == 2060.0
    for one in found:
        assert one.arrived_per_s == pytest.approx(1.0)
        assert one.completed_per_s == pytest.approx(1.0)
        assert one.ttft_due_p50_ms == pytest.approx(100.0)
        assert one.ttft_due_p90_ms == pytest.approx(100.0)
    assert found[0].words == "1 min–4 min 20 s"


def test_a_short_replay_has_no_parts_and_an_unstable_one_no_latencies() -> None:
    """Fewer than a hundred requests are not divided; beyond the limit latencies mean nothing."""
    assert phases(replayed(99), {0: (100.0, 199.0)}, 0.0, 1.0, stable=True) == ()
    found = phases(replayed(200), {0: (100.0, 300.0)}, 0.0, 1.0, stable=False)
    assert {one.ttft_due_p50_ms for one in found} == {None}
    assert [one.requests for one in found] == [20] * PHASES


def test_cached_tokens_are_summed_over_answers() -> None:
    """A request without a count counts as 0, unless none has one."""
    assert cached_tokens(replayed(3, cached=32)) == (150, 64)
    assert cached_tokens(replayed(3)) == (150, None)
