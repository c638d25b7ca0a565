"""A theme that is read alone equals that of the full list."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sparktop.colors import palette
from sparktop.colors.palette import find_palette, palettes, shipped_palettes

BTOP = 'theme[main_bg]="#101010"\ntheme[main_fg]="#eeeeee"'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return an empty folder for the user's themes; clear the caches before and after the test."""
    themes = tmp_path / "sparktop" / "themes"
    themes.mkdir(parents=True)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    palette._all.cache_clear()
    yield themes
    palette._all.cache_clear()


def test_every_theme_is_found_as_listed(folder: Path) -> None:
    """Shipped themes, the user's, and the user's with a shipped name are found as in the full list."""
    (folder / "harbour.theme").write_text(BTOP, encoding="utf-8")
    (folder / "spark-dark.theme").write_text(BTOP, encoding="utf-8")
    ours = (palette._folder() / "spark-light.toml").read_text(encoding="utf-8")
    (folder / "both.toml").write_text(ours, encoding="utf-8")
    (folder / "both.theme").write_text(BTOP, encoding="utf-8")
    (folder / "half.toml").write_text("broken", encoding="utf-8")
    (folder / "half.theme").write_text(BTOP, encoding="utf-8")
    (folder / "spark-ansi.toml").write_text("broken", encoding="utf-8")
    listed = palettes()
    assert {"harbour", "both", "half"} <= set(listed)
    assert listed["spark-dark"] != shipped_palettes()["spark-dark"]
    assert {name: find_palette(name) for name in listed} == listed


@pytest.mark.parametrize(
    "name", ["", ".", "..", "none", "../themes/harbour", "harbour.theme", "\x1b", "a\0b", "x" * 300]
)
def test_what_is_no_theme_is_not_found(folder: Path, name: str) -> None:
    """An unknown name gives None and reads nothing outside the two folders."""
    (folder / "harbour.theme").write_text(BTOP, encoding="utf-8")
    assert find_palette(name) is None


def test_one_theme_is_found_without_reading_the_others(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Finding one theme opens no other files."""
    (folder / "harbour.theme").write_text(BTOP, encoding="utf-8")
    (folder / "other.theme").write_text(BTOP, encoding="utf-8")
    read: list[str] = []
    text = palette._theme_text

    def noted(path: Path, where: str) -> str:
        read.append(path.name)
        return text(path, where)

    monkeypatch.setattr(palette, "_theme_text", noted)
    assert find_palette("harbour") is not None
    assert read == ["harbour.toml", "harbour.theme"]
