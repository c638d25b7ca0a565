"""The editor of sweeps: targets, load and expected cost, checked while the user types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingsMap
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Button, Static

from sparktop.config.keys import Key
from sparktop.model.load import LoadMode
from sparktop.model.targets import GuardLimits, SweepSettings
from sparktop.sweep.compare.resolution import resolution_words
from sparktop.sweep.plan.draft import (
    WHOLE,
    CheckedDraft,
    Draft,
    checked,
    is_changed,
    with_mode,
    with_preset,
)
from sparktop.sweep.plan.last_choice import still_there
from sparktop.sweep.plan.plan import Api, Order, SweepTarget
from sparktop.sweep.result.results import SweepResult
from sparktop.sweep.run.forecast import forecast, pieces
from sparktop.ui.keys import bindings
from sparktop.ui.screens.sweep_fields import Choice, Field, FieldChanged, Problem, TargetList, Typed

EDITOR_KEYS = (
    Key("start", ("ctrl+s",), "ctrl+s", "start", "start the sweep", "start"),
    Key("close", ("escape",), "esc", "close", "close without a sweep; the fields are remembered", "close"),
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
_WARM, _COLD = "yes", "no"
_LABELS = {
    "preset": "preset",
    "concurrency": "concurrency",
    "pp": "prompt tokens",
    "tg": "output tokens",
    "depth": "context tokens",
    "runs": "runs",
    "duration": "seconds",
    "requests": "requests",
    "mode": "load",
    "order": "order",
    "warmup": "warm-up run",
    "api": "api",
    "headroom": "min free GiB",
    "gpu": "max GPU °C",
    "model": "model",
    "slo": "slo",
}
_EMPTY = {
    "concurrency": "1,4,16",
    "pp": "128",
    "tg": "64",
    "runs": "till the time is up",
    "duration": "no limit",
    "requests": "from runs",
    "depth": "none; 0,4k,16k: sent before each prompt",
    "model": "the server's only or first one",
    "headroom": "8 unified, 0: off",
    "gpu": "92 unified, 0: off",
    "slo": "none; ttft_p90_ms=2000 finds the highest level",
}
_LEFT = ("concurrency", "pp", "tg", "runs", "duration", "requests")
_RIGHT = ("mode", "order", "warmup", "api", "headroom", "gpu")
_WIDE = ("depth", "model", "slo")
"""Fields below the two columns, because their values are long."""
_CHOICES = {
    "mode": (LoadMode.BURST.value, LoadMode.STEADY.value),
    "order": tuple(one.value for one in Order),
    "api": tuple(one.value for one in Api),
    "warmup": (_WARM, _COLD),
}


def _ignore(_: Draft) -> None:
    """Do nothing; for callers of the editor that do not keep the edited sweep."""


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


class SweepEditor(ModalScreen[Draft | None]):
    """A dialog to edit a sweep; its result is the draft to start, or None if the user cancels."""

    AUTO_FOCUS = "#field-concurrency"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (76, "-wide")]  # noqa: RUF012 - Textual declares it on instances
    VERTICAL_BREAKPOINTS = [(0, "-short"), (25, "-tall")]  # noqa: RUF012 - as above
    DEFAULT_CSS = """
    SweepEditor { align: center middle; }
    SweepEditor > #box {
        width: 104; max-width: 96%; height: auto; max-height: 96%;
        border: round $border; background: $background; padding: 0 1; overflow: hidden;
        border-title-color: $foreground; border-subtitle-color: $foreground;
    }
    SweepEditor.-narrow > #box { max-width: 100%; max-height: 100%; }
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
    SweepEditor .input { width: 1fr; height: 1; background: $background; color: $foreground; padding: 0; }
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
    SweepEditor.-short #columns { margin-top: 0; }
    SweepEditor #foot { dock: bottom; height: auto; background: $background; }
    SweepEditor #cost { height: auto; min-height: 2; margin-top: 1; }
    SweepEditor.-narrow #cost { margin-top: 0; }
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
        presets: Mapping[str, SweepSettings],
        guard: GuardLimits,
        known: Sequence[SweepResult] = (),
        keep: Callable[[Draft], None] = _ignore,
    ) -> None:
        """Start with `draft`; targets and a preset that no longer exist are removed from it.

        `known` are earlier results, from which the duration is estimated. `keep` is called with the draft
        when the editor closes, whether a sweep starts or not.
        """
        super().__init__()
        self._targets = tuple(targets)
        self._draft = still_there(draft, presets, {one.name for one in targets})
        self._presets = presets
        self._guard = guard
        self._known = tuple(known)
        self._keep = keep
        self._checked = CheckedDraft(None)
        self._fields: dict[str, Field] = {}
        self._bindings = BindingsMap(bindings([key for key in EDITOR_KEYS if key.keys]))

    @property
    def draft(self) -> Draft:
        """The present values of the fields."""
        return self._draft

    def compose(self) -> ComposeResult:
        """Yield the widgets: the form, and below it the part with error, cost and buttons."""
        self._fields = {name: Field(label, self._inside(name)) for name, label in _LABELS.items()}
        with Vertical(id="box") as box:
            box.border_title = "sweep"
            box.border_subtitle = " · ".join(f"{key.shown} {key.footer}" for key in EDITOR_KEYS if key.footer)
            with VerticalScroll(id="form", can_focus=False):
                yield self._fields["preset"]
                yield TargetList(self._targets, self._draft.targets)
                yield Problem(id="no-target", classes="problem")
                with Horizontal(id="columns"):
                    with Vertical(classes="column"):
                        yield from (self._fields[name] for name in _LEFT)
                    with Vertical(classes="column", id="right"):
                        yield from (self._fields[name] for name in _RIGHT)
                yield from (self._fields[name] for name in _WIDE)
            with _Foot(self.fit_form):
                yield Static(id="cost")
                yield Problem(id="wrong", classes="problem")
                with Horizontal(id="buttons"):
                    yield Button(Text("[ start ]"), id="start", compact=True)
                    yield Button(Text("[ cancel ]"), id="cancel", compact=True)

    def _inside(self, name: str) -> Choice | Typed:
        if name == "preset":
            return Choice(name, list(self._presets), self._draft.preset)
        if name in _CHOICES:
            return Choice(name, _CHOICES[name], self._word(name))
        return Typed(name, self._word(name), _EMPTY[name])

    def _word(self, name: str) -> str:
        value = getattr(self._draft, name)
        if isinstance(value, bool):
            return _WARM if value else _COLD
        return str(value)

    def on_mount(self) -> None:
        """Check the initial draft and show its errors and cost."""
        self._show(fill=False)

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

    def on_field_changed(self, message: FieldChanged) -> None:
        """Apply to the draft what the user has typed, chosen or marked."""
        message.stop()
        self.change(message.name, message.value)

    def change(self, name: str, value: object) -> None:
        """Set the field `name` of the draft and the fields that depend on it, and show the result."""
        if name == "preset":
            names = {one.name for one in self._targets}
            self._draft = with_preset(self._draft, self._presets[str(value)], self._guard, names)
        elif name == "mode":
            self._draft = with_mode(self._draft, str(value))
        elif name == "warmup":
            self._draft = replace(self._draft, warmup=value == _WARM)
        else:
            self._draft = replace(self._draft, **{name: value})  # type: ignore[arg-type]  # by the field's name
        self._show(fill=name in {"preset", "mode"})

    def _show(self, *, fill: bool) -> None:
        """Show the errors and the cost of the draft; if `fill`, write the draft into all text fields too.

        Use `fill` only if one field has changed others: while the user types into a field, more letters may
        have been typed already, and writing the value back would lose them.
        """
        draft = self._draft
        self._checked = checked(draft, self._targets)
        problems = self._checked.problems
        changed = is_changed(draft, self._presets.get(draft.preset), self._guard)
        for name, field in self._fields.items():
            inside = field.inside
            if isinstance(inside, Choice):
                inside.show(self._word(name), ", changed" if name == "preset" and changed else "")
            elif fill:
                inside.show(self._word(name))
            field.problem.report(problems.get(name))
        targets = self.query_one(TargetList)
        if targets.names != draft.targets:
            targets.show(draft.targets)
        self.query_one("#no-target", Problem).report(problems.get("targets"))
        self._show_cost()

    def _show_cost(self) -> None:
        problems, plan = self._checked.problems, self._checked.plan
        cost = self.query_one("#cost", Static)
        cost.display = plan is not None
        if plan is not None:
            sent, tokens, time = pieces(forecast(plan, self._known))
            cost.update(Text(f"{sent} · {tokens}\n{time}\n{resolution_words(plan, self._known)}"))
        self.query_one("#wrong", Problem).report(_cannot(problems) if problems else None)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Start the sweep, or close the editor without starting a sweep, depending on the button."""
        if event.button.id == "start":
            self.action_start()
        else:
            self.action_close()

    def action_start(self) -> None:
        """Close with the draft; if the draft has an error, focus the first faulty field instead."""
        problems = self._checked.problems
        if problems:
            name = next((name for name in ("targets", *_LABELS) if name in problems), None)
            if name is not None:
                self.query_one(f"#field-{name}").focus()
            return
        self._keep(self._draft)
        self.dismiss(self._draft)

    def action_close(self) -> None:
        """Close without a sweep; the draft is kept for the next time."""
        self._keep(self._draft)
        self.dismiss(None)


def _cannot(problems: Mapping[str, str]) -> str:
    """Return why the sweep cannot start: an error of the draft as a whole, or the faulty fields' names."""
    if WHOLE in problems:
        return f"cannot start: {problems[WHOLE]}"
    labels = {"targets": "targets"} | _LABELS
    names = [label for name, label in labels.items() if name in problems]
    return f"cannot start: {', '.join(names)} {'is' if len(names) == 1 else 'are'} not right yet"
