"""The editor of sweeps: typed, marked and chosen by keys and mouse, checked meanwhile, at every size."""

from __future__ import annotations

from functools import cache

import pytest
from msgspec.structs import replace
from textual import events
from textual.pilot import Pilot
from textual.widgets import Button, Static

from sparktop.model.snapshot import Snapshot
from sparktop.model.targets import GuardLimits, SweepSpec
from sparktop.sweep.plan.draft import Draft, draft_of
from sparktop.sweep.plan.plan import SweepTarget, TargetKind
from sparktop.sweep.plan.presets import BUILT_IN, all_presets
from sparktop.sweep.result.results import SweepResult
from sparktop.ui.app import SparktopApp
from sparktop.ui.screens.editor.fields import Typed
from sparktop.ui.screens.editor.screen import EDITOR_KEYS, SweepEditor
from stage.rehearsal import Rehearsal
from tests.sweep.made_results import made_level, made_sweep

SIZES = [(60, 16), (80, 24), (120, 36), (200, 50)]
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


@cache
def picture() -> Snapshot:
    """Return a snapshot shared by all tests: it is immutable."""
    return Rehearsal().play(10).snapshot()


class Opened:
    """An application with the editor open, and what came of it."""

    def __init__(self, draft: Draft = QUICK, *, known: tuple[SweepResult, ...] = ()) -> None:
        self.app = SparktopApp(picture)
        self.kept: list[Draft] = []
        self.answers: list[Draft | None] = []
        presets = all_presets([SweepSpec("mine", targets=("spark-b",), concurrency=(3,))])
        self.editor = SweepEditor(
            TARGETS, draft, presets=presets, guard=GUARD, known=known, keep=self.kept.append
        )

    async def open(self, pilot: Pilot[None]) -> None:
        """Open it."""
        self.app.push_screen(self.editor, self.answers.append)
        await pilot.pause()

    async def go(self, pilot: Pilot[None], name: str) -> None:
        """Focus a field."""
        self.editor.query_one(f"#field-{name}").focus()
        await pilot.pause()

    async def write(self, pilot: Pilot[None], name: str, text: str) -> None:
        """Go to a field, empty it and type."""
        await self.go(pilot, name)
        await pilot.press("end", *["backspace"] * len(getattr(self.editor.draft, name)))
        await pilot.press(*(_KEYS.get(char, char) for char in text))
        await pilot.pause()

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


_KEYS = {",": "comma", " ": "space", ".": "full_stop", "_": "underscore", "=": "equals_sign", "-": "minus"}


@pytest.mark.parametrize("size", SIZES[1:])
async def test_all_of_it_is_in_sight(size: tuple[int, int]) -> None:
    """At 80x24 and above every field, target, key and the cost stand on the screen without scrolling."""
    opened = Opened()
    async with opened.app.run_test(size=size) as pilot:
        await opened.open(pilot)
        words = opened.words()
        labels = ["preset", "concurrency", "prompt tokens", "output tokens", "load", "runs", "seconds"]
        labels += ["requests", "order", "warm-up run", "api", "model", "min free GiB", "max GPU °C", "slo"]
        labels += ["context tokens"]
        for word in [*labels, *(one.name for one in TARGETS), "asks first", "[x] spark-a", "1,4,16", "burst"]:
            assert word in words
        for key in EDITOR_KEYS:
            assert key.footer is None or f"{key.shown} {key.footer}" in words
        for word in ("63 requests + 21 warm-up", "8,064 prompt + 4,032", "spark-a not measured before"):
            assert word in words
        assert opened.editor.query_one("#form").max_scroll_y == 0
        assert opened.app.screen.region.contains_region(opened.editor.query_one("#box").region)
        assert "[ start ] [ cancel ]" in words


