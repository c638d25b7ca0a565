"""The editor of sweeps: its fields, checked while the user types, and what the sweep would cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import ClassVar

from msgspec.structs import replace
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import BindingsMap, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.message import Message
from textual.widgets import Button, Input, OptionList, Static
from textual.widgets.option_list import Option

from sparktop.config.keys import Key
from sparktop.errors import UsageError
from sparktop.graphics.cells import cell_width, fit
from sparktop.model.snapshot import Snapshot
from sparktop.model.targets import GuardLimits, SweepSpec
from sparktop.model.text import clean
from sparktop.sweep.plan.draft import CHOICES as DRAFT_CHOICES
from sparktop.sweep.plan.draft import (
    FIELDS,
    READING,
    WHOLE,
    Draft,
    DraftKind,
    check_draft,
    is_changed,
    kind_of,
    shown_fields,
    with_kind,
    with_preset,
)
from sparktop.sweep.plan.plan import Plan, SweepTarget, TargetKind
from sparktop.sweep.plan.presets import replay_of
from sparktop.sweep.plan.traces import TraceReplay
from sparktop.sweep.result.results import SweepResult
from sparktop.sweep.run.forecast import forecast, pieces
from sparktop.ui.keys import bindings
from sparktop.ui.screens.base import Dialog, read_in_thread
from sparktop.ui.styles import key_hints

WARM, COLD = "yes", "no"
FieldTexts = Mapping[str, tuple[str, str]]
"""(Label, what it means) of fields by name, in the order in which they stand."""
_HEAD: FieldTexts = {
    "preset": ("preset", "values that belong together; each can be changed below"),
    "kind": ("load", "how requests are sent: so many at once, at a rate, by agents"),
}
"""Fields above all others."""
_FIRST: FieldTexts = {
    "trace": ("file", "file with recorded traffic: times and lengths of requests"),
    "workload": ("workload", "what agents send: lengths, turns, tools"),
}
"""Fields above the columns, because their values are long."""
_LEFT: FieldTexts = {
    "concurrency": ("concurrency", "requests in flight at once; 1,4,16..256 goes on while tok/s rise"),
    "rate": ("requests/s", "requests per second, whatever the servers do; auto looks for the border"),
    "arrivals": ("arrivals", "the times between requests: by chance, constant, or in bursts"),
    "agents": ("agents", "programs whose calls use tools and repeat a long prefix"),
    "trace_speed": ("speed", "factor by which the recorded times are shortened"),
    "trace_range": ("part", "the part of the recording that is sent, such as 10m..1h"),
    "trace_format": ("format", "how the file is read; recognised by its first line"),
    "pp": ("prompt tokens", "tokens of each prompt; several lengths are levels of their own"),
    "tg": ("output tokens", "tokens that each request generates"),
    "runs": ("runs", "runs of each level; 3+: at least 3, and more until 10 s are measured"),
    "duration": ("seconds", "seconds of each level, if it shall end by time"),
    "requests": ("requests", "requests of each level, in place of runs; with steady those of each run"),
}
"""Fields in the left column."""
_RIGHT: FieldTexts = {
    "mode": ("sent", "burst: all begin together; steady: one ends, the next begins"),
    "order": ("order", "order of levels and targets; abba cancels a slow drift"),
    "warmup": ("warm-up run", "an unmeasured run before each level, so that compilation is over"),
    "api": ("api", "chat or plain completions"),
    "headroom": ("min free GiB", "the sweep ends when a machine of its targets has less memory left"),
    "gpu": ("max GPU °C", "the sweep ends when a GPU of its targets is hotter"),
}
"""Fields in the right column."""
_LAST: FieldTexts = {
    "depth": ("context tokens", "tokens of context before each prompt"),
    "context": ("context sent", "the context is sent by a request before, or with the prompt"),
    "model": ("model", "name of the model that is requested"),
    "slo": ("slo", "limit that a level must hold; the sweep finds the highest level that does"),
}
"""Fields below the columns."""
_PARTS = (_HEAD, _FIRST, _LEFT, _RIGHT, _LAST)
FIRST, LEFT, RIGHT, LAST = tuple(_FIRST), tuple(_LEFT), tuple(_RIGHT), tuple(_LAST)
LABELS = {name: label for part in _PARTS for name, (label, _) in part.items()}
"""Labels of the fields, in the order in which a fault is looked for."""
_TARGETS = "what gets the load: a router or single servers; space marks one"
ABOUT = {"targets": _TARGETS} | {name: about for part in _PARTS for name, (_, about) in part.items()}
"""What each field means, in one row of a dialog of 80 columns."""
_EMPTY = {
    "concurrency": "1,4,16",
    "rate": "0.5,1,2; 0.5..4 rises; auto",
    "arrivals": "poisson, constant, bursty, trains, gamma:B",
    "agents": "1,4,16",
    "workload": "coder-quick; chat, coder, rag, or a TOML file of your own",
    "trace": "Mooncake, aiperf or Azure",
    "trace_speed": "1: as recorded",
    "trace_range": "all; 10m..1h",
    "pp": "128",
    "tg": "64",
    "runs": "till the time is up",
    "duration": "no limit",
    "requests": "runs × at once",
    "depth": "none; 0,4k,16k: before each prompt",
    "model": "the server's only or first one",
    "headroom": "8 with unified memory; 0: off",
    "gpu": "92 with unified memory; 0: off",
    "slo": "none; such as ttft_p90_ms=2000",
}
"""What an empty text field shows, by the field's name: what holds without a value, or examples."""
_EMPTY_OF: dict[tuple[str, str], str] = {
    **{(kind, "runs"): "1" for kind in DraftKind if kind is not DraftKind.CONCURRENCY},
    (DraftKind.RATE, "duration"): "60",
    (DraftKind.AGENTS, "duration"): "by the workload",
}
"""The same where it depends on the kind of load, by (kind, field)."""
KIND_TITLES: Mapping[str, str] = {
    DraftKind.CONCURRENCY.value: "at once",
    DraftKind.RATE.value: "per second",
    DraftKind.AGENTS.value: "agents",
    DraftKind.TRACE.value: "recorded",
}
"""Titles of the pages of the editor, one for each kind of load."""
CHOICES = {**DRAFT_CHOICES, "warmup": (WARM, COLD)}


