"""The pages in a real browser: live figures, keys, two widths, no foreign requests, no errors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from urllib.parse import quote

import pytest
from msgspec.structs import replace

from sparktop.model.snapshot import Snapshot
from stage.fleet import RehearsedFleet
from tests.browser.chromium import PROGRAM, NewTab, chromium
from tests.browser.conftest import TOKEN, Served, StartServer, hostile_snapshot
from tests.export.snapshots import snapshot
from tests.waiting import until

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(PROGRAM is None, reason="no chromium on this machine"),
]
READY = "document.readyState === 'complete'"
ROWS = "document.querySelectorAll('.rows > p').length"
COLUMNS = "Number(document.getElementById('main').className.slice(1).split(' ')[0])"
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
UNUSED = """innerWidth - Math.max(...[...document.querySelectorAll('section')].map(
    one => one.getBoundingClientRect().right))"""


def with_running(running: float) -> Snapshot:
    """Return a snapshot with `running` running requests."""
    shown = snapshot()
    return replace(shown, backends=tuple(replace(one, running=running) for one in shown.backends))


def shows(figure: str) -> str:
    """Return an expression that is true once the page shows `figure`."""
    return f"document.getElementById('main').textContent.includes('{figure}')"


@pytest.fixture
async def new_tab() -> AsyncIterator[NewTab]:
    """Return a function that opens a tab of a browser."""
    async with chromium() as made:
        yield made


def address(served: Served, path: str = "/") -> str:
    """Return the URL of a page of this server."""
    return f"http://127.0.0.1:{served.port}{path}"


async def test_live_figures_move_for_two_viewers_at_two_widths(
    start_server: StartServer, new_tab: NewTab
) -> None:
    """Figures change in a narrow and a wide window at once, without console errors or foreign requests."""
    served = await start_server(shown=with_running(417))
    wide, phone = await new_tab(), await new_tab()
    for tab, width in ((wide, 1280), (phone, 375)):
        await tab.begin(width, 800, is_phone=width < 400)
        await tab.open(address(served))
        await tab.until(shows("417"))
    await wide.until(f"{COLUMNS} > 120")
    await phone.until(f"{COLUMNS} === 60")
    served.now = with_running(528)
    for tab in (wide, phone):
        await tab.until(shows("528"))
        assert await tab.value(OVERFLOW) == 0
        assert await tab.value("document.querySelectorAll('[aria-live]').length") == 1
        assert tab.complaints == []
        assert {one.split("/")[2] for one in tab.requests} <= {f"127.0.0.1:{served.port}", "blank"}
    for width, columns in ((1000, 120), (1440, 170), (1920, 240), (2560, 240), (700, 80)):
        await wide.resize(width, 800)
        assert 0 <= await wide.value(UNUSED) < 24  # also while its columns are those of another width
        await wide.until(f"{COLUMNS} === {columns}")
        assert 0 <= await wide.value(UNUSED) < 24
        assert await wide.value(OVERFLOW) == 0


async def test_every_page_is_reached_with_the_keyboard(start_server: StartServer, new_tab: NewTab) -> None:
    """Every page is reached with the terminal's keys; hostile names do nothing."""
    served = await start_server(shown=hostile_snapshot())
    tab = await new_tab()
    await tab.begin(1280, 800)
    await tab.open(address(served))
    for key, path in (("b", "/balance"), ("e", "/events"), ("h", "/sweeps"), ("Escape", "/")):
        await tab.press(key, 27 if key == "Escape" else 0)
        await tab.until(f"location.pathname === '{path}' && {READY}")
    await tab.press("j")
    await tab.until("document.activeElement.matches('a.over')")
    await tab.press("Enter", 13)
    await tab.until(f"location.pathname.startsWith('/node/') && {READY}")
    await tab.press("?")
    await tab.until("document.getElementById('keys').open")
    assert tab.complaints == []


async def test_a_lost_server_is_named_and_found_again(start_server: StartServer, new_tab: NewTab) -> None:
    """While the server is gone the page says so; then it continues by itself, with its cookie."""
    served = await start_server(TOKEN)
    tab = await new_tab()
    await tab.begin(800, 600)
    await tab.open(address(served, "/events"))
    await tab.value(f"document.querySelector('input').value = '{TOKEN}'")
    await tab.value("document.querySelector('form').requestSubmit()")
    await tab.until(f"location.pathname === '/events' && {ROWS} > 1")
    tab.complaints.clear()  # the page without the token answered 401
    await until(lambda: len(served.server._streams) == 1)
    for stream in list(served.server._streams):
        stream.cancel()
    await tab.until("document.getElementById('state').textContent.includes('trying again')")
    await tab.until("document.getElementById('state').textContent === ''")
    await tab.press("p")
    await tab.until("document.getElementById('state').textContent.startsWith('paused')")
    await tab.press("p")
    await tab.until("document.getElementById('state').textContent === ''")


async def test_the_lists_and_the_filter_of_a_wall_work_and_stay(
    start_server: StartServer, new_tab: NewTab
) -> None:
    """Lists and filter work by links, keys and form; the address has the choice, and a reload keeps it."""
    served = await start_server(shown=RehearsedFleet(120, 30).play(6).snapshot())
    tab = await new_tab()
    await tab.begin(375, 800, is_phone=True)
    await tab.open(address(served))
    await tab.until(shows("120 servers"))
    await tab.value("""document.querySelector('a[aria-label="lists: most waiting"]').click()""")
    await tab.until(f"location.search === '?list=waiting' && {READY} && {shows('shows the next list')}")
    await tab.press("l")
    await tab.until(f"location.search === '?list=kv' && {READY}")
    await tab.press("/")
    await tab.until("document.activeElement.id === 'filter'")
    for letter in "llama":
        await tab.press(letter)
    await tab.press("Enter", 13)
    chosen = "location.search === '?list=kv&filter=llama'"
    wall = "document.querySelector('section[aria-label=Servers]')?.textContent"
    few = f"{READY} && {wall}.includes('llama-') && !{wall}.includes('glm-')"
    await tab.until(f"{chosen} && {few}")
    served.now = replace(served.now, at=served.now.at + 1.0)
    await tab.call("Page.reload")
    await tab.until(f"{chosen} && {few}")
    assert await tab.value("document.getElementById('filter').value") == "llama"
    assert await tab.value(OVERFLOW) == 0
    await tab.press("Escape", 27)
    await tab.until(f"location.search === '' && {READY} && {wall}.includes('glm-')")
    assert tab.complaints == []


async def test_the_order_and_the_filter_of_a_board_work_and_stay(
    start_server: StartServer, new_tab: NewTab
) -> None:
    """An unknown order is the usual one, and a hostile filter is shown as text."""
    served = await start_server(shown=snapshot())
    tab = await new_tab()
    await tab.begin(1280, 800)
    await tab.open(address(served))
    await tab.press("o")
    await tab.until(f"location.search === '?sort=name' && {READY}")
    hostile = "<img src=x onerror=alert(1)>"
    await tab.open(address(served, f"/?sort=banana&filter={quote(hostile)}"))
    await tab.until(shows("No server or machine matches"))
    assert await tab.value("document.querySelectorAll('img').length") == 0
    assert await tab.value("document.getElementById('filter').value") == hostile
    assert await tab.value(OVERFLOW) == 0
    assert tab.complaints == []