async def test_the_smallest_terminal_scrolls_to_what_is_typed() -> None:
    """At 60x16 the field that has the keys is in sight, and so are the cost and the buttons."""
    opened = Opened()
    async with opened.app.run_test(size=(60, 16)) as pilot:
        await opened.open(pilot)
        form = opened.editor.query_one("#form")
        assert form.region.height >= 6
        foot = opened.editor.query_one("#foot")
        for name in ("slo", "gpu", "preset"):
            field = opened.editor.query_one(f"#field-{name}")
            field.focus()
            await pilot.pause()
            assert form.region.contains_region(field.region)
            assert form.region.bottom <= foot.region.y
            assert "63 requests + 21 warm-up" in opened.words()
            assert opened.editor.query_one("#start", Button).region.bottom < 16


async def test_what_is_typed_is_checked_while_it_is_typed() -> None:
    """A letter among the numbers: a line at the field and one at the start; once it is gone, neither."""
    opened = Opened()
    async with opened.app.run_test(size=(80, 24)) as pilot:
        await opened.open(pilot)
        await opened.write(pilot, "concurrency", "1,x")
        words = opened.words()
        assert "✗ must be a whole number, 1 to" in words
        assert "✗ cannot start: concurrency is not right yet" in words
        assert "requests +" not in words
        await pilot.press("backspace", "2")
        await pilot.pause()
        assert opened.wrong() == ""
        assert opened.cost().startswith("at least 9 requests + 3 warm-up")
        assert "quick, changed" in opened.words()


async def test_what_is_being_typed_is_never_written_back() -> None:
    """A change by an earlier letter may arrive after the next letters: these stay."""
    opened = Opened()
    async with opened.app.run_test(size=(80, 24)) as pilot:
        await opened.open(pilot)
        field = opened.editor.query_one("#field-concurrency", Typed)
        field.value = "1,4,9"
        opened.editor.change("concurrency", "1,4")
        assert field.value == "1,4,9"
        await pilot.pause()
        assert opened.editor.draft.concurrency == "1,4,9"


async def test_nothing_starts_while_something_is_wrong() -> None:
    """Ctrl+S goes to the first wrong field instead, and the draft is not closed."""
    opened = Opened()
    async with opened.app.run_test(size=(80, 24)) as pilot:
        await opened.open(pilot)
        await opened.write(pilot, "tg", "")
        await opened.write(pilot, "gpu", "hot")
        await pilot.press("ctrl+s")
        await pilot.pause()
        assert opened.app.screen is opened.editor
        assert opened.editor.focused is opened.editor.query_one("#field-tg")
        assert "output tokens, max GPU °C are not right yet" in opened.wrong()
        assert opened.answers == []


async def test_a_contradiction_is_told_at_the_bottom() -> None:
    """Interleaved runs without a number of runs are a contradiction, though no single field is wrong."""
    opened = Opened(replace(QUICK, order="abba", runs="", duration="5"))
    async with opened.app.run_test(size=(80, 24)) as pilot:
        await opened.open(pilot)
        assert "cannot start: order abba interleaves runs" in opened.wrong()
        await pilot.press("ctrl+s")
        await pilot.pause()
        assert opened.app.screen is opened.editor


async def test_ctrl_s_starts_what_the_fields_say() -> None:
    """The draft comes back as typed and marked, and is kept for the next time."""
    opened = Opened()
    async with opened.app.run_test(size=(80, 24)) as pilot:
        await opened.open(pilot)
        await opened.write(pilot, "concurrency", "2, 8")
        await opened.write(pilot, "slo", "ttft_p90_ms=2000")
        await pilot.press("ctrl+s")
        await pilot.pause()
    wanted = replace(QUICK, concurrency="2, 8", slo="ttft_p90_ms=2000")
    assert opened.answers == [wanted]
    assert opened.kept == [wanted]


async def test_esc_starts_nothing_and_loses_nothing() -> None:
    """The screen closes with None; what was typed is kept."""
    opened = Opened()
    async with opened.app.run_test(size=(80, 24)) as pilot:
        await opened.open(pilot)
        await opened.write(pilot, "runs", "x")
        await pilot.press("escape")
        await pilot.pause()
        assert opened.app.screen is opened.app.overview
    assert opened.answers == [None]
    assert opened.kept == [replace(QUICK, runs="x")]


