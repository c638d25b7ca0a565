"""Themes of the user's: found, held against ours, and never in the way."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from rich.color import Color
from textual.strip import Strip

from sparktop.colors import palette as palette_module
from sparktop.colors.palette import (
    COLOR_ROLES,
    GRADIENT_ROLES,
    palettes,
    shipped_palettes,
    theme_problems,
)
from sparktop.ui.app import SparktopApp
from sparktop.ui.screens.help import HelpScreen
from tests.colors.conftest import folder
from tests.ui.board import Board, picture

__all__ = ["folder"]


def own_toml(**colors: str) -> str:
    """Return the text of a complete theme in sparktop's format."""
    shipped = shipped_palettes()["spark-dark"]
    lines = [f'{role} = "{colors.get(role, shipped.color(role))}"' for role in COLOR_ROLES]
    gradients = [f'{role} = ["{shipped.color(f"{role}/0")}"]' for role in GRADIENT_ROLES]
    return "\n".join(["[colors]", *lines, "[gradients]", *gradients])


def test_themes_of_the_users_stand_beside_ours(folder: Path) -> None:
    """Both kinds load by name with their file, and one named as ours replaces it."""
    (folder / "mine.toml").write_text(own_toml(text="#abcdef"), encoding="utf-8")
    (folder / "two words.theme").write_text('theme[main_bg]="#10"', encoding="utf-8-sig")
    (folder / "spark-light.theme").write_text('theme[main_bg]="#20"', encoding="utf-8")
    (folder / "readme.txt").write_text("not a theme", encoding="utf-8")
    known = palettes()
    assert list(known) == sorted({*shipped_palettes(), "mine", "two words"})
    assert known["mine"].color("text") == "#abcdef"
    assert known["spark-light"].color("background") == "#202020"
    assert known["two words"].source == str(folder / "two words.theme")
    assert known["spark-dark"].source == ""
    assert theme_problems() == ()


HOSTILE: list[tuple[str, bytes, str]] = [
    ("huge.theme", b'theme[main_fg]="#cc"\n' * 60_000, "larger than 64 KiB"),
    ("huge.toml", b"a" * 1_000_000, "larger than 64 KiB"),
    ("binary.theme", bytes(range(256)) * 40, "binary"),
    ("noise.theme", bytes(range(1, 256)) * 40, "holds none of btop's colours"),
    ("empty.theme", b"", "holds none of btop's colours"),
    ("empty.toml", b"", "colors.background must be"),
    ("deep.toml", b"a = " + b"[" * 60_000, "deep.toml: "),
    ("digits.toml", b"a = " + b"9" * 60_000, "digits.toml: "),
    ("esc\x1b[31m.theme", b'theme[main_fg]="#cc"', "rename it"),
    ("bidi\u202e.toml", b"", "rename it"),
    ("long" * 30 + ".theme", b'theme[main_fg]="#cc"', "rename it"),
    ("[red].theme", b'theme[main_fg]="#cc"', "no brackets"),
    ("bad.toml", b"title = '\x1b[31m\n'", "bad.toml: "),
    ("part.theme", b'theme[main_fg]="#cc"\ntheme[title]="\x1b[31m"\ntheme[hi_fg]="x"', "title and 1 more"),
]


@pytest.mark.parametrize(("name", "content", "words"), HOSTILE, ids=[words for _, _, words in HOSTILE])
def test_a_hostile_file_costs_one_clean_line(folder: Path, name: str, content: bytes, words: str) -> None:
    """Whatever lies there, the other themes load, and one printable line says which file and why."""
    (folder / name).write_bytes(content)
    (folder / "good.theme").write_text('theme[main_fg]="#cc"', encoding="utf-8")
    assert "good" in palettes()
    (line,) = theme_problems()
    assert words in line
    assert line.isprintable()
    assert len(line) < 300


def test_what_is_no_file_is_never_opened(folder: Path) -> None:
    """A folder, a pipe and a dangling link that are named like themes do not hold up the start."""
    (folder / "a.theme").mkdir()
    os.mkfifo(folder / "b.theme")
    (folder / "c.toml").symlink_to(folder / "gone")
    assert list(palettes()) == list(shipped_palettes())
    assert theme_problems() == ("a.theme: is not a file", "b.theme: is not a file", "c.toml: is not a file")


def test_more_files_than_anyone_has_are_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond a number of files the rest is counted, not read."""
    monkeypatch.setattr(palette_module, "_MOST_FILES", 2)
    for name in "abcd":
        (folder / f"{name}.theme").write_text('theme[main_fg]="#cc"', encoding="utf-8")
    assert sorted(set(palettes()) - set(shipped_palettes())) == ["a", "b"]
    assert [line.endswith("2 themes beyond 2 not read") for line in theme_problems()] == [True]


def shown(app: SparktopApp, strip: Strip) -> Strip:
    """Return a row as Textual sends it to the terminal."""
    for line_filter in app._filters:
        if line_filter.enabled:
            strip = strip.apply_filter(line_filter, app.overview.canvas.background_colors[1])
    return strip


async def test_bad_themes_cost_one_toast(folder: Path) -> None:
    """However many files are bad there is one notice, of one line, and the rest can be chosen."""
    for index in range(7):
        (folder / f"bad{index}.theme").write_text("nothing", encoding="utf-8")
    (folder / "fine.theme").write_text('theme[main_bg]="#10"', encoding="utf-8")
    app = (board := Board(picture, theme="fine")).app
    async with board.on((80, 24)):
        (toast,) = app._notifications
        assert toast.message.startswith("theme bad0.theme: holds none")
        assert toast.message.endswith(" (and 6 more): sparktop config themes lists all")
        assert "\n" not in toast.message
        assert not toast.markup
        assert app.theme == "fine"


async def test_the_terminals_background_stays_with_true_colours(folder: Path) -> None:
    """A theme with an empty main_bg paints no background; its words have the file's own colours."""
    (folder / "a clear sky.theme").write_text('theme[main_bg]=""\ntheme[title]="#aabbcc"', encoding="utf-8")
    app = (board := Board(picture, theme="a clear sky")).app
    async with board.on((80, 24)):
        strips = [app.overview.canvas.render_line(y) for y in range(24)]
        painted = [
            segment.style for strip in strips for segment in shown(app, strip) if segment.style is not None
        ]
        assert {style.bgcolor for style in painted} == {Color.parse("default")}
        assert Color.parse("#aabbcc") in {style.color for style in painted}
        await board.press("question_mark")
        assert isinstance(app.screen, HelpScreen)
        await board.press("escape", "t")
        assert app.theme != "a clear sky"
