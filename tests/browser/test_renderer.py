"""Pages are drawn once per tick for all viewers; pages of stored sweeps."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from sparktop.browser import renderer as module
from sparktop.browser.drawing import Orders, ResultPages, draw
from sparktop.browser.page import PageKind, WebPage
from sparktop.browser.picture import Picture
from sparktop.browser.renderer import Channel, PageRenderer
from sparktop.model.snapshot import Snapshot
from sparktop.sweep.result.store import new_file, save
from tests.browser.test_pages import paths
from tests.export.snapshots import snapshot
from tests.sweep.made_results import simulated_sweep


def parsed(event: bytes) -> tuple[str, dict[str, Any]]:
    """Return (name, data) of a server-sent event."""
    name, data = event.decode().removesuffix("\n\n").split("\n")
    return name.removeprefix("event: "), json.loads(data.removeprefix("data: "))


def changed() -> Snapshot:
    """Return a snapshot in which one figure differs from the usual one."""
    shown = snapshot()
    first, *others = shown.backends
    return replace(shown, backends=(replace(first, running=7.0), *others))


async def test_a_viewer_gets_the_whole_page_and_then_changed_rows() -> None:
    """A change holds the rows that differ; a viewer that missed one gets the whole page again."""
    before, after = (draw(WebPage(), one, 80) for one in (snapshot(), changed()))
    channel = Channel(before, 0.0)
    quick, slow = (channel.events(compressed=False) for _ in range(2))
    assert parsed(await anext(quick))[1]["main"] == before.html
    await anext(slow)
    channel.show(after, 1.0)
    name, news = parsed(await anext(quick))
    old, new = list(before.rows), list(after.rows)
    assert name == "change"
    assert news["rows"] == {str(at): new[at] for at in range(len(new)) if new[at] != old[at]}
    assert 0 < len(news["rows"]) < len(new) / 2
    channel.show(before, 2.0)
    assert parsed(await anext(slow))[0] == "whole"
    assert parsed(await anext(quick))[0] == "change"


async def joined(studio: PageRenderer, page: WebPage, width: int) -> AsyncGenerator[bytes, None]:
    """Open a page and read its first event."""
    viewer = studio.watch(page, width, compressed=False)
    await anext(viewer)
    return viewer


async def test_many_viewers_cause_one_drawing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Viewers of a page with the same width share one drawing; a page without viewers is not drawn."""
    drawn: list[tuple[WebPage, int]] = []

    def counted(page: WebPage, shown: Snapshot, width: int, orders: Orders) -> object:
        drawn.append((page, width))
        return draw(page, shown, width, orders)

    monkeypatch.setattr(module, "draw", counted)
    now = [0.0]
    studio = PageRenderer(snapshot, ResultPages(tmp_path), clock=lambda: now[0])
    viewers = [await joined(studio, page, 80) for page in [WebPage()] * 5 + [WebPage(PageKind.EVENTS)]]
    assert drawn == [(WebPage(), 80), (WebPage(PageKind.EVENTS), 80)]
    assert studio.viewers == 6
    await studio._draw_watched()
    assert len(drawn) == 4
    for viewer in viewers:
        await viewer.aclose()
    assert studio.viewers == 0
    now[0] += 60
    await studio._draw_watched()
    assert len(drawn) == 4
    assert studio._channels == {}


async def test_a_page_that_cannot_be_drawn_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """If a page cannot be drawn, it says so and the error is logged; the other pages are still drawn."""
    faulty, shown = WebPage(PageKind.EVENTS), [snapshot()]

    def broken(page: WebPage, taken: Snapshot, width: int, orders: Orders) -> object:
        if page == faulty:
            raise ZeroDivisionError
        return draw(page, taken, width, orders)

    monkeypatch.setattr(module, "draw", broken)
    studio = PageRenderer(lambda: shown[0], ResultPages(tmp_path))
    viewers = [studio.watch(page, 80, compressed=False) for page in (faulty, WebPage())]
    texts = [parsed(await anext(viewer))[1]["main"] for viewer in viewers]
    assert ["could not be drawn" in text for text in texts] == [True, False]
    shown[0] = changed()
    await studio._draw_watched()
    assert parsed(await anext(viewers[1]))[0] == "change"
    logged = [(one.levelname, one.getMessage(), (one.exc_info or [None])[0]) for one in caplog.records]
    assert logged == [("ERROR", f"the page {faulty.path} could not be drawn", ZeroDivisionError)] * 2
    for viewer in viewers:
        await viewer.aclose()


BEGIN = datetime(2026, 3, 4, tzinfo=UTC)


def store(folder: Path, count: int) -> list[str]:
    """Store results with two targets; return their file names."""
    result = simulated_sweep("quick", (1, 4), (128,), 16, 3)
    names = []
    for minute in range(count):
        path = new_file(folder, BEGIN + timedelta(minutes=minute))
        save(path, result.model_copy(update={"started_at": BEGIN + timedelta(minutes=minute)}))
        names.append(path.name)
    return names


async def drawn(shelf: ResultPages, page: WebPage, width: int = 100) -> Picture:
    """Search for new results and draw a page."""
    await shelf.refresh()
    return await shelf.draw(page, snapshot(), width)


async def test_results_are_listed_and_each_has_its_own_page(tmp_path: Path) -> None:
    """The list has the newest results first, with links; a missing result is not found."""
    names = store(tmp_path, 3)
    shelf = ResultPages(tmp_path)
    shown = paths(await drawn(shelf, WebPage(PageKind.SWEEPS)))
    assert shown == [f"/sweep/{name}" for name in reversed(names)]
    result = await drawn(shelf, WebPage(PageKind.SWEEP, names[0]))
    headings = [section.heading for band in result.bands for section in band]
    assert headings[0].startswith("Sweep quick")
    assert "Curves" in headings
    assert not (await drawn(shelf, WebPage(PageKind.SWEEP, "nothing.json"))).is_found


@pytest.mark.parametrize("name", ["../secret.json", "/etc/passwd", ".hidden.json", "..%2fsecret.json"])
async def test_only_listed_results_are_read(tmp_path: Path, name: str) -> None:
    """A name is looked up among the listed results, never opened as a path."""
    folder = tmp_path / "sweeps"
    store(folder, 1)
    (tmp_path / "secret.json").write_text((next(folder.glob("*.json"))).read_text())
    assert not (await drawn(ResultPages(folder), WebPage(PageKind.SWEEP, name))).is_found
