"""The screen without a terminal: as SVG, in any size and theme, and without a trace."""

from __future__ import annotations

import asyncio
import html
import re
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from sparktop.model.snapshot import Snapshot
from sparktop.ui.app import screen_of
from stage.rehearsal import Rehearsal

TEXT = re.compile(r"<text[^>]*>([^<]*)</text>")


@pytest.fixture(scope="module")
def snapshot() -> Snapshot:
    return Rehearsal().play(100).snapshot()


def words(svg: str) -> str:
    return html.unescape(" ".join(TEXT.findall(svg))).replace("\xa0", " ")


@pytest.mark.parametrize(("size", "theme"), [((60, 16), "spark-dark"), ((120, 36), "spark-light")])
async def test_the_screen_is_drawn(snapshot: Snapshot, size: tuple[int, int], theme: str) -> None:
    """The picture is well-formed, as large as asked, and shows the backends with their graphs."""
    svg = await screen_of(snapshot, size=size, theme=theme)
    ET.fromstring(svg)  # noqa: S314 - our own text; that it is well-formed is the fact
    assert "spark-a" in words(svg)
    assert any("\u2800" < char <= "\u28ff" for char in svg)
    lines = set(re.findall(r'<clipPath id="terminal-line-(\d+)"', svg))
    assert len(lines) in {size[1], size[1] - 1}


@pytest.mark.outside
def test_drawing_leaves_no_trace(
    snapshot: Snapshot,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Without any stream and with a home of its own: nothing is printed, nothing is remembered."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(sys, "stdin", None)
    asyncio.run(screen_of(snapshot, size=(80, 24), theme="spark-dark"))
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")
