"""The editor of sweeps: typed, marked and chosen by keys and mouse, checked meanwhile, at every size."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

import pytest
from msgspec.structs import replace
from textual import events
from textual.widgets import Button, Static

from sparktop.model.targets import GuardLimits, SweepSpec
from sparktop.sweep.plan.draft import FIELDS, Draft, DraftKind, draft_of
from sparktop.sweep.plan.plan import SweepTarget, TargetKind
from sparktop.sweep.plan.presets import BUILT_IN, all_presets
from sparktop.sweep.result.results import SweepResult
from sparktop.ui.screens.sweep_editor import ABOUT, EDITOR_KEYS, KIND_TITLES, LABELS, SweepEditor, Typed
from tests.sweep.made_results import made_level, made_sweep
from tests.ui.board import SIZES, Board, Size, picture

TARGETS = (
    SweepTarget(
        "proxy",
        "http://10.0.0.9:4000",
        TargetKind.ROUTER,
        backends={"spark-a": "x", "spark-b": "y"},
        known=True,
    ),
    SweepTarget("spark-a", "http://10.0.0.1:8000", known=True),
    SweepTarget("spark-b", "http://10.0.0.2:8000", known=True),
    SweepTarget("found", "http://10.0.0.3:8000"),
)
GUARD = GuardLimits(min_headroom_gib=8.0)
QUICK = draft_of(BUILT_IN[0], ("spark-a",), GUARD)


class Opened(Board):
    """A board with the editor open, and what came of it."""

    def __init__(
        self,
        draft: Draft = QUICK,
        *,
        known: tuple[SweepResult, ...] = (),
        targets: tuple[SweepTarget, ...] = TARGETS,
    ) -> None:
        super().__init__(picture)
        self.kept: list[Draft] = []
        self.answers: list[Draft | None] = []
        presets = all_presets([SweepSpec("mine", targets=("spark-b",), concurrency=(3,))])
        self.editor = SweepEditor(
            targets, draft, presets=presets, guard=GUARD, known=known, snapshot=None, keep=self.kept.append
        )

    @asynccontextmanager
    async def on(self, size: Size = (80, 24), *, notices: bool = False) -> AsyncIterator[Self]:
        """Open it on a terminal of that size."""
        async with super().on(size, notices=notices):
            self.app.push_screen(self.editor, self.answers.append)
            await self.press()
            yield self

    async def go(self, name: str, *keys: str) -> None:
        """Focus a field, and press keys."""
        self.editor.query_one(f"#field-{name}").focus()
        await self.press()
        await self.press(*keys)

    async def write(self, name: str, text: str) -> None:
        """Go to a field, empty it and type."""
        await self.go(name, "end", "ctrl+u", *(_KEYS.get(char, char) for char in text))

    async def fill(self, name: str, text: str) -> None:
        """Put a text into a field at once, as by pasting."""
        self.editor.query_one(f"#field-{name}", Typed).value = text
        await self.press()

    async def point(self, where: str | Static, x: int = 0, y: int = 0) -> None:
        """Click a part of the editor."""
        await self.pilot.click(where, offset=(x, y))
        await self.pilot.pause()

    def words(self) -> str:
        """Return all drawn lines as one text, with single spaces."""
        rows = self.app.screen._compositor.render_strips()
        return " ".join(" ".join(strip.text for strip in rows).split())

    def wrong(self) -> str:
        """Return why the sweep cannot start."""
        return str(self.editor.query_one("#wrong", Static).content)

    def cost(self) -> str:
        """Return the expected requests, tokens and duration."""
        return str(self.editor.query_one("#cost", Static).content)

    def value(self, name: str) -> str:
        """Return what is typed in a field."""
        return self.editor.query_one(f"#field-{name}", Typed).value

    @property
    def focus(self) -> str | None:
        """The name of what has the keys."""
        return self.editor.focused.id if self.editor.focused else None

    @property
    def draft(self) -> Draft:
        """What the fields say."""
        return self.editor.draft


_KEYS = {",": "comma", " ": "space", ".": "full_stop", "_": "underscore", "=": "equals_sign", "-": "minus"}


LABELLED = (
    *(
        "preset",
        "concurrency",
        "prompt tokens",
        "output tokens",
        "load",
        "runs",
        "seconds",
        "requests",
        "order",
    ),
    *("warm-up run", "api", "model", "min free GiB", "max GPU °C", "slo", "context tokens"),
    *(target.name for target in TARGETS),
    *("asks first", "[x] spark-a", "1,4,16", "burst", "▸at once per second agents recorded"),
    *(
        "63 requests and 21 to warm up",
        "8,064 prompt and 4,032",
        "while tok/s rise, in ",
        "[ start ] [ cancel ]",
    ),
)


FOCUSED = ("slo", "gpu", "preset", "concurrency", "order", "kind")


async def test_all_of_it_is_in_sight() -> None:
    """All stands there without scrolling; at 60x16 what has the keys, the cost and the buttons."""
    opened = Opened()
    async with opened.on(SIZES[0]):
        form = opened.editor.query_one("#form")
        for size in SIZES:
            await opened.resize(*size)
            assert opened.editor.focused is not None
            assert form.region.contains_region(opened.editor.focused.region)
            # Nothing scrolls beyond 80 columns, as is checked below.
            for name in FOCUSED if size[0] <= 80 else FOCUSED[-1:]:
                await opened.go(name)
                field = opened.editor.query_one(f"#field-{name}")
                assert form.region.contains_region(field.region)
                assert form.region.bottom <= opened.editor.query_one("#foot").region.y
                assert "63 requests and 21 to warm up" in opened.words()
                assert opened.editor.query_one("#start", Button).region.bottom < size[1]
                assert ABOUT[name] in opened.words() or size[0] < 80
            if size[0] < 80:
                assert form.region.height >= 6
                continue
            words = opened.words()
            assert [word for word in LABELLED if word not in words] == []
            for key in EDITOR_KEYS:
                assert key.footer is None or f"{key.shown} {key.footer}" in words
            assert form.max_scroll_y == 0
            assert opened.app.screen.region.contains_region(opened.editor.query_one("#box").region)


def test_every_field_has_an_explanation_that_fits() -> None:
    """Each explanation fits one row of a dialog at 80 columns."""
    assert ABOUT.keys() == LABELS.keys() | {"targets"}
    assert max(map(len, ABOUT.values())) <= 76


async def test_what_is_typed_is_checked_while_it_is_typed() -> None:
    """A wrong number is a line at its field and at the start, which Ctrl+S goes to instead of starting."""
    opened = Opened()
    async with opened.on():
        await opened.write("concurrency", "1,x")
        assert "✗ must be a whole number such as" in opened.words()
        assert "✗ cannot start: concurrency is not right yet" in opened.words()
        assert "requests +" not in opened.words()
        await opened.press("backspace", "2")
        assert opened.wrong() == ""
        assert opened.cost().startswith("at least 9 requests and 3 to warm up")
        assert "quick, changed" in opened.words()
        # A change by an earlier letter may arrive after the next letters: these stay.
        opened.editor.query_one("#field-concurrency", Typed).value = "1,4,9"
        opened.editor.change("concurrency", "1,4")
        assert opened.value("concurrency") == "1,4,9"
        await opened.press()
        assert opened.draft.concurrency == "1,4,9"
        await opened.write("tg", "")
        await opened.write("gpu", "hot")
        await opened.press("ctrl+s")
        assert opened.app.screen is opened.editor
        assert opened.focus == "field-tg"
        assert "output tokens, max GPU °C are not right yet" in opened.wrong()
        assert opened.answers == []


async def test_a_contradiction_is_said_at_the_bottom() -> None:
    """Interleaved runs without a number of runs are a contradiction, though no single field is wrong."""
    opened = Opened(replace(QUICK, order="abba", runs="", duration="5"))
    async with opened.on():
        assert "cannot start: order abba interleaves runs" in opened.wrong()
        await opened.press("ctrl+s")
        assert opened.app.screen is opened.editor


@pytest.mark.parametrize("how", ["escape", "alt+a", "cancel"])
async def test_esc_and_the_button_start_nothing_and_keep_what_is_valid(how: str) -> None:
    """The last valid fields are kept, not the error after them; Esc and a letter, as Alt, are in no field."""
    opened = Opened()
    async with opened.on():
        await opened.write("runs", "4")
        await opened.press("x")
        if how == "cancel":
            await opened.point("#cancel")
        else:
            opened.app.post_message(events.Key(how, "a" if how == "alt+a" else None))
            await opened.press()
        assert opened.home
    assert opened.answers == [None]
    assert opened.kept == [replace(QUICK, runs="4")]


async def test_the_arrows_go_through_everything() -> None:
    """Down from the kind of load to the buttons, through each target and each field once, and up again."""
    opened = Opened()
    async with opened.on(SIZES[0]):
        await opened.go("kind")
        seen = []
        for _ in range(4 + len(TARGETS) + 15):
            seen.append(opened.focus)
            await opened.pilot.press("down")
        assert len(set(seen)) == 4 + 1 + 15
        assert seen[-2:] == ["start", "cancel"]
        for keys, name in ((["up"], "cancel"), (["shift+tab"], "start"), (["tab"], "cancel")):
            await opened.press(*keys)
            assert opened.focus == name
        await opened.go("targets", "home", "up")
        assert opened.focus == "field-preset"


async def test_arrows_and_space_choose_targets_presets_and_words() -> None:
    """Marks stay in the list's order, none is a problem; a preset fills all; a steady load has a time."""
    opened = Opened()
    async with opened.on():
        await opened.go("targets", "home", "down", "space")
        assert list(opened.draft.targets) == []
        assert "✗ mark at least one" in opened.words()
        await opened.press("end", "space", "home", "space")
        assert opened.draft.targets == ("proxy", "found")
        assert opened.cost().startswith("at least 126 requests and 42 to warm up")
        assert "[x] proxy" in opened.words()
        await opened.go("preset", "right")
        draft = opened.draft
        assert (draft.preset, draft.concurrency, draft.pp) == ("topology", "1,2,4,8,16,32,64", "1024")
        assert opened.value("pp") == "1024"
        await opened.press("left", "left")
        draft = opened.draft
        assert (draft.preset, draft.targets) == ("mine", ("spark-b",))
        assert "[x] spark-b" in opened.words()
        await opened.press("right")
        quick = replace(QUICK, targets=("spark-b",))
        assert opened.draft == quick
        assert ", changed" not in opened.words()
        await opened.go("mode", "right")
        assert opened.draft.mode == "steady"
        assert "4 to 13 min" in opened.cost()
        await opened.press("space")
        assert opened.draft == quick
        await opened.go("warmup", "left")
        assert opened.draft.warmup is False
        assert "warm up ·" not in opened.cost()


