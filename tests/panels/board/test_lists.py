"""Lists and bars of the board: events, the order of rows, the time that can be shown."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from sparktop.demo.scenario import SCENARIOS
from sparktop.model.event import Alert, Event, Severity
from sparktop.model.snapshot import BackendState, Snapshot
from sparktop.panels.board.bars import TimeBar, cell_of, event_words, time_bar_row, time_of
from sparktop.panels.board.events import events_panel, events_screen, value_texts
from sparktop.panels.board.layout import PanelKey
from sparktop.panels.board.scene import Scene, is_worst_first
from sparktop.panels.board.view import FLEET, Arrangement, Sort, View
from sparktop.panels.parts.text import row_text, row_width
from stage.rehearsal import Rehearsal
from tests.panels.drawn import fitted, flat, text_of

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
VALUES = {"headroom_gib": 7.9, "limit_gib": 8.0, "window_s": 0.0, "total_gib": None}
LONG = "the memory that programs can still take is below its limit, and the kernel may kill one of them soon"


def shown(width: int, height: int, message: str) -> list[str]:
    alerts = (Alert("node:n:headroom", Severity.CRITICAL, "n", message, NOON, VALUES),)
    began, event = (
        Event(NOON, Severity.INFO, "n", "began"),
        Event(NOON, Severity.CRITICAL, "n", message, VALUES),
    )
    picture = Snapshot(NOON, 100.0, 1.0, 2.0, alerts=alerts, events=(began, event))
    rows = fitted(events_panel(picture, width, height), width, height)
    return [row.strip("│").strip() for row in rows[1:-1]]


def test_spare_rows_show_everything() -> None:
    """A long message is wrapped and its values get a row of their own, where the height allows it."""
    rows = shown(80, 20, LONG)
    text = " ".join(" ".join(rows).split())
    assert text.count("may kill one of them soon") == 2
    assert text.count("memory left 7.9 GiB (alert below 8 GiB)") == 2
    assert "…" not in text


def test_only_a_measured_value_is_of_now() -> None:
    """A time span or a limit that stands alone behind an alert is not."""
    for values, words in (({"limit_s": 5.0}, "· alert after 5 s"), (VALUES, "· now memory left 7.9")):
        alert = Alert("backend:b:dead-rank", Severity.CRITICAL, "b", "ended", NOON, values)
        rows = events_screen(Snapshot(NOON, 100.0, 1.0, 2.0, alerts=(alert,)), 120, 5)
        assert words in " ".join(row_text(row) for row in rows)


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("subject", ["n", "a-machine-with-a-long-name-in-rack-12"])
def test_the_full_screen_cuts_nothing(width: int, subject: str) -> None:
    """Alone on the screen every message is there to its end, in more rows than the screen has."""
    alert = Alert("node:n:headroom", Severity.CRITICAL, subject, LONG, NOON, VALUES)
    picture = Snapshot(NOON, 100.0, 1.0, 2.0, alerts=(alert,) * 9)
    _, *rows, _ = fitted(events_screen(picture, width, 20), width)
    assert len(rows) > 18
    assert all(row[-2] in " ─" for row in rows), "a text touches the border"
    text = " ".join(" ".join(row.strip("│") for row in rows).split())
    assert text.count(LONG) == 9
    assert text.count("memory left 7.9 GiB (alert below 8 GiB)") == 9
    assert "…" not in text


NAMES = ("spark-a", "spark-b", "spark-c", "spark-d")
LOAD = View(sort=Sort.LOAD)


@pytest.fixture(scope="module")
def four() -> Snapshot:
    return Rehearsal(backends=4).play(3).snapshot()


def loaded(four: Snapshot, at: float, *loads: float | None) -> Snapshot:
    """Return a picture at second `at` in which the backends run these numbers of requests; none wait."""
    pairs = zip(four.backends, loads, strict=True)
    backends = (replace(view, running=load, waiting=0.0) for view, load in pairs)
    return replace(four, at=at, backends=tuple(backends))


def order_of(shown: Snapshot) -> tuple[str, ...]:
    return tuple(view.name for view in shown.backends)


def test_idle_servers_have_one_row_where_others_have_more() -> None:
    """A list gives its rows to servers with requests; each entry is selected where it is drawn."""
    snapshot = Rehearsal(backends=8, nodes=8, scenario=SCENARIOS["oscillation"]).play(70).snapshot()
    rest = [one for one in snapshot.backends if one.state is BackendState.IDLE and not one.ttft.count]
    idle = {one.name for one in rest}
    assert 3 < len(idle) < 8
    scene = Scene(snapshot, 120, 34)
    drawn, rows = scene.draw(), flat(scene)
    entries = {
        panel.key.name: panel.place
        for panel in drawn
        if panel.place.kind == "row" and panel.key.kind == "backend"
    }
    assert {place.height for name, place in entries.items() if name in idle} == {1}
    assert {place.height for name, place in entries.items() if name not in idle} == {2}
    assert all(name in row_text(rows[place.y]) for name, place in entries.items())
    assert {"router", "balance"} <= {panel.place.kind for panel in drawn}
    assert scene.layout.height == 34


@pytest.mark.parametrize("width", [80, 100, 120])
def test_a_name_takes_the_room_of_a_state_s_longer_words(width: int) -> None:
    """A name of a few letters more is whole; the state beside it is "down", not "unreachable"."""
    snapshot = Rehearsal(backends=4).play(3).snapshot()
    state = BackendState.UNREACHABLE
    first, *others = (replace(view, name=f"cluster-tp{n}") for n, view in enumerate(snapshot.backends))
    backends = (replace(first, state=state), *others)
    scene = Scene(replace(snapshot, backends=backends, balance=()), width, 24)
    text = text_of(flat(scene))
    assert all(f"{view.name} " in text for view in backends)
    assert "cluster-tp0 down" in text or "cluster-tp0 unreachable" in text
    assert " state" in text, "its heading is not cut"


def test_a_failure_moves_its_row_within_seconds(four: Snapshot) -> None:
    """By state, what needs attention comes first without a long wait."""
    rows, view = Arrangement(), View(sort=Sort.STATE)
    states = [replace(one, state=BackendState.BUSY) for one in four.backends]
    assert order_of(rows.of(replace(four, at=100.0, backends=tuple(states)), view)) == NAMES
    states[3] = replace(states[3], state=BackendState.UNREACHABLE)
    for second in range(1, 7):
        after = rows.of(replace(four, at=100.0 + second, backends=tuple(states)), view)
    assert order_of(after)[0] == "spark-d"


def test_the_marked_row_stays_under_the_cursor(four: Snapshot) -> None:
    """Other rows move around the marked one; without the mark, it moves to its own place."""
    rows, mark = Arrangement(), PanelKey("backend", "spark-b")
    rows.of(loaded(four, 100.0, 30.0, 20.0, 10.0, 1.0), LOAD, mark)
    for second in range(1, 90):
        after = rows.of(loaded(four, 100.0 + second, 30.0, 2.0, 10.0, 20.0), LOAD, mark)
        assert order_of(after).index("spark-b") == 1
    assert order_of(after) == ("spark-a", "spark-b", "spark-d", "spark-c")
    for second in range(90, 100):
        after = rows.of(loaded(four, 100.0 + second, 30.0, 2.0, 10.0, 20.0), LOAD, None)
    assert order_of(after) == ("spark-a", "spark-d", "spark-c", "spark-b")


@pytest.mark.parametrize(
    ("count", "size", "view", "is_ordered"),
    [
        (40, (200, 49), View(), True),
        (FLEET - 1, (200, 49), View(), False),
        (23, (60, 12), View(), True),
        (23, (60, 12), View(sort=Sort.NAME), False),
        (4, (80, 23), View(), False),
    ],
)
def test_what_needs_attention_is_first_where_the_servers_are_many(
    four: Snapshot, count: int, size: tuple[int, int], view: View, *, is_ordered: bool
) -> None:
    """Where not all are visible, or a list is too long to read; the calm ones stay as configured."""
    calm = (BackendState.BORED, BackendState.BUSY, BackendState.IDLE)
    fleet = [
        replace(four.backends[0], name=f"s{number:03d}", state=calm[number % 3]) for number in range(count)
    ]
    fleet[-1] = replace(fleet[-1], state=BackendState.QUEUEING)
    names = tuple(one.name for one in fleet)
    snapshot = replace(four, backends=tuple(fleet), nodes=(), balance=())
    worst_first = is_worst_first(snapshot, *size, view)
    shown = Arrangement().of(snapshot, view, worst_first=worst_first)
    assert order_of(shown) == ((names[-1], *names[:-1]) if is_ordered else names)
    heading = row_text(Scene(shown, *size, view).draw()[0].rows[1])
    assert ("▾worst" in heading) == (is_ordered and size[0] == 200)


FIRST = datetime(2026, 1, 15, 9, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return FIRST + timedelta(seconds=seconds)


BAR = TimeBar(
    FIRST,
    after(100),
    after(50),
    (
        Event(after(10), Severity.INFO, "spark-a", "restarted"),
        Event(after(10), Severity.CRITICAL, "spark-a", "is down"),
        Event(after(90), Severity.WARNING, "spark-b", "swaps"),
    ),
    tuple((after(second), float(second)) for second in range(0, 101, 20)),
)


@pytest.mark.parametrize("width", [10, 24, 60, 80, 200, 500])
def test_a_bar_is_one_row_with_the_moment_and_the_worst_events(width: int) -> None:
    """At each width; a warning does not hide the critical one in the same cell."""
    row, first, cells = time_bar_row(BAR, width)
    assert row_width(row) == width
    text = row_text(row)
    assert [text.count(sign) for sign in "┃✖▲•"] == [1, 1, 1, 0]
    assert text[first + cell_of(BAR, BAR.shown, cells)] == "┃"
    assert ("✖", "bad") in row


def test_the_event_of_the_moment_is_named_with_its_place_among_all() -> None:
    """The last one before; of several in a second the most severe; nothing before the first."""
    clock = f"{after(10).astimezone():%H:%M:%S}"
    assert event_words(BAR) == f"✖ event 2 of 3: {clock} spark-a: is down"
    assert "event 3 of 3: " in event_words(replace(BAR, shown=after(90)))
    assert not event_words(replace(BAR, shown=after(9)))


def test_load_between_two_samples_is_held_and_a_gap_is_a_line() -> None:
    """Where samples are missing for long, nothing is drawn."""
    text = row_text(time_bar_row(BAR, 120)[0])
    assert "─" not in text[11:80]
    loads = tuple((after(second), 5.0) for second in (*range(30), *range(70, 100)))
    gap = TimeBar(FIRST, after(100), after(99), (), loads)
    assert "─" * 30 in row_text(time_bar_row(gap, 120)[0])


def test_a_cell_is_found_again_by_its_time() -> None:
    """A click on a cell shows the moment that the cell stands for."""
    assert [cell_of(BAR, time_of(BAR, cell, 60), 60) for cell in range(60)] == [*range(60)]


def test_limits_stand_behind_the_values_and_say_on_which_side_an_alert_is() -> None:
    """Figures have the units that screens have."""
    left = {"headroom_gib": 7.97, "limit_gib": 8.0, "clears_at_gib": 8.8}
    assert [*value_texts(left)] == ["memory left 7.97 GiB (alert below 8 GiB, ends above 8.8 GiB)"]
    swap = {"swap_in_mib_per_s": 200.3, "limit_mib_per_s": 1.0, "clears_at_mib_per_s": 0.5}
    assert [*value_texts(swap)] == ["swap in 210 MB/s (alert at 1.0 MB/s, ends below 524 kB/s)"]
    clock = {"sm_clock_mhz": 714.0, "limit_mhz": 1000.0, "kv_cache_percent": 0.327}
    assert [*value_texts(clock)] == ["SM clock 714 MHz (alert below 1000 MHz)", "KV cache used <1 %"]
    cache = {"asked_tokens": 33425.0, "found_tokens": 0.0, "found_limit_percent": 10.0, "prompts": 25.0}
    words = ["33,425 prompt tokens looked up", "0 found", "alert below 10 % found", "25 prompts"]
    assert [*value_texts(cache)] == words
