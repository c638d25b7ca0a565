"""Cookies that stand for the token, names of the server, and pages of other servers."""

from __future__ import annotations

import pytest

from sparktop.browser.sessions import VALID_S, Sessions, cookie, is_own, is_same_origin, own_names
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


def test_the_server_answers_under_its_own_names_and_addresses_only() -> None:
    """Requests for other host names are refused, as of DNS rebinding; the port does not matter."""
    names = own_names("0.0.0.0", ["board.lan"])
    for host in ("localhost", "LOCALHOST:8080", "127.0.0.1:1", "[::1]:9752", "10.0.0.5", "board.lan:443"):
        assert is_own(host, names), host
    for host in ("evil.example", "localhost.evil.example", "a@localhost", "localhost/x", "", "[::1", "x:y"):
        assert not is_own(host, names), host


def test_only_pages_of_this_server_may_ask() -> None:
    """The origin of a request must be exactly the addressed host."""
    assert is_same_origin(None, "spark:9752")
    assert is_same_origin("http://spark:9752", "spark:9752")
    assert is_same_origin("https://spark", "SPARK")
    for origin in (
        "null",
        "http://evil.example",
        "http://spark",
        "http://spark:9752.evil.example",
        "ftp://spark:9752",
    ):
        assert not is_same_origin(origin, "spark:9752"), origin