async def test_the_mouse_does_it_all() -> None:
    """Clicks mark a target, change a word either way, begin to type at a label, and start."""
    opened = Opened()
    async with opened.on((120, 36)):
        await opened.point("#field-targets", 1)
        await opened.point("#field-order", 4)
        await opened.point("#field-preset")
        assert opened.draft.preset == "mine"
        await opened.point("#field-preset", 5)
        await opened.point("#field-targets", 1, 3)
        labels = opened.editor.query("Field > Horizontal > .label").results(Static)
        await opened.point(next(label for label in labels if str(label.content).strip() == "runs"))
        assert opened.focus == "field-runs"
        await opened.point("#start")
    assert opened.answers == [replace(QUICK, targets=("spark-b", "found"))]


async def test_an_earlier_sweep_gives_the_time_and_names_of_others_are_no_markup() -> None:
    """With a stored result of the target the cost ends in minutes; names in brackets stand as they are."""
    stored = made_sweep(("spark-a", (made_level(1), made_level(2))))
    target = stored.targets[0].model_copy(update={"url": TARGETS[1].url})
    draft = replace(QUICK, concurrency="1,2", pp="100", tg="4")
    opened = Opened(
        draft,
        known=(stored.model_copy(update={"targets": (target,)}),),
        targets=(replace(TARGETS[0], name="[b]x[/b]"), *TARGETS[1:]),
    )
    async with opened.on():
        assert "(estimated from your sweep of" in opened.words()
        await opened.fill("model", "[red]m[/red]")
        assert "[b]x[/b]" in opened.words()
        assert "[red]m[/red]" in opened.words()