async def test_what_was_typed_before_the_editor_was_seen_is_in_no_field() -> None:
    """A key that waited while the screen opened was meant for the one before."""
    opened = Opened()
    early = events.Key("7", "7")
    async with opened.app.run_test(size=(80, 24)) as pilot:
        await opened.open(pilot)
        await opened.go(pilot, "tg")
        opened.app.post_message(early)
        await pilot.pause()
        assert opened.editor.draft == QUICK
        await pilot.press("8")
        assert opened.editor.draft.tg == f"{QUICK.tg}8"


async def test_esc_and_a_letter_at_once_close_the_editor() -> None:
    """A slow line delivers them together, as Alt and the letter; the letter is in no field."""
    opened = Opened()
    async with opened.app.run_test(size=(80, 24)) as pilot:
        await opened.open(pilot)
        await opened.go(pilot, "tg")
        opened.app.post_message(events.Key("alt+a", "a"))
        await pilot.pause()
        assert opened.answers == [None]
        assert opened.kept == [QUICK]


async def test_space_marks_targets() -> None:
    """Several of them, in the order of the list however they were marked; none is a problem."""
    opened = Opened()
    async with opened.app.run_test(size=(80, 24)) as pilot:
        await opened.open(pilot)
        await opened.go(pilot, "targets")
        await pilot.press("home", "down", "space")
        await pilot.pause()
        assert list(opened.editor.draft.targets) == []
        assert "✗ mark at least one" in opened.words()
        await pilot.press("end", "space", "home", "space")
        await pilot.pause()
        assert opened.editor.draft.targets == ("proxy", "found")
        assert opened.cost().startswith("at least 126 requests + 42 warm-up")
        assert "[x] proxy" in opened.words()


@pytest.mark.parametrize("size", SIZES[:2])
async def test_the_arrows_go_through_everything(size: tuple[int, int]) -> None:
    """Down from the kind of load to the buttons, through each target and each field once, and up again."""
    opened = Opened()
    async with opened.app.run_test(size=size) as pilot:
        await opened.open(pilot)
        await opened.go(pilot, "kind")
        seen = []
        for _ in range(4 + len(TARGETS) + 15):
            seen.append(opened.editor.focused.id if opened.editor.focused else None)
            await pilot.press("down")
        assert len(set(seen)) == 4 + 1 + 15
        assert seen[-2:] == ["start", "cancel"]
        for keys, name in ((["up"], "cancel"), (["shift+tab"], "start"), (["tab"], "cancel")):
            await pilot.press(*keys)
            await pilot.pause()
            assert opened.editor.focused is not None
            assert opened.editor.focused.id == name
        await opened.go(pilot, "targets")
        await pilot.press("home", "up")
        await pilot.pause()
        assert opened.editor.focused is not None
        assert opened.editor.focused.id == "field-preset"


async def test_another_preset_fills_the_fields() -> None:
    """The arrows go round the presets; each fills everything, and one that names targets marks them."""
    opened = Opened()
    async with opened.app.run_test(size=(80, 24)) as pilot:
        await opened.open(pilot)
        await opened.go(pilot, "preset")
        await pilot.press("right")
        await pilot.pause()
        draft = opened.editor.draft
        assert (draft.preset, draft.concurrency, draft.pp) == ("topology", "1,2,4,8,16,32,64", "1024")
        assert opened.editor.query_one("#field-pp", Typed).value == "1024"
        await pilot.press("left", "left")
        await pilot.pause()
        assert (opened.editor.draft.preset, opened.editor.draft.targets) == ("mine", ("spark-b",))
        assert "[x] spark-b" in opened.words()
        await pilot.press("right")
        await pilot.pause()
        assert opened.editor.draft == replace(QUICK, targets=("spark-b",))
        assert ", changed" not in opened.words()


async def test_words_are_chosen_by_arrows() -> None:
    """Steady load brings its time with it, burst takes it away; warm-up is yes or no."""
    opened = Opened()
    async with opened.app.run_test(size=(80, 24)) as pilot:
        await opened.open(pilot)
        await opened.go(pilot, "mode")
        await pilot.press("right")
        await pilot.pause()
        assert (opened.editor.draft.mode, opened.editor.draft.duration) == ("steady", "30")
        assert opened.editor.query_one("#field-duration", Typed).value == "30"
        assert "4 to 19 min" in opened.cost()
        await pilot.press("space")
        await pilot.pause()
        assert opened.editor.draft == QUICK
        await opened.go(pilot, "warmup")
        await pilot.press("left")
        await pilot.pause()
        assert opened.editor.draft.warmup is False
        assert "warm-up ·" not in opened.cost()


