"""Pages of stored sweeps: a paged list, each result with its sections; files are never changed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sparktop.browser.page import Kind, Page
from sparktop.browser.picture import Picture
from sparktop.browser.shelf import EACH_PAGE, LOOK_EVERY_S, Shelf
from sparktop.sweep.result.store import new_file, save
from tests.export.snapshots import snapshot
from tests.sweep.made_results import simulated_sweep

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


def files(folder: Path) -> list[Path]:
    """Return all files in a folder."""
    return sorted(folder.rglob("*"))


async def drawn(shelf: Shelf, page: Page, width: int = 100) -> Picture:
    """Search for new results and draw a page."""
    await shelf.look()
    return await shelf.draw(page, snapshot(), width)


def paths(picture: Picture) -> list[str]:
    """Return the paths of all links of a page."""
    return [link.path for band in picture.bands for section in band for link in section.links]


async def test_without_results_the_page_says_how_to_make_one(tmp_path: Path) -> None:
    """Without results, or without the folder, the page says how to make one."""
    picture = await drawn(Shelf(tmp_path / "none"), Page(Kind.SWEEPS))
    assert "sparktop sweep TARGET" in picture.html
    assert picture.is_found


async def test_results_are_listed_in_pages_and_each_has_its_own(tmp_path: Path) -> None:
    """The list has the newest results first, with links; a missing result is not found."""
    names = store(tmp_path, EACH_PAGE + 2)
    shelf = Shelf(tmp_path)
    first, second = [await drawn(shelf, Page(Kind.SWEEPS, number)) for number in ("", "2")]
    assert paths(first)[: EACH_PAGE + 1] == [*(f"/sweep/{name}" for name in names[:1:-1]), "/sweeps/2"]
    assert paths(second) == [f"/sweep/{names[1]}", f"/sweep/{names[0]}", "/sweeps/1"]
    result = await drawn(shelf, Page(Kind.SWEEP, names[0]))
    headings = [section.heading for band in result.bands for section in band]
    assert headings[0].startswith("Sweep quick")
    assert "Findings" in headings
    assert not (await drawn(shelf, Page(Kind.SWEEP, "nothing.json"))).is_found


@pytest.mark.parametrize("name", ["../secret.json", "/etc/passwd", ".hidden.json", "..%2fsecret.json"])
async def test_only_listed_results_are_read(tmp_path: Path, name: str) -> None:
    """A name is looked up among the listed results, never opened as a path."""
    folder = tmp_path / "sweeps"
    store(folder, 1)
    (tmp_path / "secret.json").write_text((next(folder.glob("*.json"))).read_text())
    assert not (await drawn(Shelf(folder), Page(Kind.SWEEP, name))).is_found


async def test_files_are_read_again_when_they_change_and_are_never_changed(tmp_path: Path) -> None:
    """A new result appears after some seconds; a damaged one has no link; no file is changed."""
    now = [0.0]
    (tmp_path / ".deleted" / "20200101T000000.000000Z").mkdir(parents=True)
    (tmp_path / ".deleted" / "20200101T000000.000000Z" / "old.json").write_text("{}")
    (tmp_path / "broken.json").write_text("{")
    before = files(tmp_path)
    shelf = Shelf(tmp_path, clock=lambda: now[0])
    assert paths(await drawn(shelf, Page(Kind.SWEEPS))) == []
    assert files(tmp_path) == before
    (name,) = store(tmp_path, 1)
    now[0] += LOOK_EVERY_S
    assert f"/sweep/{name}" in paths(await drawn(shelf, Page(Kind.SWEEPS)))
