"""The application's themes, and its notices in the bottom row instead of Textual's boxes over the screen."""

from __future__ import annotations

from msgspec.structs import replace
from textual.app import App
from textual.notifications import Notification, Notify, SeverityLevel
from textual.theme import Theme
from textual.widgets._toast import Toast, ToastHolder

from sparktop.colors.palette import Palette, find_palette, palettes, theme_problems
from sparktop.errors import ConfigError
from sparktop.model.text import clean
from sparktop.ui.canvas import Canvas
from sparktop.ui.styles import RoleStyles, textual_theme

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


class ScreenNotice(Notification):
    """A notification that a screen may show just as it expires.

    Textual's timer never ends a loop of negative intervals, so the time left is more than 0.
    """

    @property
    def time_left(self) -> float:
        """Seconds until it expires, at least a hundredth."""
        return max(0.01, super().time_left)

    @property
    def has_expired(self) -> bool:
        """Whether its time is over."""
        return super().time_left <= 0


class ThemedApp(App[None]):
    """An application whose theme has a colour for each role of what is drawn, such as "title" or "warn".

    It shows its notices in the bottom row, only the newest of them.
    """

    no_color_wanted: bool
    """Whether NO_COLOR is set: themes then have no effect."""
    role_styles: RoleStyles
    """The present style of each role."""
    color_system: str | None = None
    """Colours of the terminal as Rich names them, such as "256"; None before they are known."""

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = True,
    ) -> None:
        """Show a notice, for `timeout` seconds (None: the usual time)."""
        seconds = self.NOTIFICATION_TIMEOUT if timeout is None else timeout
        self.post_message(Notify(ScreenNotice(message, title, severity, seconds, markup=markup)))

    def on_notify(self, event: Notify) -> None:
        """Remove the notices that the new one replaces: all except those of a higher severity.

        Textual calls this before its own handler, which adds the new notice. It would remove the message
        alone; the empty holder would keep a row, and three of them would hide all notices.
        """
        for old in list(self._notifications):
            if _GRAVITY[old.severity] <= _GRAVITY[event.notification.severity]:
                self._unnotify(old, refresh=False)
        for holder in (holder for screen in self.screen_stack for holder in screen.query(ToastHolder)):
            toasts = holder.query(Toast)
            if not any(toast._notification in self._notifications for toast in toasts):  # noqa: SLF001 - there is no other way to it
                holder.remove()

    def _begin_with(self, theme: Theme) -> None:
        """Use `theme` from the start: after a change Textual parses all style sheets once more."""
        self.register_theme(theme)
        self.set_reactive(App.theme, theme.name)
        classes = {"-dark-mode": theme.dark, "-light-mode": not theme.dark, f"-theme-{theme.name}": True}
        self.update_classes(classes, update=False)
        self._refresh_truecolor_filter(self.ansi_theme)
        self.stylesheet.set_variables(self.get_css_variables())

    def _register_themes(self) -> None:
        """Register all themes with Textual, in addition to the initial one."""
        for palette in palettes().values():
            self.register_theme(textual_theme(palette))

    def _report_theme_problems(self) -> None:
        """Show one notice about all faulty theme files of the user; other themes stay usable."""
        problems = theme_problems()
        if not problems:
            return
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        words = f"theme {problems[0]}{more}: sparktop config themes lists all"
        self.notify(words, severity="warning", timeout=12, markup=False)

    def _limit_colors(self, canvas: Canvas) -> None:
        """Draw with the colours that the terminal has, if it does not report more than 16.

        `canvas` is that of the first screen, which is not mounted yet.
        """
        self.color_system = self.console.color_system
        palette = self._limited(self.role_styles.palette)
        if palette is not self.role_styles.palette:
            self._draw_with(palette)
            canvas.restyle(self.role_styles)

    def _limited(self, palette: Palette) -> Palette:
        """Return `palette`, with the colours of the theme for terminals of 16 colours on such a terminal.

        The nearest of 256 colours are chosen where they are sent.
        """
        ansi = find_palette("spark-ansi") if self.color_system == "standard" else None
        return palette if ansi is None else replace(ansi, name=palette.name)

    def _draw_with(self, palette: Palette) -> None:
        blocks, self.role_styles = (
            self.role_styles.blocks,
            RoleStyles(palette, color=not self.no_color_wanted),
        )
        self._draw_graphs(blocks=blocks)

    def _draw_graphs(self, *, blocks: bool) -> None:
        """Draw all graphs with blocks, or with braille dots."""
        self.role_styles.blocks = blocks
        for screen in self.screen_stack:
            for canvas in screen.query(Canvas):
                canvas.restyle(self.role_styles)

    def _restyle(self) -> None:
        palette = find_palette(self.theme)
        if palette is not None and palette.name != self.role_styles.palette.name:
            self._draw_with(self._limited(palette))

    def action_next_theme(self, step: int = 1) -> None:
        """Change to the next (1) or previous (-1) of sparktop's themes."""
        names = list(palettes())
        if self.no_color_wanted:
            self.notify("NO_COLOR is set: themes have no colours to show")
            return
        index = names.index(self.theme) if self.theme in names else -1
        name = names[(index + step) % len(names)]
        self.register_theme(textual_theme(self._limited(palettes()[name])))
        self.theme = name
        self.notify(f"theme {self.theme}", timeout=2, markup=False)


def chosen_palette(name: str) -> Palette:
    """Return the palette of the theme `name`.

    Raises:
        ConfigError: there is no such theme; the message lists the themes that exist.
    """
    palette = find_palette(name)
    if palette is None:
        raise ConfigError(f"no theme {clean(name, 40)!r}: there are {', '.join(palettes())}")
    return palette
