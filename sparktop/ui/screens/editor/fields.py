"""The widgets of the sweep editor: text fields, choices among a few words, and a list of targets to mark."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.message import Message
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from sparktop.graphics.cells import cell_width, fit
from sparktop.model.text import clean
from sparktop.sweep.plan.draft import READING
from sparktop.sweep.plan.plan import SweepTarget, TargetKind

LABEL = 14
"""Width of the label before a field, in terminal cells."""
_LONGEST = 400
"""Most characters of a field."""
_NAME, _MOST_NAME = 12, 28
"""Least and greatest width in cells of the column of names."""
_KIND = 8
"""Width in cells of the kind of a target."""
MARKED, UNMARKED = "[x]", "[ ]"


class FieldChanged(Message):
    """Posted when the user has typed, chosen or marked something."""

    def __init__(self, name: str, value: object) -> None:
        """Store the name of the draft's field and its new value."""
        super().__init__()
        self.name = name
        self.value = value


class Problem(Static):
    """The line under a field that shows the error in its value; hidden if there is none."""

    def report(self, line: str | None) -> None:
        """Show `line`, or hide this widget if `line` is None or "". `READING` has no mark of an error."""
        self.display = bool(line)
        self.update(Text(f"{'…' if line == READING else '✗'} {line}" if line else ""))


class ChoiceField(Static, can_focus=True):
    """A field for one of a few words; arrow keys, space or a click change to another word."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("left", "turn(-1)", "the word before"),
        ("right,space,enter", "turn(1)", "the next word"),
    ]

    def __init__(self, name: str, words: Sequence[str], value: str) -> None:
        """Show `value`, which is one of `words`; a change is posted for the draft's field `name`."""
        super().__init__(id=f"field-{name}", classes="input")
        self._field = name
        self._words = list(words)
        self.value = value

    def on_mount(self) -> None:
        """Draw the initial word."""
        self.show(self.value)

    def show(self, value: str, after: str = "") -> None:
        """Show the word `value`, followed by the text `after`, without posting a change."""
        self.value = value
        line = Text()
        line.append("◂ ", style="dim")
        line.append(clean(value, 60), style="bold")
        line.append(clean(after, 80))
        line.append(" ▸", style="dim")
        # Its size is fixed by the style sheet: no layout for another word.
        self.update(line, layout=False)

    def action_turn(self, step: int) -> None:
        """Change to the next (1) or previous (-1) word and post the change; the first follows the last."""
        index = self._words.index(self.value) if self.value in self._words else -1
        self.show(self._words[(index + step) % len(self._words)])
        self.post_message(FieldChanged(self._field, self.value))

    def on_click(self, event: events.Click) -> None:
        """Change to the previous word if the left arrow was clicked, else to the next word."""
        self.action_turn(-1 if event.x == 0 else 1)


class Pages(ChoiceField):
    """A field for one of a few words that are all in sight, as the titles of pages."""

    def __init__(self, name: str, words: Mapping[str, str], value: str) -> None:
        """Show `value`, which is one of `words`; these are mapped to their titles."""
        super().__init__(name, list(words), value)
        self._titles = words

    def on_resize(self) -> None:
        """Draw again: the titles may fit now, or fit no longer."""
        self.show(self.value)

    def show(self, value: str, after: str = "") -> None:
        """Show the titles with that of `value` marked; where these do not fit, only the word."""
        if self._width() > self.size.width:
            super().show(value, after)
            return
        self.value = value
        line = Text()
        for word, title in self._titles.items():
            is_value = word == value
            line.append("▸" if is_value else " ")
            line.append(f"{title} ", style="bold" if is_value else "dim")
        self.update(line)

    def _width(self) -> int:
        return sum(cell_width(title) + 2 for title in self._titles.values())

    def on_click(self, event: events.Click) -> None:
        """Choose the title that was clicked; where only the word is shown, as every choice."""
        if self._width() > self.size.width:
            super().on_click(event)
            return
        event.prevent_default()  # the click on other choices turns them
        at = 0
        for word, title in self._titles.items():
            at += cell_width(title) + 2
            if event.x < at:
                self.show(word)
                self.post_message(FieldChanged(self._field, word))
                return


