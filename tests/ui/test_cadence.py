"""How often servers are polled and the screen is drawn when servers or terminal cannot keep up."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sparktop.model.failure import Failure, FailureKind
from sparktop.model.snapshot import BackendView
from sparktop.model.targets import Watch
from sparktop.panels.parts.text import row_text
from sparktop.store import Store
from sparktop.ui.app import SparktopApp
from sparktop.ui.cadence import LOW_BANDWIDTH_S, MAX_INTERVAL_S, Cadence
from sparktop.watch.monitor import Monitor
from stage.rehearsal import Rehearsal


def views(*poll_ms: float | None) -> list[BackendView]:
    """Return backends whose newest poll took these times; None for a failed one."""
    down = Failure(FailureKind.TIMEOUT, "no answer", 0.0)
    return [
        BackendView(
            str(i),
            "http://x",
            "g",
            failure=down if took is None else None,
            age_s=0.1,
            poll_ms=9e3 if took is None else took,
        )
        for i, took in enumerate(poll_ms)
    ]


def polled(cadence: Cadence, times: int, *poll_ms: float | None) -> list[bool]:
    return [cadence.note_polls(views(*poll_ms)) for _ in range(times)]


def test_slow_polls_double_the_interval() -> None:
    """The fifth poll in a row that takes more than half of the interval doubles it, and says so once."""
    cadence = Cadence(1.0)
    assert polled(cadence, 4, 600.0) == [False] * 4
    assert polled(cadence, 1, 600.0) == [True]
    assert cadence.interval_s == 2.0
    assert cadence.notice == "slow polls: every 2 s"


def test_one_slow_server_among_many_slows_nobody_down() -> None:
    """The median counts, and servers that failed do not."""
    cadence = Cadence(1.0)
    assert not any(polled(cadence, 20, 10.0, 12.0, 5000.0))
    assert not any(polled(cadence, 20, 10.0, None, None, None))
    assert not any(polled(cadence, 20, None, None))
    assert not any(polled(cadence, 20))
    assert (cadence.interval_s, cadence.notice) == (1.0, None)


def test_quick_answers_bring_the_interval_back() -> None:
    """Ten quick polls in a row halve the interval once."""
    cadence = Cadence(1.0)
    polled(cadence, 5, 600.0)
    polled(cadence, 5, 1100.0)
    assert cadence.interval_s == 4.0
    assert polled(cadence, 10, 10.0) == [*[False] * 9, True]
    assert cadence.interval_s == 2.0
    polled(cadence, 10, 10.0)
    assert (cadence.interval_s, cadence.notice) == (1.0, None)


def test_a_terminal_that_follows_again_is_drawn_more_often() -> None:
    """Ten drawings without lag take back one doubling; one with lag in between starts the count again."""
    cadence = Cadence(1.0)
    cadence.note_drawing(9)
    for backlog in [2] * 9:
        cadence.note_drawing(backlog)
    assert cadence.draw_s == 2.0
    cadence.note_drawing(0)
    assert (cadence.draw_s, cadence.notice) == (1.0, None)


def test_slow_polls_are_said_before_all_else() -> None:
    """There is room for one notice: slow servers, then a slow terminal, then low bandwidth."""
    cadence = Cadence(1.0, low_bandwidth=True)
    cadence.note_drawing(5)
    assert cadence.notice == "slow terminal: drawn every 8 s"
    polled(cadence, 5, 600.0)
    assert cadence.notice == "slow polls: every 2 s"


STEPS = st.lists(st.one_of(st.integers(0, 6), st.floats(0, 90_000)), max_size=80)


@given(st.sampled_from([0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 60.0]), st.booleans(), STEPS)
def test_whatever_happens_drawings_fall_on_polls(asked: float, low: bool, steps: list[float]) -> None:  # noqa: FBT001 - drawn by hypothesis
    """Polls are never faster than requested, drawings on whole intervals; `polled` reports each change."""
    cadence = Cadence(asked, low_bandwidth=low)
    for step in steps:
        before = cadence.interval_s
        if isinstance(step, int):
            cadence.note_drawing(step)
        else:
            assert cadence.note_polls(views(step)) == (cadence.interval_s != before)
        assert asked <= cadence.interval_s <= max(asked, MAX_INTERVAL_S)
        whole = cadence.draw_s / cadence.interval_s
        assert whole == round(whole) >= 1
        assert not low or cadence.draw_s >= LOW_BANDWIDTH_S


class Quiet(Monitor):
    """A monitor that polls nothing: the test provides the pictures."""

    async def start(self) -> None:
        """Poll nothing."""


async def test_the_first_answer_is_drawn_before_the_next_drawing_is_due() -> None:
    """With a minute between two drawings, the first figures are on the screen as soon as they arrive."""
    answered = Rehearsal().play(30).snapshot()
    connecting = tuple(BackendView(view.name, view.url, view.group) for view in answered.backends)
    shown = replace(answered, backends=connecting, nodes=(), balance=())
    app = SparktopApp(lambda: shown, monitor=Quiet(Watch(), Store(Watch())), interval_s=60.0)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        assert not any("gpt-oss" in row_text(row) for row in app.overview.canvas.rows)
        shown = replace(shown, backends=answered.backends)
        for _ in range(200):
            await pilot.pause(0.02)
            if any("gpt-oss" in row_text(row) for row in app.overview.canvas.rows):
                return
    raise AssertionError("the figures are not drawn")
