"""How a level's load lay on its servers: sums of one moment, busy batches, and who queued."""

from __future__ import annotations

import pytest

from sparktop.sweep.run.server_side import (
    BackendQueue,
    Counters,
    InFlight,
    ServerPoint,
    backend_queue,
    busy_batch,
    queue_reason,
    same_moment,
)

NOTHING = Counters()
FLYING = InFlight([(0.0, 100.0)] * 32)


def look(
    at: float, running: float | None, waiting: float | None = 0.0, kv: float | None = None
) -> ServerPoint:
    return ServerPoint(at, running, waiting, kv, NOTHING, None)


def running(point: ServerPoint) -> float | None:
    return point.running


def test_looks_of_different_moments_are_not_added_up() -> None:
    """Twenty-three requests at one server and later at the other are not 46: only 32 are in flight."""
    looks = {
        "a": [look(1.0, 23.0), look(2.0, 9.0)],
        "b": [look(1.4, 23.0), look(2.01, 22.0)],
    }
    assert same_moment(looks, running, FLYING) == [31.0]


@pytest.mark.parametrize("looks", [{}, {"a": []}, {"a": [look(1.0, 1.0)], "b": [look(1.0, None)]}])
def test_a_server_that_does_not_report_leaves_the_sum_unknown(looks: dict[str, list[ServerPoint]]) -> None:
    """Part of a sum is not the sum."""
    assert same_moment(looks, running, FLYING) == []


def test_a_batch_is_of_busy_time_alone() -> None:
    """Samples of an idle server do not dilute the mean: one request at a time is a batch of 1."""
    points = [look(1.0, 1.0), look(2.0, 0.0), look(3.0, 0.0), look(4.0, 1.0), look(5.0, None)]
    assert busy_batch(points, None) == 1.0
    assert busy_batch(points[1:3], None) is None
    assert busy_batch([], Counters()) is None


def test_steps_give_the_exact_batch() -> None:
    """It is tokens a step, without those of speculative decoding; without steps, the samples' mean."""
    points = [look(1.0, 3.0)]
    assert busy_batch(points, Counters(generation_tokens=640.0, steps=20.0)) == 32.0
    prompts = Counters(generation_tokens=16.0, steps=40.0)
    assert busy_batch(points, prompts) == 1.0
    more = Counters(generation_tokens=640.0, steps=20.0, spec_accepted_tokens=320.0)
    assert busy_batch(points, more) == 16.0
    assert busy_batch(points, Counters(generation_tokens=0.0, steps=0.0)) == 3.0
    assert busy_batch(points, Counters(generation_tokens=640.0)) == 3.0


def test_the_slots_of_each_server_count() -> None:
    """Sixty-four at once at 48 slots are a queue; 32 at once that wait for prompts are not."""
    points = [look(1.0, 48.0, 16.0), look(2.0, 16.0)]
    queue = backend_queue("a", points, 48, 64)
    assert queue == BackendQueue("a", 2, 1, 16.0, 48.0, None, 48, saturated=True, at_once=64)
    assert queue_reason(queue, 64) == (
        "up to 16 requests waited (1 of 2 polls): 64 of our requests at once exceed its 48 slots"
    )
    prompts = backend_queue("a", [look(1.0, 20.0, 12.0)], 48, 32)
    assert queue_reason(prompts, 64) is None


def test_where_nobody_names_who_served_full_slots_show() -> None:
    """Requests wait while every slot is taken: that is a queue, whichever server answered."""
    queue = backend_queue("a", [look(1.0, 48.0, 3.0)], 48, None)
    assert queue_reason(queue, 64) == (
        "up to 3 requests waited (1 of 1 polls) while all of its 48 slots were taken"
    )
    assert queue_reason(backend_queue("a", [look(1.0, 47.0, 3.0)], 48, None), 64) is None