async def test_the_mouse_does_it_all() -> None:
    """Clicks mark a target, change a word either way, begin to type at a label, and start."""
    opened = Opened()
    async with opened.app.run_test(size=(120, 36)) as pilot:
        await opened.open(pilot)
        await pilot.click("#field-targets", offset=(1, 0))
        await pilot.click("#field-order", offset=(4, 0))
        await pilot.click("#field-preset", offset=(0, 0))
        await pilot.pause()
        assert opened.editor.draft.preset == "mine"
        await pilot.click("#field-preset", offset=(5, 0))
        await pilot.click("#field-targets", offset=(1, 3))
        label = opened.editor.query("Field > Horizontal > .label").results(Static)
        runs = next(one for one in label if str(one.content).strip() == "runs")
        await pilot.click(runs)
        await pilot.pause()
        assert opened.editor.focused is opened.editor.query_one("#field-runs")
        await pilot.click("#start")
        await pilot.pause()
    assert opened.answers == [replace(QUICK, targets=("spark-b", "found"))]


async def test_cancel_is_a_button_too() -> None:
    """It closes as Esc does."""
    opened = Opened()
    async with opened.app.run_test(size=(80, 24)) as pilot:
        await opened.open(pilot)
        await pilot.click("#cancel")
        await pilot.pause()
    assert opened.answers == [None]


async def test_what_no_longer_exists_is_dropped() -> None:
    """A remembered preset or target that is gone is not among the fields, and nothing else is lost."""
    opened = Opened(replace(QUICK, preset="gone", targets=("gone", "spark-b"), concurrency="5"))
    async with opened.app.run_test(size=(80, 24)) as pilot:
        await opened.open(pilot)
        assert opened.editor.draft == replace(QUICK, targets=("spark-b",), concurrency="5")
        assert "quick, changed" in opened.words()


async def test_an_earlier_sweep_tells_the_time() -> None:
    """With a stored result of the target the cost ends in minutes and says by which sweep."""
    known = made_sweep(("spark-a", (made_level(1), made_level(2))))
    url = TARGETS[1].url
    known = known.model_copy(update={"targets": (known.targets[0].model_copy(update={"url": url}),)})
    opened = Opened(replace(QUICK, concurrency="1,2", pp="100", tg="4"), known=(known,))
    async with opened.app.run_test(size=(80, 24)) as pilot:
        await opened.open(pilot)
        assert " estimated from your sweep of" in opened.words()


async def test_what_others_wrote_is_no_markup() -> None:
    """A model's or target's name in brackets stands there as it is."""
    opened = Opened(replace(QUICK, model="[red]m[/red]"))
    opened.editor._targets = (replace(TARGETS[0], name="[b]x[/b]"), *TARGETS[1:])
    async with opened.app.run_test(size=(80, 24)) as pilot:
        await opened.open(pilot)
        words = opened.words()
        assert "[b]x[/b]" in words
        assert "[red]m[/red]" in words


async def test_without_colours_the_keys_are_still_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """With NO_COLOR the target or word that has the keys is underlined or reversed, and no other."""
    monkeypatch.setenv("NO_COLOR", "1")
    opened = Opened()
    async with opened.app.run_test(size=(80, 24)) as pilot:
        await opened.open(pilot)
        for name, words in (("targets", "proxy"), ("mode", "burst"), ("order", "ascending")):
            await opened.go(pilot, name)
            await pilot.press(*(["home"] if name == "targets" else []))
            await pilot.pause()
            runs = [run for strip in opened.app.screen._compositor.render_strips() for run in strip]
            seen = [run.text for run in runs if run.style and (run.style.underline or run.style.reverse)]
            text = "".join(seen)
            assert words in text
            assert not any(other in text for other in {"proxy", "burst", "ascending"} - {words})
