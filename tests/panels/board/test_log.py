"""The list of alerts and events: values behind the messages, as far as width and height allow."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from sparktop.model.event import Alert, Event, Severity
from sparktop.model.snapshot import Snapshot
from sparktop.panels.board.events import events_panel, events_screen, value_texts
from sparktop.panels.parts.text import row_text, row_width

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
VALUES = {"headroom_gib": 7.9, "limit_gib": 8.0, "window_s": 0.0, "total_gib": None}
LONG = "the memory that programs can still take is below its limit, and the kernel may kill one of them soon"


def shown(width: int, height: int, message: str = "7.9 GiB of memory left") -> list[str]:
    picture = Snapshot(
        NOON,
        100.0,
        1.0,
        2.0,
        alerts=(Alert("node:n:headroom", Severity.CRITICAL, "n", message, NOON, VALUES),),
        events=(
            Event(NOON, Severity.INFO, "n", "began"),
            Event(NOON, Severity.CRITICAL, "n", message, VALUES),
        ),
    )
    rows = events_panel(picture, width, height)
    assert {row_width(row) for row in rows} == {width}
    assert len(rows) == height
    return [row_text(row).strip("│").strip() for row in rows[1:-1]]


def test_the_values_stand_behind_the_message() -> None:
    """If both fit, values follow the message, except unknown ones and the window of a single reading."""
    alert, newest, _ = shown(100, 5)
    assert alert.endswith("n: 7.9 GiB of memory left · headroom 7.9 GiB · limit 8 GiB")
    assert newest.endswith("n: 7.9 GiB of memory left · headroom 7.9 GiB · limit 8 GiB")


def test_a_narrow_panel_shows_as_many_as_fit() -> None:
    """A narrow panel shows as many values as fit in full."""
    assert shown(62, 5)[0].endswith("7.9 GiB of memory left")
    assert shown(66, 5)[0].endswith("7.9 GiB of memory left · headroom 7.9 GiB")


def test_spare_rows_show_everything() -> None:
    """A long message is wrapped and its values get a row of their own, where the height allows it."""
    rows = shown(80, 20, LONG)
    text = " ".join(" ".join(rows).split())
    assert text.count("may kill one of them soon") == 2
    assert text.count("headroom 7.9 GiB · limit 8 GiB") == 2
    assert "…" not in text


def everything(width: int, subject: str, height: int = 20) -> str:
    alert = Alert("node:n:headroom", Severity.CRITICAL, subject, LONG, NOON, VALUES)
    picture = Snapshot(NOON, 100.0, 1.0, 2.0, alerts=(alert,) * 9)
    rows = events_screen(picture, width, height)
    assert {row_width(row) for row in rows} == {width}
    assert len(rows) >= height
    return " ".join(" ".join(row_text(row).strip("│") for row in rows[1:-1]).split())


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("subject", ["n", "a-machine-with-a-long-name-in-rack-12"])
def test_the_full_screen_cuts_nothing(width: int, subject: str) -> None:
    """Alone on the screen every message is there to its end, in more rows than the screen has."""
    text = everything(width, subject)
    assert text.count(LONG) == 9
    assert text.count("headroom 7.9 GiB · limit 8 GiB") == 9
    assert "…" not in text


def test_without_spare_rows_each_entry_is_one() -> None:
    """Without spare rows, three entries take three rows and are cut at the edge."""
    rows = shown(80, 5, LONG)
    assert [row.endswith("…") for row in rows] == [True, True, False]


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("limit_percent", 98.0, "limit 98 %"),
        ("swap_in_mib_per_s", 1.25, "swap in 1.25 MiB/s"),
        ("step_ms", 123456.0, "step 123,456 ms"),
        ("window_s", 60.0, "last 60 s"),
        ("temperature_c", 61.4, "temperature 61.4 °C"),
        ("ratio", 3.0, "ratio 3"),
        ("limit_ratio", 3.0, "limit 3 ×"),
        ("verdict", "oscillating", "verdict oscillating"),
        ("failures", 3, "3 polls failed"),
    ],
)
def test_each_value_has_its_unit(name: str, value: float | str, text: str) -> None:
    """The suffix of a value's name determines its unit."""
    assert list(value_texts({name: value})) == [text]


def test_failed_polls_are_one_text() -> None:
    """Their number and time stand with the limits of both, which are one condition."""
    values: dict[str, float | str | None] = {
        "failure": "timeout",
        "failures": 6,
        "limit_failures": 3,
        "limit_s": 3.0,
        "window_s": 16.7,
    }
    said = "6 polls failed within 16.7 s (limit 3 or 3 s)"
    assert list(value_texts(values)) == [said, "failure timeout"]


def test_a_value_has_its_limit_beside_it_and_plain_words() -> None:
    """Facts of a verdict are readable without knowledge of the analysis, and no limit stands alone."""
    values: dict[str, float | str | None] = {
        "rule": "lead",
        "spread_Z_ratio": 32.04,
        "limit_spread_Z_ratio": 4.0,
        "lead_changes": 12,
        "limit_lead_changes": 3,
        "slope_gib_per_min": -5.4,
        "clears_below_ratio": 2.0,
    }
    assert list(value_texts(values)) == [
        "unevenness 32 × (from 4 ×)",
        "lead changes 12 (from 3)",
        "trend −5.4 GiB/min",
        "clears below 2 ×",
    ]
