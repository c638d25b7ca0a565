"""Notices: short messages of a few seconds, in the bottom row instead of Textual's boxes over the screen."""

from __future__ import annotations

from typing import Any

from textual.app import App
from textual.notifications import Notification, Notifications, Notify
from textual.screen import Screen
from textual.widgets._toast import Toast, ToastHolder

_GRAVITY = {"information": 0, "warning": 1, "error": 2}
NOTICE_CSS = """
ToastRack { margin: 0; height: auto; max-height: 3; overflow: hidden; align: left bottom; }
ToastHolder { align-horizontal: left; }
ToastRack Toast, ToastRack Toast:ansi {
    width: 100%; max-width: 100%; height: auto; max-height: 3; margin: 0; padding: 0 1; border: none;
    background: $background; color: $foreground;
}
Toast.-warning { color: $warning; text-style: bold; }
Toast.-error { color: $error; text-style: bold; }
"""
"""Style of a notice: one row, or up to three where a message is longer than the screen is wide."""


class NoticeApp(App[None]):
    """An application that shows its notices in the bottom row, only the newest of them."""

    def on_notify(self, event: Notify) -> None:
        """Remove the notices that the new one replaces: all except those of a higher severity."""
        for old in list(self._notifications):
            if not _outranks(old, event.notification):
                self._unnotify(old, refresh=False)
        for screen in self.screen_stack:
            _forget_outdated(screen, self._notifications)


def _forget_outdated(screen: Screen[Any], notifications: Notifications) -> None:
    """Remove what a screen shows of notices that are replaced or past.

    Textual would remove the message alone. Its empty holder would keep a row: three would hide all notices.
    """
    for holder in screen.query(ToastHolder):
        if not any(toast._notification in notifications for toast in holder.query(Toast)):  # noqa: SLF001 - there is no other way to it
            holder.remove()


def _outranks(old: Notification, new: Notification) -> bool:
    return _GRAVITY[old.severity] > _GRAVITY[new.severity]