LOADS = {
    DraftKind.RATE: ({"rate": "1,2", "arrivals": "bursty"}, "180 requests"),
    DraftKind.AGENTS: ({"agents": "1,2", "workload": "rag"}, "as many requests as fit into the time"),
}


@pytest.mark.parametrize("kind", LOADS, ids=lambda kind: kind.name)
async def test_every_kind_of_load_is_typed_and_started(kind: DraftKind) -> None:
    """Chosen by the arrows at 80x24: its fields and no others in sight, its cost, and its plan."""
    opened = Opened()
    texts, cost = LOADS[kind]
    async with opened.on():
        await opened.go("kind", *["right"] * list(DraftKind).index(kind))
        for name, text in texts.items():
            await opened.write(name, text)
        words = opened.words()
        assert all(name == "context" or LABELS[name] in words for name in FIELDS[kind])
        assert opened.editor.query_one("#form").max_scroll_y == 0
        hidden = {*FIELDS[DraftKind.CONCURRENCY]} - {*FIELDS[kind]}
        assert not any(opened.editor.query_one(f"#field-{name}").is_on_screen for name in hidden)
        assert cost in " ".join(opened.cost().split())
        await opened.press("ctrl+s")
    (draft,) = opened.answers
    assert draft is not None
    assert {name: getattr(draft, name) for name in texts} == texts
    assert opened.editor.plan is not None
    assert opened.editor.plan.preset is None  # it is not quick any more
    assert opened.editor.plan.kind.value == ("rate" if kind is DraftKind.RATE else kind.name.lower())


async def test_a_trace_is_read_while_the_editor_goes_on(tmp_path: Path) -> None:
    """Its path typed by keys, its kind chosen by mouse; the cost is there when the file has been read."""
    path = tmp_path / "day.jsonl"
    row = '{"timestamp": %d, "input_length": 50, "output_length": 5}\n'
    path.write_text("".join(row % (1000 * second) for second in range(9)), encoding="utf-8")
    opened = Opened()

    async def until(done: Callable[[], bool]) -> None:
        for _ in range(500):
            if done():
                return
            await opened.pilot.pause(0.02)

    async with opened.on():
        titles = list(KIND_TITLES.values())[: list(KIND_TITLES).index(DraftKind.TRACE)]
        await opened.point("#field-kind", sum(len(title) + 2 for title in titles) + 3)
        assert "✗ write the path of a file" in opened.words()
        await opened.write("trace", "none")
        assert "✗ none is not there" in opened.words()
        await opened.fill("trace", str(path))
        await until(lambda: opened.editor.plan is not None)
        assert opened.cost().startswith("9 requests and 1 to warm up · 450 prompt and 45 output tokens")
        path.write_text("{}\n", encoding="utf-8")
        await opened.write("trace_speed", "2")
        await until(lambda: "known formats" in opened.words())
        assert "cannot start: file is not right yet" in opened.wrong()
