"""The report of a recording in a real browser: on a phone, on a desktop and on paper."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparktop.moments.report import moment_report
from tests.browser.chromium import PROGRAM, chromium
from tests.moments.conftest import Recorded
from tests.sweep.formats.test_page_in_browser import BACKGROUND, HIDDEN, LEGIBLE, OVERFLOW, PLOTS

pytestmark = [
    pytest.mark.outside,
    pytest.mark.long,
    pytest.mark.skipif(PROGRAM is None, reason="no chromium on PATH (Debian, Ubuntu: apt install chromium)"),
]


async def test_a_report_is_whole_on_a_phone_a_desk_and_paper(recorded: Recorded, tmp_path: Path) -> None:
    """No console message, foreign request or overflow; plots are legible, and it prints on few pages."""
    path = tmp_path / "moment.html"
    path.write_text(moment_report(recorded.moment(), "html"), encoding="utf-8")
    address = path.as_uri()
    async with chromium() as new_tab:
        tab = await new_tab()
        for width, scheme, color in ((375, "light", "rgb(247, 248, 250)"), (1280, "dark", "rgb(14, 18, 23)")):
            await tab.begin(width, 900, is_phone=width < 500, scheme=scheme)
            await tab.open(address)
            assert (tab.complaints, set(tab.requests)) == ([], {address})
            assert await tab.value(OVERFLOW) == 0
            assert await tab.value(PLOTS) == 9
            assert await tab.value(LEGIBLE)
            assert await tab.value(HIDDEN) == []
            assert await tab.value(BACKGROUND) == color
        pdf = await tab.printed()
        assert 1 <= pdf.count(b"/Type /Page\n") <= 8
