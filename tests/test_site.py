"""The web site of the documents: every link holds, one search box, nothing from another host."""

from __future__ import annotations

import functools
import importlib.util
import os
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import pytest

from scripts.build_site import foreign_loads
from scripts.build_site import main as build_site
from tests.browser.chromium import PROGRAM, chromium
from tests.programs import served

ROOT = Path(__file__).resolve().parent.parent

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(
        importlib.util.find_spec("zensical") is None and "CI" not in os.environ,
        reason="zensical is not installed: make venv",
    ),
]
SHOWN = "[...document.querySelectorAll('*')].map(one => one.shadowRoot).some(one => one && %s)"
"""Whether a part of the page that draws itself, such as the search box when it is open, is in a state."""


class Quiet(SimpleHTTPRequestHandler):
    """Serves a folder without a log."""

    def log_message(self, *_: object) -> None:
        """Write nothing."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a site that was built now."""
    folder = tmp_path_factory.mktemp("site") / "site"
    assert build_site(folder) == 0
    return folder


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Yield the address at which the site is served."""
    with served(functools.partial(Quiet, directory=str(site))) as port:
        yield f"http://127.0.0.1:{port}"


def test_every_document_is_a_page(site: Path) -> None:
    """README.md, each page of docs/, and the pictures, each with a search box and a policy for what loads."""
    names = {path.relative_to(ROOT).with_suffix(".html") for path in (ROOT / "docs").glob("*.md")}
    for name in ("index.html", *map(str, names)):
        text = (site / name).read_text(encoding="utf-8")
        assert "Content-Security-Policy" in text
        assert text.count('data-md-toggle="search"') == 1
    assert (site / "screenshots" / "hero.svg").is_file()


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    """Only a site is replaced."""
    (tmp_path / "kept").write_text("x")
    assert build_site(tmp_path) == 1
    assert (tmp_path / "kept").read_text() == "x"


def test_no_page_loads_from_another_host(site: Path, tmp_path: Path) -> None:
    """No script, style, font or picture; what would be one is found."""
    assert list(foreign_loads(site)) == []
    (tmp_path / "a.html").write_text(
        '<script src="//x.example/a.js"></script><img srcset="b.png, https://x.example/c.png">'
        '<link rel="stylesheet" href="https://x.example/d.css"><a href="https://x.example/">no load</a>'
        '<p style="background: url(https://x.example/e.png)"><style>@import "https://x.example/f.css";</style>',
        encoding="utf-8",
    )
    (tmp_path / "g.css").write_text("a { src: url('https://x.example/g.woff') }", encoding="utf-8")
    assert len(list(foreign_loads(tmp_path))) == 6


@pytest.mark.skipif(PROGRAM is None, reason="no chromium on PATH (Debian, Ubuntu: apt install chromium)")
async def test_the_search_finds_a_word_and_asks_nobody_else(address: str) -> None:
    """A reader types a word of the screen and gets its page; the browser requests only the site's files."""
    async with chromium() as new_tab:
        tab = await new_tab()
        await tab.begin(1200, 900)
        await tab.open(f"{address}/index.html")
        await tab.press("/")
        await tab.until(SHOWN % "!!one.querySelector('input')")
        for letter in "oscillating":
            await tab.press(letter)
        await tab.until(SHOWN % "one.textContent.includes('Balance of a group')")
        assert tab.complaints == []
        assert [one for one in tab.requests if not one.startswith((address, "data:", "blob:"))] == []