class Typed(Input):
    """A text field; Enter moves to the next field."""

    BINDINGS: ClassVar[list[BindingType]] = [("enter", "screen.focus_next", "next field")]

    def __init__(self, name: str, value: str, placeholder: str) -> None:
        """Start with the text `value`; a change is posted for the draft's field `name`."""
        super().__init__(
            value,
            placeholder=placeholder,
            id=f"field-{name}",
            classes="input",
            max_length=_LONGEST,
            compact=True,
            select_on_focus=False,
        )
        self._field = name
        self.seen_at = math.inf
        """Monotonic time from which on the field is on the screen, and takes what is typed."""

    def on_mount(self) -> None:
        """Note when the field has been drawn."""
        self.call_after_refresh(self._note_seen)

    def _note_seen(self) -> None:
        self.seen_at = monotonic()

    async def on_key(self, event: events.Key) -> None:
        """Keep out what was typed before the field was seen; close the editor at Esc and a letter after it.

        On a slow line these two arrive together, which reads as Alt and the letter.
        """
        if not event.is_printable:
            return
        is_esc = event.key.startswith("alt+")
        if is_esc or event.time < self.seen_at:
            event.stop()
            event.prevent_default()
        if is_esc:
            await self.run_action("screen.close")

    def on_input_changed(self, event: Input.Changed) -> None:
        """Post the text typed so far."""
        event.stop()
        self.post_message(FieldChanged(self._field, event.value))

    def show(self, value: str) -> None:
        """Set the text to `value` without posting a change."""
        if value != self.value:
            with self.prevent(Input.Changed):
                self.value = value


class Field(Vertical):
    """A label, the widget for the value, and a line for the error in the value."""

    def __init__(self, label: str, inside: ChoiceField | Typed) -> None:
        """Put `label` before the widget `inside`."""
        super().__init__(classes="field")
        self._label = label
        self.inside = inside
        self.problem = Problem(classes="problem")

    def compose(self) -> ComposeResult:
        """Yield the label, the widget for the value, and the line for the error."""
        with Horizontal():
            yield Static(Text(fit(self._label, LABEL)), classes="label")
            yield self.inside
        yield self.problem

    def on_click(self, event: events.Click) -> None:
        """Focus the value's widget if the label was clicked."""
        if event.widget is not self.inside:
            self.inside.focus()


class TargetList(OptionList):
    """The targets, each of which can be marked; the arrow keys leave the list at its ends."""

    BINDINGS: ClassVar[list[BindingType]] = [("space", "select", "mark")]

    def __init__(self, targets: Sequence[SweepTarget], marked: Sequence[str]) -> None:
        """List `targets`; those named in `marked` are marked."""
        self._targets = list(targets)
        self.marked = {name for name in marked if name in {target.name for target in targets}}
        names = (cell_width(clean(target.name, _MOST_NAME)) for target in targets)
        self._name_width = min(_MOST_NAME, max(_NAME, *names, 0))
        super().__init__(*(Option(self._line(target)) for target in self._targets), id="field-targets")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the marked targets, in the order of the list."""
        return tuple(target.name for target in self._targets if target.name in self.marked)

    def _line(self, target: SweepTarget) -> Text:
        mark, style = (MARKED, "bold") if target.name in self.marked else (UNMARKED, "")
        line = Text()
        line.append(f"{mark} {fit(clean(target.name, 80), self._name_width)}", style=style)
        kind = "router" if target.kind is TargetKind.ROUTER else "server"
        line.append(f" {fit(kind, _KIND)}")
        if not target.known:
            line.append("asks first  ", style="bold")
        line.append(clean(target.url, 80))
        if target.backends:
            count = len(target.backends)
            line.append(f" · {count} server{'s' if count > 1 else ''} behind it")
        return line

    def show(self, marked: Sequence[str]) -> None:
        """Mark the targets named in `marked` and no others, without posting a change."""
        self.marked = {name for name in marked if name in {target.name for target in self._targets}}
        for index, target in enumerate(self._targets):
            self.replace_option_prompt_at_index(index, self._line(target))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Mark the selected target, or unmark it if it was marked; post the change."""
        event.stop()
        self.marked ^= {self._targets[event.option_index].name}
        self.show(tuple(self.marked))
        self.post_message(FieldChanged("targets", self.names))

    def action_cursor_up(self) -> None:
        """Move the cursor up; from the first line, focus the previous field."""
        if not self.highlighted:
            self.screen.focus_previous()
        else:
            super().action_cursor_up()

    def action_cursor_down(self) -> None:
        """Move the cursor down; from the last line, focus the next field."""
        if self.highlighted is None or self.highlighted < self.option_count - 1:
            super().action_cursor_down()
        else:
            self.screen.focus_next()
