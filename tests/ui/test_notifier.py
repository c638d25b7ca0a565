"""Bell and notifications: what is sent, how often, and that hostile text stays inside its sequence."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktop.model.event import Event, Severity
from sparktop.model.targets import EventSettings, Watch
from sparktop.store import Store
from sparktop.ui.terminal import PAUSE_S, Notifier, notify_of_events

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Terminal:
    """A notifier, its clock and what it sent."""

    def __init__(self, *, bell: bool = False, notify: str = "off", in_tmux: bool = False) -> None:
        """Send warnings and graver events."""
        self.at = 100.0
        self.sent: list[str] = []
        settings = EventSettings(bell=bell, notify=notify)
        self.notifier = Notifier(lambda: settings, self.sent.append, clock=lambda: self.at, in_tmux=in_tmux)

    def happen(self, message: str = "down", subject: str = "b") -> None:
        """Pass an event to the notifier."""
        self.notifier.notify(Event(NOON, Severity.CRITICAL, subject, message))


@pytest.mark.parametrize(
    ("bell", "notify", "sent"),
    [
        (True, "off", ["\a"]),
        (False, "osc9", ["\x1b]9;sparktop: b: down\a"]),
        (False, "osc777", ["\x1b]777;notify;sparktop;b: down\a"]),
        (True, "osc9", ["\a\x1b]9;sparktop: b: down\a"]),
        (False, "off", []),
    ],
)
def test_each_way_has_its_sequence(bell: bool, notify: str, sent: list[str]) -> None:  # noqa: FBT001 - a case
    """One write with the whole sequence."""
    terminal = Terminal(bell=bell, notify=notify)
    terminal.happen()
    assert terminal.sent == sent


def test_many_events_are_one_notification_in_ten_seconds() -> None:
    """What comes in between is counted in the next one."""
    terminal = Terminal(notify="osc9")
    for _ in range(5):
        terminal.happen()
        terminal.at += 1
    terminal.at = 100 + PAUSE_S
    terminal.happen("back")
    assert terminal.sent == ["\x1b]9;sparktop: b: down\a", "\x1b]9;sparktop: b: back (and 4 more)\a"]


@given(st.text(), st.text())
def test_hostile_text_cannot_leave_its_sequence(subject: str, message: str) -> None:
    """Whatever a server says: one escape, one end, and nothing else that a terminal acts on."""
    hostile = f"\x1b\\{message}\a\x1b[2J\x9c;4;\x07\n"
    for notify in ("osc9", "osc777"):
        terminal = Terminal(notify=notify)
        terminal.happen(hostile, subject=subject)
        (sequence,) = terminal.sent
        inside = sequence[1:-1]
        assert (sequence[0], sequence[-1]) == ("\x1b", "\a")
        assert inside.isprintable()
        assert inside.count(";") == (1 if notify == "osc9" else 3)
        assert len(inside) < 220


def test_inside_tmux_a_notification_is_passed_on() -> None:
    """Its one escape is doubled and the whole wrapped; the bell needs no wrapping."""
    terminal = Terminal(bell=True, notify="osc9", in_tmux=True)
    terminal.happen()
    assert terminal.sent == ["\a\x1bPtmux;\x1b\x1b]9;sparktop: b: down\a\x1b\\"]


def test_it_is_off_by_default() -> None:
    """Nothing is sent unless the settings ask for it, which the user can change at any time."""
    store, sent, settings = Store(Watch()), list[str](), [EventSettings()]
    notify_of_events(store, lambda: settings[0], sent.append)
    store.note("a", "b", Severity.WARNING)
    assert sent == []
    settings[0] = EventSettings(bell=True)
    store.note("a", "c", Severity.WARNING)
    assert sent == ["\a"]
