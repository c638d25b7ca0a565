"""The folder of a user's themes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sparktop.colors import palette


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the empty folder of the user's themes; all themes are read again before and after."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    place = tmp_path / "sparktop" / "themes"
    place.mkdir(parents=True)
    palette._palettes_and_problems.cache_clear()
    yield place
    palette._palettes_and_problems.cache_clear()
