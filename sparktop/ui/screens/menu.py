"""The options menu: pages of settings, each with its value and, below the list, its explanation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from msgspec import Struct
from rich.style import Style
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from sparktop.graphics.cells import cell_width, fit
from sparktop.ui.screens.base import Dialog
from sparktop.ui.styles import RoleStyles, key_hints


class MenuSetting(Struct, frozen=True):
    """A setting as one line of the menu: its name, its present value and the function that changes it."""

    name: str
    value: Callable[[], str]
    """Returns the present value as text."""
    change: Callable[[int], None]
    """Changes the setting: to its next value (1), its previous value (-1), or at Enter (0) to its next value,
    with the first value after the last."""
    help: str
    """What the setting means, in a sentence or two."""
    key: str = ""
    """The key that changes the setting without the menu; "" if there is none."""
    live: bool = True
    """Whether a change takes effect at once; otherwise when sparktop is started again."""
    file_name: str = ""
    """Name of the setting in the configuration file; "" if it is not stored there."""
    default: str = ""
    """The default value as text; "" if there is none."""
    changed: Callable[[], bool] = lambda: False
    """Returns whether the value was changed and not saved yet."""


_NAME = 25
_VALUE = 21
_KEY = 8
"""Widths in cells of the columns: name, value and key of a setting."""


class Tabs(Static):
    """The row of page titles, of which a click chooses one."""

    def __init__(self, titles: Sequence[str], choose: Callable[[int], None]) -> None:
        """Show `titles`; a click calls `choose` with the index of the page."""
        super().__init__(id="tabs")
        self._titles = titles
        self._choose = choose

    def show(self, chosen: int, styles: RoleStyles) -> None:
        """Draw the titles, with their digits as keys; the chosen one is marked."""
        text = Text()
        for index, title in enumerate(self._titles):
            is_chosen = index == chosen
            text.append(f"{'▸' if is_chosen else ' '}{index + 1} ", styles["key"])
            text.append(title, styles["title" if is_chosen else "muted"])
        self.update(text)

    def on_click(self, event: events.Click) -> None:
        """Choose the page whose title was clicked."""
        end_cell = 0
        for index, title in enumerate(self._titles):
            end_cell += cell_width(title) + 3
            if event.x < end_cell:
                self._choose(index)
                return


class MenuScreen(Dialog[None]):
    """Shows all settings in pages, lets the user change them and save them in the configuration file."""

    DEFAULT_CSS = """
    MenuScreen { align: center middle; }
    MenuScreen > Vertical {
        width: 64; max-width: 100%; height: 22; max-height: 100%;
        border: round $primary; background: $background; padding: 0 1;
        border-title-color: $primary; border-title-style: bold; border-subtitle-color: $foreground;
    }
    MenuScreen #tabs { height: 1; }
    MenuScreen OptionList, MenuScreen OptionList:focus {
        height: 1fr; border: none; padding: 0; background: $background; background-tint: $background 0%;
        scrollbar-size-vertical: 1; scrollbar-color: $border; scrollbar-background: $background;
    }
    MenuScreen:nocolor OptionList > .option-list--option-highlighted { text-style: reverse; }
    MenuScreen #about { height: 6; border-top: solid $border; color: $foreground; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape,m,q", "dismiss", "close"),
        Binding("tab", "turn(1)", "next page", priority=True),
        Binding("shift+tab", "turn(-1)", "previous page", priority=True),
        Binding("right,plus,equals_sign,space", "change(1)", "next value", priority=True),
        Binding("left,minus", "change(-1)", "previous value", priority=True),
        ("s", "save", "save"),
        *((str(number), f"page({number - 1})", "page") for number in range(1, 10)),
    ]

    def __init__(
        self,
        pages: Mapping[str, Sequence[MenuSetting]],
        styles: Callable[[], RoleStyles],
        save: Callable[[], str] | None = None,
    ) -> None:
        """Show the settings of `pages`, by title; `styles` returns the present styles.

        `save` saves and returns a message.
        """
        super().__init__()
        self._titles, self._pages = list(pages), list(pages.values())
        self._styles = styles
        self._save = save
        self._page = 0

    def compose(self) -> ComposeResult:
        """Yield the titles of the pages, the list of settings and the explanation."""
        with Vertical() as box:
            box.border_title = "options"
            saves = "s saves · " if self._save is not None else ""
            box.border_subtitle = key_hints(f"←→ changes · tab next page · {saves}esc closes", self._styles())
            yield Tabs(self._titles, self.action_page)
            yield OptionList()
            yield Static(id="about")

    def on_mount(self) -> None:
        """Show the first page."""
        self._fill_page()

    @property
    def _option_list(self) -> OptionList:
        return self.query_one(OptionList)

    @property
    def _chosen_setting(self) -> MenuSetting:
        return self._pages[self._page][self._option_list.highlighted or 0]

    def _fill_page(self) -> None:
        """Show the settings of the present page, with the first one marked."""
        self._option_list.clear_options()
        self._option_list.add_options(map(Option, map(self._setting_line, self._pages[self._page])))
        self._option_list.highlighted = 0
        self._option_list.focus()
        self._draw()

    def _draw(self) -> None:
        """Show all values of the page again, since one may affect another, and the explanation."""
        styles = self._styles()
        self.query_one(Tabs).show(self._page, styles)
        chosen = self._chosen_setting
        for index, setting in enumerate(self._pages[self._page]):
            self._option_list.replace_option_prompt_at_index(
                index, self._setting_line(setting, chosen=setting is chosen)
            )
        about = Text(chosen.help, styles["text"])
        if not chosen.live:
            about.append("\ntakes effect at the next start", styles["warn"])
        if chosen.file_name:
            about.append(f"\nfile: {chosen.file_name}", styles["muted"])
            if chosen.changed():
                about.append(" · not saved", styles["warn"])
            elif chosen.default:
                about.append(f" · default {chosen.default}", styles["muted"])
        self.query_one("#about", Static).update(about)

    def _setting_line(self, setting: MenuSetting, *, chosen: bool = False) -> Text:
        styles = self._styles()
        line = Text(fit(setting.name, _NAME))
        line.append("*" if setting.changed() else " ", Style(color=styles["warn"].color))
        value = f"◂ {setting.value()} ▸" if chosen else f"  {setting.value()}"
        # Without a background of its own: the highlight must cover it.
        line.append(fit(value, _VALUE), Style(color=styles["key"].color))
        line.append(fit(setting.key, _KEY, "right"))
        return line

    def on_option_list_option_highlighted(self) -> None:
        """Explain the setting."""
        self._draw()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Change the setting to its next value, and after the last to its first."""
        event.stop()
        self.action_change(0)

    def action_change(self, step: int) -> None:
        """Change the highlighted setting: to its next value (1), its previous (-1), or around (0)."""
        self._chosen_setting.change(step)
        if self.is_current:  # the filter closes the menu
            self._draw()

    def action_turn(self, step: int) -> None:
        """Show the next (1) or previous (-1) page."""
        self.action_page((self._page + step) % len(self._pages))

    def action_page(self, number: int) -> None:
        """Show page `number`, from 0; do nothing if there is no such page."""
        if number < len(self._pages):
            self._page = number
            self._fill_page()

    def action_save(self) -> None:
        """Save the changed settings in the configuration file, and say what was saved where."""
        message = self._save() if self._save is not None else "a recording has nothing to save"
        self.notify(message, timeout=6, markup=False)