def placeholder(name: str, kind: str) -> str:
    """Return what stands in an empty text field while a sweep of this kind of load is edited."""
    return _EMPTY_OF.get((kind, name), _EMPTY.get(name, ""))


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


EDITOR_KEYS = (
    Key("start", ("ctrl+s",), "ctrl+s", "start", "start the sweep", "start"),
    Key(
        "close",
        ("escape",),
        "esc",
        "close",
        "close without a sweep; the last valid fields are remembered",
        "close",
    ),
    Key("next", ("tab", "down"), "tab ↓", "app.focus_next", "next field", "next"),
    Key("previous", ("shift+tab", "up"), "↑", "app.focus_previous", "the field before"),
    Key("mark", (), "space", "", "mark a target, or take its mark away", "mark"),
    Key("turn", (), "← →", "", "another preset or word", "change"),
)
"""The keys of the editor, in the order of its footer."""

_FRAME = 2
"""Rows of the upper and lower border of the dialog."""
_SHARE = 0.96
"""The greatest height of the dialog, as a share of the screen's height."""
_LEAST_FORM = 3
"""Least rows of the form, however small the screen."""


class _Form(VerticalScroll, inherit_bindings=False):
    """The fields, which scroll to the focused one; the arrow keys stay with the fields and the editor."""


class _Foot(Vertical):
    """The part of the dialog below the form: error, cost and buttons, which do not scroll with the form.

    Calls `resized` when its height changes.
    """

    def __init__(self, resized: Callable[[], None]) -> None:
        super().__init__(id="foot")
        self._resized = resized

    def on_resize(self) -> None:
        """Call the function `resized` given at creation, because the height may have changed."""
        self._resized()


