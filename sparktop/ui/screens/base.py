"""The bases of all screens: one that is closed takes no more input, and closes nothing else."""

from __future__ import annotations

from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from textual import events
from textual.await_complete import AwaitComplete
from textual.screen import ModalScreen, Screen

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


class Dialog(BaseScreen[Result], ModalScreen[Result]):
    """A screen in front of another one, which stays visible and takes no keys."""
