"""The state word beside the figures of a backend: never of another window without saying so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from sparktop.model.engine import EngineSample, LaneSample
from sparktop.model.router import Scrape
from sparktop.model.snapshot import BackendState, BackendView
from sparktop.model.targets import BackendTarget, Watch

World: TypeAlias = Any  # the class lives in conftest.py, which tests cannot import


def look(world: World, at: float, running: float, waiting: float, tokens: float) -> BackendView:
    """Feed a sample and return the backend as it is shown then."""
    lane = LaneSample("0", running=running, waiting=waiting, generation_tokens=tokens)
    view: BackendView = world.feed(EngineSample(at, "vllm", (lane,), models=("m",)))
    return view


def test_idle_never_stands_beside_a_rate(world: World) -> None:
    """After twenty seconds of work it is idle as soon as the rate beside the state is 0, and not before."""
    words: list[tuple[str, bool]] = []
    for second in range(45):
        busy = 5 <= second < 25
        tokens = 128.0 * min(20, max(0, second - 4))
        view = look(world, 1000 + second, 2.0 if busy else 0.0, 0.0, tokens)
        words.append((view.state_text, bool(view.generation_tps)))
    assert all(not moving for word, moving in words if word.startswith("idle"))
    assert {word for word, _ in words[35:]} == {"idle"}
    assert (words[24][0], words[30][0], words[40][0]) == ("bored", "was bored", "idle")


def test_requests_too_short_to_be_seen_are_not_idle(world: World) -> None:
    """Tokens flow although no sample has a running request."""
    for second in range(12):
        view = look(world, 1000 + second, 0.0, 0.0, 128.0 * second)
    assert view.generation_tps == pytest.approx(128.0)
    assert (view.state, view.state_text) == (BackendState.BORED, "was bored")
    assert "too short" in view.state_rule


def test_queueing_beside_nothing_waiting_says_that_it_was(world: World) -> None:
    """If requests wait in two samples of three, the state holds, and is shown as past while none waits."""
    seen = set()
    for second in range(24):
        view = look(world, 1000 + second, 4.0, float(second % 3 > 0), 100.0 * second)
        if second >= 10:
            seen.add((view.state_text, view.waiting))
    assert seen == {("queueing", 1.0), ("was queueing", 0.0)}


def test_a_start_is_no_queue(world: World) -> None:
    """A request waited only in the first sample: two samples are too few to call that a queue."""
    words = [look(world, 1000 + second, 4.0, float(not second), 100.0 * second).state for second in range(4)]
    assert words == [BackendState.QUEUEING, *[BackendState.BORED] * 3]


def test_preemptions_between_two_scrapes_make_a_state(make_world: Callable[..., World]) -> None:
    """A scrape every 15 s: one sample in the window of the state; a counter's first value says nothing."""
    world = make_world(
        Watch(backends=(BackendTarget("b", "http://b:8000", scrape=Scrape("prometheus", 15.0)),))
    )
    words: list[str] = []
    for number, count in enumerate((500.0, 500.0, 503.0, 503.0)):
        at = 1000.0 + 15 * number
        lane = LaneSample("0", running=9.0, waiting=0.0, preemptions=count)
        view = world.feed(EngineSample(at, "vllm", (lane,), models=("m",)))
        words.append(f"{view.state_text}: {view.state_rule}" if number == 2 else view.state_text)
    assert words == ["busy", "busy", "preempting: 3 preemptions in the last 15 s", "busy"]
