"""What is shown of a server that takes long for its metrics page."""

from __future__ import annotations

import pytest

from sparktop.model.snapshot import BackendView
from sparktop.panels.parts.text import row_text
from sparktop.panels.server.panel import footnote


@pytest.mark.parametrize(
    ("poll_ms", "shown"), [(35.0, " 35 ms "), (2300.0, " page takes 2.3 s, figures up to 5 s old ")]
)
def test_a_slow_page_shows_the_age_of_its_figures(poll_ms: float, shown: str) -> None:
    """From a second on the edge of the panel says how long the page takes and how old the figures are."""
    view = BackendView("a", "http://a:8000", "g", age_s=3.0, poll_ms=poll_ms)
    assert row_text(footnote(view, on_board=True)[1]) == shown
