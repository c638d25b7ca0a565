"""The editor of sweeps: targets, load and expected cost, checked while the user types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import BindingsMap
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widgets import Button, Static

from sparktop.config.keys import Key
from sparktop.errors import UsageError
from sparktop.model.snapshot import Snapshot
from sparktop.model.targets import GuardLimits, SweepSpec
from sparktop.model.text import clean
from sparktop.sweep.plan.draft import (
    FIELDS,
    WHOLE,
    Draft,
    check_draft,
    is_changed,
    kind_of,
    shown_fields,
    with_kind,
    with_preset,
)
from sparktop.sweep.plan.plan import Plan, SweepTarget
from sparktop.sweep.plan.presets import replay_of
from sparktop.sweep.plan.traces import TraceReplay
from sparktop.sweep.result.results import SweepResult
from sparktop.sweep.run.forecast import forecast, pieces
from sparktop.ui.keys import bindings
from sparktop.ui.screens.base import Dialog, read_in_thread
from sparktop.ui.screens.editor.fields import (
    ChoiceField,
    Field,
    FieldChanged,
    Pages,
    Problem,
    TargetList,
    Typed,
)
from sparktop.ui.screens.editor.layout import (
    ABOUT,
    CHOICES,
    COLD,
    FIRST,
    KIND_TITLES,
    LABELS,
    LAST,
    LEFT,
    RIGHT,
    WARM,
    placeholder,
)
from sparktop.ui.styles import key_hints

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
            requests, tokens, time = pieces(forecast(plan, self._known, self._snapshot))
            cost.update(Text(f"{requests} · {tokens}\n{time}"))
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
