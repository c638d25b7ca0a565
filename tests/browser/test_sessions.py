"""Cookies that stand for the token."""

from __future__ import annotations

import pytest

from sparktop.browser.server import VALID_S, Sessions, cookie
from tests.browser.conftest import TOKEN


def test_a_cookie_holds_until_its_end_and_only_for_its_token() -> None:
    """A cookie is refused after a change, after its end, and for another token or port."""
    now = [1000.0]
    own = Sessions(TOKEN, 9752, wall=lambda: now[0])
    value = own.new_cookie()
    assert TOKEN not in value
    assert own.admits(f"other=1; sparktop_9752={value}")
    assert not Sessions(TOKEN[::-1], 9752, wall=lambda: now[0]).admits(f"sparktop_9752={value}")
    assert not Sessions(TOKEN, 9753, wall=lambda: now[0]).admits(f"sparktop_9752={value}")
    end, _, signature = value.partition(".")
    assert not own.admits(f"sparktop_9752={int(end) + 1}.{signature}")
    now[0] += VALID_S
    assert not own.admits(f"sparktop_9752={value}")


@pytest.mark.parametrize(
    "header", [None, "", "sparktop_9752", "sparktop_9752=é.x", "a=b; =;;", "x=" + "9" * 9000]
)
def test_no_other_cookie_opens_the_pages(header: str | None) -> None:
    """Any other cookie is refused without an error."""
    assert not Sessions(TOKEN, 9752).admits(header)
    assert cookie(header, "none") == ""
