"""The report of a sweep in a real browser: on a phone, on a desk and on paper."""

from __future__ import annotations

import pytest

from sparktop.sweep.compare.compare import compare
from sparktop.sweep.compare.series import load_reference, published_series
from sparktop.sweep.formats.written import comparison_report, sweep_report
from tests.browser.chromium import PROGRAM, Tab, chromium
from tests.sweep.formats.full_results import full_sweep

pytestmark = [
    pytest.mark.outside,
    pytest.mark.skipif(PROGRAM is None, reason="no chromium on PATH (Debian, Ubuntu: apt install chromium)"),
]
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
PLOTS = "document.querySelectorAll('svg.plot').length"
LEGIBLE = """9 <= Math.min(...[...document.querySelectorAll('svg.plot')].map(one =>
    12 * one.getBoundingClientRect().width / one.viewBox.baseVal.width))"""
HIDDEN = """[...document.querySelectorAll('svg.plot text')].filter(text => {
    const inner = text.getBoundingClientRect(), outer = text.closest('svg').getBoundingClientRect();
    return inner.left < outer.left - 1 || inner.right > outer.right + 1 || inner.bottom > outer.bottom + 1;
}).map(text => text.textContent)"""
BACKGROUND = "getComputedStyle(document.body).backgroundColor"


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the addresses of a report of a sweep, and of one of a published table."""
    folder = tmp_path_factory.mktemp("reports")
    table = published_series(load_reference("ref:spark-topologies-2026-03"))
    texts = {
        "sweep": sweep_report(full_sweep(alone="a-server-of-a-long-name"), "html", beside=table),
        "table": comparison_report(compare(table), table, "html"),
    }
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: (folder / f"{name}.html").as_uri() for name in texts}


async def assert_whole(tab: Tab, address: str, plots: int) -> None:
    """Assert that nothing is complained, requested, cut off or too small to read on the page."""
    assert (tab.complaints, set(tab.requests)) == ([], {address})
    assert await tab.value(OVERFLOW) == 0
    assert await tab.value(PLOTS) == plots
    assert await tab.value(LEGIBLE)
    assert await tab.value(HIDDEN) == []


@pytest.mark.parametrize(("name", "width"), [("sweep", 375), ("table", 1280)])
async def test_a_report_is_whole_at_every_width(reports: dict[str, str], name: str, width: int) -> None:
    """The console is empty, nothing else is requested, nothing overflows, and plots have legible text."""
    async with chromium() as new_tab:
        tab = await new_tab()
        await tab.begin(width, 900, is_phone=width < 500)
        await tab.open(reports[name])
        await assert_whole(tab, reports[name], 3)


async def test_a_report_follows_the_reader_s_colours_and_prints(reports: dict[str, str]) -> None:
    """Dark on request; on paper a few pages, light whatever the screen is."""
    async with chromium() as new_tab:
        tab = await new_tab()
        for scheme, color in (("light", "rgb(247, 248, 250)"), ("dark", "rgb(14, 18, 23)")):
            await tab.begin(1280, 900, scheme=scheme)
            await tab.open(reports["sweep"])
            assert await tab.value(BACKGROUND) == color
        pdf = await tab.printed()
        assert pdf.startswith(b"%PDF")
        assert 1 <= pdf.count(b"/Type /Page\n") <= 12
        await tab.call("Emulation.setEmulatedMedia", media="print")
        assert await tab.value("getComputedStyle(document.querySelector('h1')).color") == "rgb(28, 35, 44)"