class SweepEditor(Dialog[Draft]):
    """A dialog to edit a sweep; its result is the draft to start, or None if the user cancels."""

    AUTO_FOCUS = ""
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (76, "-wide")]  # noqa: RUF012 - Textual declares it on instances
    VERTICAL_BREAKPOINTS = [(0, "-short"), (25, "-tall")]  # noqa: RUF012 - as above
    DEFAULT_CSS = """
    SweepEditor { align: center middle; }
    SweepEditor > #box {
        width: 104; max-width: 100%; height: auto; max-height: 96%;
        border: round $primary; background: $background; padding: 0 1; overflow: hidden;
        border-title-color: $primary; border-title-style: bold; border-subtitle-color: $foreground;
    }
    SweepEditor.-narrow > #box { max-height: 100%; }
    SweepEditor #form {
        height: auto; background: $background; scrollbar-size-vertical: 1;
        scrollbar-color: $border; scrollbar-background: $background;
        scrollbar-color-hover: $accent; scrollbar-color-active: $accent;
        scrollbar-background-hover: $background; scrollbar-background-active: $background;
    }
    SweepEditor .field, SweepEditor .field > Horizontal, SweepEditor #columns, SweepEditor .column {
        height: auto;
    }
    SweepEditor .column { width: 1fr; }
    SweepEditor.-narrow #columns { layout: vertical; }
    SweepEditor.-wide #right { margin-left: 2; }
    SweepEditor .label { width: 15; height: 1; }
    SweepEditor .input { width: 1fr; height: 1; background: $background; color: $accent; padding: 0; }
    SweepEditor Typed:focus, SweepEditor Choice:focus { background: $block-cursor-background; }
    SweepEditor:nocolor Choice:focus, SweepEditor:nocolor Button:focus { text-style: reverse; }
    SweepEditor:nocolor #field-targets:focus > .option-list--option-highlighted { text-style: underline; }
    SweepEditor .problem {
        height: auto; padding-left: 2; color: $error; text-style: bold; display: none;
    }
    SweepEditor #field-targets {
        height: auto; max-height: 6; border: none; padding: 0; background: $background; margin: 1 0 0 0;
        text-wrap: nowrap; text-overflow: ellipsis;
        scrollbar-size-vertical: 1; scrollbar-color: $border; scrollbar-background: $background;
    }
    SweepEditor #field-targets:focus { border: none; background-tint: $background 0%; }
    SweepEditor #field-targets > .option-list--option-highlighted {
        background: $background; color: $foreground; text-style: none;
    }
    SweepEditor #field-targets:focus > .option-list--option-highlighted {
        background: $block-cursor-background; color: $foreground;
    }
    SweepEditor #columns { margin-top: 1; }
    SweepEditor.-short #columns, SweepEditor.-short #field-targets { margin-top: 0; }
    SweepEditor #foot { dock: bottom; height: auto; background: $background; }
    SweepEditor #about {
        height: 2; border-top: solid $border; color: $foreground; text-wrap: nowrap; text-overflow: ellipsis;
    }
    SweepEditor.-short #about { height: 1; border-top: none; color: $text-muted; }
    SweepEditor #cost { height: auto; min-height: 2; }
    SweepEditor.-narrow #about { display: none; }
    SweepEditor.-tall #cost { margin-top: 1; }
    SweepEditor #wrong { padding-left: 0; }
    SweepEditor Button {
        height: 1; min-width: 9; border: none; background: $background; color: $foreground; margin-right: 2;
    }
    SweepEditor Button:focus { background: $block-cursor-background; text-style: bold reverse; }
    SweepEditor #buttons { height: 1; align-horizontal: right; }
    """

    def __init__(
        self,
        targets: Sequence[SweepTarget],
        draft: Draft,
        *,
        presets: Mapping[str, SweepSpec],
        guard: GuardLimits,
        known: Sequence[SweepResult],
        snapshot: Snapshot | None,
        keep: Callable[[Draft], None],
    ) -> None:
        """Start with `draft`, whose targets and preset exist.

        The duration is estimated from `known`, results of earlier sweeps, and from the servers in `snapshot`.
        `keep` is called with the draft when the editor closes, whether a sweep starts or not.
        """
        super().__init__()
        self._targets = tuple(targets)
        self._draft = self._last_valid = draft
        self._presets = presets
        self._guard = guard
        self._known = tuple(known)
        self._snapshot = snapshot
        self._keep = keep
        self._made: Plan | None = None
        self._problems: Mapping[str, str] = {}
        self._fields: dict[str, Field] = {}
        self._traces = TraceReading(self._trace_read)
        self._bindings = BindingsMap(bindings([key for key in EDITOR_KEYS if key.keys]))

    @property
    def draft(self) -> Draft:
        """The present values of the fields."""
        return self._draft

    @property
    def plan(self) -> Plan | None:
        """The plan that the fields make; None while one of them is not right.

        It has the preset's name only if it is of the preset's kind of load.
        """
        plan, preset = self._made, self._presets.get(self._draft.preset)
        if plan is None or (preset is not None and kind_of(preset) == self._draft.kind):
            return plan
        return replace(plan, preset=None)

    def compose(self) -> ComposeResult:
        """Yield the widgets: the form, and below it the part with error, cost and buttons."""
        self._fields = {name: Field(label, self._value_widget(name)) for name, label in LABELS.items()}
        with Vertical(id="box") as box:
            box.border_title = "sweep"
            hints = " · ".join(f"{key.shown} {key.footer}" for key in EDITOR_KEYS if key.footer)
            box.border_subtitle = key_hints(hints, getattr(self.app, "role_styles", None))
            with _Form(id="form", can_focus=False):
                yield self._fields["kind"]
                yield self._fields["preset"]
                yield TargetList(self._targets, self._draft.targets)
                yield Problem(id="no-target", classes="problem")
                yield from (self._fields[name] for name in FIRST)
                with Horizontal(id="columns"):
                    with Vertical(classes="column"):
                        yield from (self._fields[name] for name in LEFT)
                    with Vertical(classes="column", id="right"):
                        yield from (self._fields[name] for name in RIGHT)
                yield from (self._fields[name] for name in LAST)
            with _Foot(self.fit_form):
                yield Static(id="about")
                yield Static(id="cost")
                yield Problem(id="wrong", classes="problem")
                with Horizontal(id="buttons"):
                    yield Button(Text("[ start ]"), id="start", compact=True)
                    yield Button(Text("[ cancel ]"), id="cancel", compact=True)

    def _value_widget(self, name: str) -> ChoiceField | Typed:
        if name == "preset":
            return ChoiceField(name, list(self._presets), self._draft.preset)
        if name == "kind":
            return Pages(name, KIND_TITLES, self._draft.kind)
        if name in CHOICES:
            return ChoiceField(name, CHOICES[name], self._kind_word(name))
        return Typed(name, self._kind_word(name), placeholder(name, self._draft.kind))

    def _kind_word(self, name: str) -> str:
        value = getattr(self._draft, name)
        if isinstance(value, bool):
            return WARM if value else COLD
        return str(value)

    def on_mount(self) -> None:
        """Check the initial draft and show its errors and cost; focus the first field of its load."""
        self._show(fill=False)
        self.query_one(f"#field-{FIELDS[self._draft.kind][0]}").focus()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """Explain the field that has the focus."""
        name = (event.widget.id or "").removeprefix("field-")
        about = self.query_one("#about", Static)
        about.update(Text(ABOUT.get(name, "")))

    def on_resize(self) -> None:
        """Limit the form's height so that error, cost and buttons below it stay visible."""
        self.fit_form()

    def fit_form(self) -> None:
        """Limit the form's height so that error, cost and buttons below it stay visible while it scrolls.

        A style sheet cannot express this limit.
        """
        foot = self.query_one("#foot").outer_size.height
        share = 1.0 if self.has_class("-narrow") else _SHARE
        room = int(self.size.height * share) - _FRAME - foot
        self.query_one("#form").styles.max_height = max(_LEAST_FORM, room)
        if self.focused is not None:
            self.call_after_refresh(self.focused.scroll_visible, animate=False)

    def on_field_changed(self, message: FieldChanged) -> None:
        """Apply to the draft what the user has typed, chosen or marked."""
        message.stop()
        self.change(message.name, message.value)

    def change(self, name: str, value: object) -> None:
        """Set the field `name` of the draft and the fields that depend on it, and show the result."""
        if name == "preset":
            names = {target.name for target in self._targets}
            self._draft = with_preset(self._draft, self._presets[str(value)], self._guard, names)
        elif name == "kind":
            self._draft = with_kind(self._draft, str(value))
        elif name == "warmup":
            self._draft = replace(self._draft, warmup=value == WARM)
        else:
            self._draft = replace(self._draft, **{name: value})  # type: ignore[arg-type]  # by the field's name
        self._show(fill=name in {"preset", "kind"})

    def _show(self, *, fill: bool) -> None:
        """Show the errors and the cost of the draft; if `fill`, write the draft into all text fields too.

        Use `fill` only if one field has changed others: while the user types into a field, more letters may
        have been typed already, and writing the value back would lose them.
        """
        draft = self._draft
        preset = self._presets.get(draft.preset)
        self._made, self._problems = check_draft(draft, self._targets, find=self._traces.find, preset=preset)
        problems = self._problems
        self._last_valid = self._last_valid if problems else draft
        changed = is_changed(draft, preset, self._guard)
        fields = shown_fields(draft)
        for name, field in self._fields.items():
            inside = field.inside
            field.display = name == "preset" or name in fields
            if isinstance(inside, ChoiceField):
                inside.show(self._kind_word(name), ", changed" if name == "preset" and changed else "")
            elif fill:
                inside.show(self._kind_word(name))
                inside.placeholder = placeholder(name, draft.kind)
            field.problem.report(problems.get(name))
        targets = self.query_one(TargetList)
        if targets.names != draft.targets:
            targets.show(draft.targets)
        self.query_one("#no-target", Problem).report(problems.get("targets"))
        self._show_cost()

    def _trace_read(self) -> None:
        """Check the draft again when the file of a trace has been read."""
        if self.is_mounted:
            self._show(fill=False)

    def _show_cost(self) -> None:
        problems, plan = self._problems, self._made
        cost = self.query_one("#cost", Static)
        cost.display = plan is not None
        if plan is not None:
            requests, tokens, *lines = pieces(forecast(plan, self._known, self._snapshot))
            cost.update(Text("\n".join((f"{requests} · {tokens}", *lines))))
        self.query_one("#wrong", Problem).report(_why_not_startable(problems) if problems else None)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Start the sweep, or close the editor without starting a sweep, depending on the button."""
        if event.button.id == "start":
            self.action_start()
        else:
            self.action_close()

    def action_start(self) -> None:
        """Close with the draft; if the draft has an error, focus the first faulty field instead."""
        if self._problems:
            name = next((name for name in ("targets", *LABELS) if name in self._problems), None)
            if name is not None:
                self.query_one(f"#field-{name}").focus()
            return
        self._keep(self._draft)
        self.dismiss(self._draft)

    def action_close(self) -> None:
        """Close without a sweep; the last draft without an error is kept for the next time."""
        self._keep(self._last_valid)
        self.dismiss(None)


def _why_not_startable(problems: Mapping[str, str]) -> str:
    """Return why the sweep cannot start: an error of the draft as a whole, or the faulty fields' names."""
    if WHOLE in problems:
        return f"cannot start: {problems[WHOLE]}"
    labels = {"targets": "targets"} | LABELS
    names = [label for name, label in labels.items() if name in problems]
    return f"cannot start: {', '.join(names)} {'is' if len(names) == 1 else 'are'} not right yet"


