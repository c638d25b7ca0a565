"""Every kind of load in the editor of sweeps, by keys and mouse at 80x24."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparktop.sweep.plan.draft import FIELDS, DraftKind
from sparktop.ui.screens.editor.fields import Typed
from sparktop.ui.screens.editor.layout import KIND_TITLES, LABELS
from tests.ui.screens.test_sweep_editor import Opened

LOADS = {
    DraftKind.RATE: ({"rate": "1,2", "arrivals": "bursty"}, "180 requests"),
    DraftKind.AGENTS: ({"agents": "1,2", "workload": "rag"}, "at 1 agent"),
}


@pytest.mark.parametrize("kind", LOADS, ids=lambda kind: kind.name)
async def test_every_kind_of_load_is_typed_and_started(kind: DraftKind) -> None:
    """Chosen by the arrows at 80x24: its fields and no others in sight, its cost, and its plan."""
    opened = Opened()
    texts, cost = LOADS[kind]
    async with opened.app.run_test(size=(80, 24)) as pilot:
        await opened.open(pilot)
        await opened.go(pilot, "kind")
        await pilot.press(*["right"] * list(DraftKind).index(kind))
        await pilot.pause()
        for name, text in texts.items():
            await opened.write(pilot, name, text)
        words = opened.words()
        for name in FIELDS[kind]:
            assert name == "context" or LABELS[name] in words
        assert opened.editor.query_one("#form").max_scroll_y == 0
        hidden = {*FIELDS[DraftKind.CONCURRENCY]} - {*FIELDS[kind]}
        assert not any(opened.editor.query_one(f"#field-{name}").is_on_screen for name in hidden)
        assert cost in " ".join(opened.cost().split())
        await pilot.press("ctrl+s")
        await pilot.pause()
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
    async with opened.app.run_test(size=(80, 24)) as pilot:
        await opened.open(pilot)
        titles = list(KIND_TITLES.values())
        before = titles[: list(KIND_TITLES).index(DraftKind.TRACE)]
        await pilot.click("#field-kind", offset=(sum(len(title) + 2 for title in before) + 3, 0))
        await pilot.pause()
        assert "✗ write the path of a file" in opened.words()
        await opened.write(pilot, "trace", "none")
        assert "✗ none is not there" in opened.words()
        opened.editor.query_one("#field-trace", Typed).value = str(path)
        await pilot.pause()
        for _ in range(500):
            if opened.editor.plan is not None:
                break
            await pilot.pause(0.02)
        assert opened.cost().startswith("9 requests + 1 warm-up · 450 prompt + 45 output tokens")
        path.write_text("{}\n", encoding="utf-8")
        await opened.write(pilot, "trace_speed", "2")
        for _ in range(500):
            if "known formats" in opened.words():
                break
            await pilot.pause(0.02)
        assert "cannot start: file is not right yet" in opened.wrong()
