"""The state of a backend, and the sentence with its reason."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from sparktop.analysis.state import JudgedState, LoadFigures, backend_state
from sparktop.model.event import Progress, ProgressView
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.snapshot import BackendState as Is
from sparktop.model.targets import StateThresholds

EVERYTHING = LoadFigures(
    seen=True,
    failure=Failure(FailureKind.TIMEOUT, "no answer within 2 s", 0.0),
    asleep=True,
    preemptions=3.0,
    window_s=10.0,
    kv_cache_percent=99.0,
    waiting=4.0,
    waiting_share=1.0,
    running=12.0,
    slots=16,
)
LIMITS = StateThresholds()


def test_the_words_come_in_serving_s_order() -> None:
    """If several states apply, the most severe is shown; without it, the next one."""
    load, words = EVERYTHING, []
    for cure in (
        {"failure": None},
        {"asleep": False},
        {"preemptions": 0.0},
        {"kv_cache_percent": 97.9},
        {"waiting_share": 0.4},
        {"waiting": 0.0, "running": 3.0},
        {"running": 0.0},
        {"running": None},
        {"seen": False},
    ):
        words.append(backend_state(load, LIMITS).state)
        load = replace(load, **cure)
    words.append(backend_state(load, LIMITS).state)
    assert words == [
        Is.UNREACHABLE,
        Is.ASLEEP,
        Is.PREEMPTING,
        Is.KV_FULL,
        Is.QUEUEING,
        Is.BUSY,
        Is.BORED,
        Is.IDLE,
        Is.UNKNOWN,
        Is.CONNECTING,
    ]


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        (FailureKind.LOADING, Is.LOADING),
        (FailureKind.ENGINE_DEAD, Is.ENGINE_DEAD),
        (FailureKind.METRICS_DISABLED, Is.UNKNOWN),
        (FailureKind.REFUSED, Is.UNREACHABLE),
        (FailureKind.UNAUTHORIZED, Is.UNREACHABLE),
    ],
)
def test_a_failure_s_kind_decides(kind: FailureKind, word: Is) -> None:
    """Loading, a dead engine and a page without figures have their own states; else it is unreachable."""
    failure = Failure(kind, "why it failed", 0.0)
    assert backend_state(LoadFigures(failure=failure), LIMITS) == JudgedState(word, "why it failed")


@pytest.mark.parametrize(
    ("running", "slots", "word", "rule"),
    [
        (3.0, 8, Is.BORED, "running 3 of 8 slots; busy from 4"),
        (4.0, 8, Is.BUSY, "running 4 of 8 slots; busy from 4"),
        (10.0, 256, Is.BORED, "running 10 of 256 slots; busy from 128"),
        (7.0, None, Is.BORED, "running 7; busy from 8 (slots unknown)"),
        (8.0, None, Is.BUSY, "running 8; busy from 8 (slots unknown)"),
    ],
)
def test_busy_is_half_of_the_slots_or_eight(running: float, slots: int | None, word: Is, rule: str) -> None:
    """Half of the slots is busy, or 8 requests if the slots are unknown; the sentence states both numbers."""
    load = LoadFigures(seen=True, running=running, slots=slots)
    assert backend_state(load, LIMITS) == JudgedState(word, rule)


@pytest.mark.parametrize(
    ("running", "slots", "rule"),
    [
        (3.0, 48, "2 waiting now, beside 3 running of 48 slots"),
        (0.0, None, "2 waiting now, beside 0 running"),
        (12.0, 16, "2 waiting now, beside 12 running of 16 slots"),
    ],
)
def test_a_server_with_waiting_requests_is_neither_bored_nor_idle(
    running: float, slots: int | None, rule: str
) -> None:
    """A server with waiting requests, but too rarely for "queueing", is busy however few run."""
    load = LoadFigures(
        seen=True,
        window_s=10.0,
        waiting=2.0,
        waiting_share=0.1,
        running=running,
        running_mean=0.2,
        slots=slots,
    )
    assert backend_state(load, LIMITS) == JudgedState(Is.BUSY, rule)


@pytest.mark.parametrize(
    ("load", "expected"),
    [
        ({"waiting": 0.0, "waiting_share": 0.5, "running": 2.0}, (Is.QUEUEING, 10.0)),
        ({"waiting": 2.0, "waiting_share": 0.5, "running": 2.0}, (Is.QUEUEING, None)),
        ({"running": 0.0, "running_mean": 5.0, "slots": 8}, (Is.BUSY, 10.0)),
        ({"running": 0.0, "running_mean": 0.4, "slots": 8}, (Is.BORED, 10.0)),
        ({"running": 0.0, "running_mean": 0.0, "tokens_moved": True}, (Is.BORED, 10.0)),
        ({"running": 0.0, "running_mean": 0.0}, (Is.IDLE, None)),
        ({"running": 0.0}, (Is.IDLE, None)),
        ({"running": 3.0, "running_mean": 0.1, "tokens_moved": True}, (Is.BORED, None)),
    ],
)
def test_a_word_that_this_moment_contradicts_carries_its_window(
    load: dict[str, Any], expected: tuple[Is, float | None]
) -> None:
    """If the newest sample contradicts the state, the state names its window."""
    judged = backend_state(replace(LoadFigures(seen=True, window_s=10.0), **load), LIMITS)
    assert (judged.state, judged.window_s) == expected
    assert judged.window_s is None or "10 s" in judged.rule


def test_a_long_step_is_busy_and_a_standstill_is_neither_busy_nor_bored() -> None:
    """A long step makes a server busy; a standstill is stated as such, neither busy nor bored."""
    running = LoadFigures(seen=True, running=1.0, running_mean=1.0, slots=48)
    assert backend_state(running, LIMITS).state is Is.BORED
    long_step = ProgressView(Progress.LONG_STEP, 30.0, "GPU works")
    assert backend_state(replace(running, progress=long_step), LIMITS).state is Is.BUSY
    still = backend_state(replace(running, progress=ProgressView(Progress.STILL, 12.0, "")), LIMITS)
    assert (still.state, still.rule) == (Is.STILL, "nothing has moved for 12 s")


def test_one_long_prompt_is_busy() -> None:
    """A single request in prefill makes a server busy: no token, but a growing KV cache."""
    load = LoadFigures(seen=True, running=1.0, waiting=0.0, slots=256, window_s=10.0, prefill_s=12.0)
    found = backend_state(load, LIMITS)
    assert found.state is Is.BUSY
    assert found.rule == "running 1 of 256 slots, prefill: no token in the last 12 s while its KV cache fills"
    assert backend_state(replace(load, prefill_s=None), LIMITS).state is Is.BORED
