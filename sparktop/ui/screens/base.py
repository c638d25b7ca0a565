"""The bases of all screens: one that is closed takes no more input, and closes nothing else.

Beside them: what screens may ask of sweeps, and how they read a file that may be long.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary

from textual import events
from textual.await_complete import AwaitComplete
from textual.screen import ModalScreen, Screen

from sparktop.errors import UsageError
from sparktop.model.event import Severity
from sparktop.model.text import clean
from sparktop.panels.board.layout import PanelKey

if TYPE_CHECKING:  # a start without a sweep needs none of it
    from sparktop.recording.past import Band
    from sparktop.sweep.view.result import SweepSource


Result = TypeVar("Result")
_INPUT = (events.InputEvent, events.Paste)
_TYPED_ON: WeakKeyDictionary[events.Key, BaseScreen[Any]] = WeakKeyDictionary()
"""The screen through which a key passed, on its way to the application's table of keys."""


def is_outdated(event: events.Event) -> bool:
    """Return whether a key was typed on a screen that has been closed or covered since."""
    screen = _TYPED_ON.get(event) if isinstance(event, events.Key) else None
    return screen is not None and not screen.is_active


class BaseScreen(Screen[Result], Generic[Result]):
    """A full screen. Keys and clicks that were typed ahead of its end, such as a doubled Esc, have no effect.

    Textual delivers these to a screen that is closed already, and its `dismiss` then closes whichever screen
    is on top.
    """

    def dismiss(self, result: Result | None = None) -> AwaitComplete:
        """Close this screen with `result`; do nothing unless it is the one on top."""
        return super().dismiss(result) if self.is_active else AwaitComplete()

    async def on_event(self, event: events.Event) -> None:
        """Handle an event, but no key, click or paste unless this screen is the one on top."""
        if isinstance(event, _INPUT) and not self.is_active:
            event.stop()
            return
        if isinstance(event, events.Key):
            _TYPED_ON[event] = self
        await super().on_event(event)


class Dialog(ModalScreen[Result], BaseScreen[Result]):
    """A screen in front of another one, which stays visible and takes no keys.

    The order of the bases matters: Textual takes style sheets from the first one only.
    """


# The actions on sweeps that screens can call.


class Desk(Protocol):
    """What screens ask of `sparktop.ui.sweep_desk.SweepDesk`, which imports them."""

    def band(self) -> Band:
        """Return what the sweep's panel on the board shows: a sweep or a countdown; None for no panel."""
        ...

    def start_usual(self, selected: PanelKey | None) -> None:
        """Start the countdown of the default preset on the selected panel's targets."""
        ...

    def start_preset(self, number: int, selected: PanelKey | None) -> None:
        """Start the countdown of the configured preset `number` (from 0)."""
        ...

    def start_capacity(self, selected: PanelKey | None) -> None:
        """Start the countdown of a search for how many agents the selected panel's targets can take."""
        ...

    def edit(self, selected: PanelKey | None) -> None:
        """Open the sweep editor with the last edited sweep, or else with the selected panel's targets."""
        ...

    def call_off(self) -> None:
        """Cancel the sweep whose countdown is running, if there is one."""
        ...

    def stop(self) -> None:
        """Stop the running sweep at the second call within a few seconds; at the first, ask for a second."""
        ...

    def open_sweep(self) -> None:
        """Show the running or last sweep on the full screen; do nothing if there is none."""
        ...

    def dismiss(self) -> None:
        """Remove the panel of the last sweep from the board."""
        ...

    def history(self) -> None:
        """Show the stored results of sweeps."""
        ...

    def compare(self, source: SweepSource) -> None:
        """Show the stored results, one of which the user can choose to compare with `source`."""
        ...

    def say(self, message: str, severity: Severity = Severity.INFO) -> None:
        """Show `message` to the user for some seconds."""
        ...


# Reads a file that may be long in a thread, and continues on the event loop.


Content = TypeVar("Content")


def read_in_thread(
    path: str, read: Callable[[], Content | UsageError], ended: Callable[[Content | UsageError], None]
) -> None:
    """Call `read`, which reads the file `path`, in a thread; then call `ended` on the event loop.

    `ended` gets what `read` returns, or as a UsageError why the file cannot be used. The end of the program
    does not wait for the thread.
    """
    loop = asyncio.get_running_loop()

    def work() -> None:
        result: Content | UsageError
        try:
            result = read()
        except UsageError as error:
            result = error
        except (OSError, ValueError, RecursionError) as error:
            result = UsageError(f"{clean(path, 200)}: {clean(error, 100)}")
        with suppress(RuntimeError):  # the program ends
            loop.call_soon_threadsafe(ended, result)

    threading.Thread(target=work, name="file-reading", daemon=True).start()