_Choice = tuple[str | None, str | None, float | None, str | None]


def _trace_choice(spec: SweepSpec) -> _Choice:
    """Return what decides the traffic of a spec: path, format, speed and part."""
    return spec.trace, spec.trace_format, spec.trace_speed, spec.trace_range


class TraceReading:
    """The trace read last; one file is read at a time."""

    def __init__(self, read: Callable[[], None]) -> None:
        """Call `read` on the event loop each time a file has been read; it asks again for what it needs."""
        self._read = read
        self._found: dict[_Choice, TraceReplay | UsageError] = {}
        self._busy = False

    def find(self, spec: SweepSpec) -> TraceReplay | None:
        """Return the traffic of a spec's trace; None while it is being read.

        Raises:
            UsageError: the file cannot be used.
        """
        path = Path(spec.trace or "")
        if not path.is_file():
            what = "is a folder" if path.is_dir() else "is not there"
            raise UsageError(f"{clean(path, 200)} {what}")
        replay = self._found.get(_trace_choice(spec))
        if isinstance(replay, UsageError):
            raise replay
        if replay is None and not self._busy:
            self._busy = True
            read_in_thread(str(path), lambda: replay_of(spec), lambda replay: self._end_reading(spec, replay))
        return replay

    def _end_reading(self, spec: SweepSpec, result: TraceReplay | UsageError) -> None:
        self._found = {_trace_choice(spec): result}
        self._busy = False
        self._read()
