"""The menu: every setting with its present value, which Enter changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import ModalScreen
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from sparktop.graphics.cells import fit

_NAME = 25
_VALUE = 22


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting as one line of the menu: its name, its present value and the function that changes it."""

    name: str
    value: Callable[[], str]
    """Returns the present value as text."""
    change: Callable[[], None]
    """Changes the setting to its next value."""
    key: str = ""
    """The key that changes the setting without the menu; "" if there is none."""


class MenuScreen(ModalScreen[None]):
    """Shows all settings and lets the user change them."""

    DEFAULT_CSS = """
    MenuScreen { align: center middle; }
    MenuScreen > OptionList {
        width: 62; max-width: 96%; height: auto; max-height: 94%;
        border: round $border; background: $background; padding: 0 1;
        border-title-color: $foreground; border-subtitle-color: $foreground;
    }
    MenuScreen > OptionList:focus { border: round $border; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [("escape,m,q", "dismiss", "close")]

    def __init__(self, settings: list[Setting]) -> None:
        """Show `settings` in their order."""
        super().__init__()
        self._settings = settings

    def compose(self) -> ComposeResult:
        """Yield the list of settings."""
        options = OptionList(*(Option(self._line(setting)) for setting in self._settings))
        options.border_title = "settings"
        options.border_subtitle = "enter changes · esc closes"
        yield options

    @staticmethod
    def _line(setting: Setting) -> Text:
        line = Text(fit(setting.name, _NAME))
        line.append(fit(setting.value(), _VALUE), style="bold")
        line.append(fit(setting.key, 8, "right"))
        return line

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Change the selected setting and show all values again, since one may affect another."""
        self._settings[event.option_index].change()
        for index, setting in enumerate(self._settings):
            event.option_list.replace_option_prompt_at_index(index, self._line(setting))
