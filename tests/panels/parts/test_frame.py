"""Text in the edges of frames: parts are whole or absent."""

from __future__ import annotations

import pytest

from sparktop.panels.parts.text import framed, key_tab, row_text, row_width, shortened, tab

ABOUT = [("─ ", "border"), ("openai/gpt-oss-120b ", "text"), ("0.32.0 ", "muted")]


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (60, "─ openai/gpt-oss-120b 0.32.0 "),
        (46, "─ openai/gpt-oss-120b "),
        (38, "─ gpt-oss-120b "),
        (30, None),
    ],
)
def test_what_stands_beside_the_state_is_never_cut(width: int, shown: str | None) -> None:
    """The version is left out first, then the owner of the model, then the model."""
    rows = framed([], width, 3, title=tab(("spark-a", "title")), state=("busy", "good"), about=ABOUT)
    top = row_text(rows[0])
    assert row_width(rows[0]) == width
    assert "…" not in top
    assert "spark-a┌┐busy┌" in top
    assert shown is None or f"┐busy┌{shown}─" in top
    assert shown is not None or "gpt" not in top


def test_the_key_of_the_lower_edge_goes_before_its_sentence() -> None:
    """If both do not fit, the key of the processes is left out, not the cause of a slow GPU."""
    cause = [(" ▲ USB-PD power delivery, at most 65 W · unplug the adapter ", "warn")]
    note = key_tab("P", "processes")
    (*_, wide) = framed([], 80, 3, footnote=cause, note=note)
    (*_, narrow) = framed([], 46, 3, footnote=cause, note=note)
    assert "unplug the adapter" in row_text(wide)
    assert "Processes" in row_text(wide)
    assert "65 W" in row_text(narrow)
    assert "…" not in row_text(narrow)
    assert "Processes" not in row_text(narrow)


CAUSE = [
    ("✖ ", "bad"),
    ("nothing listens on 10.0.0.1:8000 (connection refused) since 09:02 · 31 s old", "bad"),
]


@pytest.mark.parametrize(
    ("room", "shown"),
    [
        (90, "✖ nothing listens on 10.0.0.1:8000 (connection refused) since 09:02 · 31 s old"),
        (60, "✖ nothing listens on 10.0.0.1:8000 since 09:02 · 31 s old"),
        (50, "✖ nothing listens on 10.0.0.1:8000 since 09:02 "),
        (40, "✖ nothing listens on 10.0.0.1:8000… "),
        (30, "✖ nothing listens on… "),
    ],
)
def test_a_sentence_is_shortened_by_whole_words(room: int, shown: str) -> None:
    """Explanations are left out first, then additions, then words at the end; no word is cut."""
    assert row_text(shortened(CAUSE, room)) == shown


@pytest.mark.parametrize(
    ("text", "room", "shown"),
    [
        ("it swings to spark-b and back, one of the two is idle", 40, "it swings to spark-b and back "),
        ("the KV cache is 98 % full of requests", 22, "the KV cache… "),
        ("no comma, but a long sentence after it", 30, "no comma, but a long… "),
    ],
)
def test_a_sentence_ends_with_a_clause_or_before_a_figure(text: str, room: int, shown: str) -> None:
    """A clause needs no dots; a number is not left without its unit."""
    assert row_text(shortened([(text, "text")], room)) == shown


def test_fitted_rows_are_padded_to_the_height() -> None:
    """Rows that are measured already are framed as they are; missing ones are blank."""
    rows = framed([[("0123456789", "text")]], 12, 4, fitted=True)
    assert [row_text(row) for row in rows] == ["╭──────────╮", "│0123456789│", "│          │", "╰──────────╯"]
