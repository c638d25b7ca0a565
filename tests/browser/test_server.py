"""The server of `sparktop serve`: who gets pages, what a browser receives, and what requests cannot do."""

from __future__ import annotations

import asyncio
import socket

import pytest
from msgspec.structs import replace

from sparktop.browser import server as module
from sparktop.browser.page import WebPage
from sparktop.browser.server import LIMITS, VALID_S, Sessions, cookie
from tests.agent.raw_client import Answer, Client, ask, connect, request
from tests.browser.conftest import HOSTILE, TOKEN, StartServer, hostile_snapshot
from tests.waiting import until

PAGES = ("/", "/balance", "/events", "/sweeps")


async def post(port: int, body: str, *headers: str) -> Answer:
    """Send the form for the token."""
    lines = (f"Content-Length: {len(body)}", "Content-Type: application/x-www-form-urlencoded", *headers)
    return await ask(port, "/login", *lines, method="POST", body=body.encode())


async def live(port: int, path: str = "/live/?columns=100") -> Client:
    """Open a live page, and read its first event."""
    client = await connect(port)
    await client.send(request(path))
    async with asyncio.timeout(300):
        await client.reader.readuntil(b"event: whole\n")
    return client


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_says_what_a_browser_may_do_with_it(start_server: StartServer, path: str) -> None:
    """The headers of a page forbid foreign content, frames, guessed types, referrers and caching."""
    served = await start_server()
    answer = await ask(served.port, path)
    assert answer.status == 200
    policy = answer.headers["content-security-policy"].split("; ")
    own = {f"{kind}-src 'self'" for kind in ("script", "style", "connect")}
    assert own | {"default-src 'none'", "frame-ancestors 'none'"} <= set(policy)
    names = ("x-content-type-options", "referrer-policy", "cache-control")
    assert [answer.headers[name] for name in names] == ["nosniff", "no-referrer", "no-store"]


async def test_no_request_but_a_form_has_a_body(start_server: StartServer) -> None:
    """All methods but GET and HEAD get 405; without a token, the form for one leads to the board."""
    served = await start_server()
    for path in (*PAGES, "/live/", "/login", "/board.js"):
        for method in ("POST", "PUT", "DELETE"):
            answer = await ask(served.port, path, "Content-Length: 0", method=method)
            assert answer.status == (303 if (path, method) == ("/login", "POST") else 405)


async def test_other_names_and_pages_of_other_servers_get_nothing(start_server: StartServer) -> None:
    """The Host header must be a name of this server, and an Origin header must be this server."""
    served = await start_server()
    for origin, status in (("http://spark", 200), ("http://evil.example", 403), ("null", 403)):
        assert (await ask(served.port, "/", f"Origin: {origin}")).status == status
    answer = await ask(served.port, "/", "Host: evil.example")
    assert (answer.status, b"--name" in answer.body) == (421, True)


async def test_with_a_token_a_browser_gets_a_form_and_then_a_cookie(start_server: StartServer) -> None:
    """The token is accepted in a header or in the form; the cookie is same-site and hidden from scripts."""
    served = await start_server(TOKEN)
    form = await ask(served.port, "/events")
    assert (form.status, b'name=next value="/events"' in form.body) == (401, True)
    assert b"gen" not in form.body
    assert (await ask(served.port, "/live/")).status == 401
    assert (await ask(served.port, "/live/", "Sec-Fetch-Dest: empty")).body == b"unauthorized\n"
    assert (await ask(served.port, "/board.js")).status == 401
    assert (await ask(served.port, "/style.css")).status == 200
    assert (await ask(served.port, "/", token=TOKEN)).status == 200
    assert (await post(served.port, "token=wrong&next=/events")).status == 401
    opened = await post(served.port, f"token={TOKEN}&next=/events", "Origin: http://spark")
    assert (opened.status, opened.headers["location"]) == (303, "/events")
    words = opened.headers["set-cookie"].split("; ")
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(words)
    assert (await ask(served.port, "/", f"Cookie: {words[0]}")).status == 200
    assert (await post(served.port, f"token={TOKEN}", "Origin: http://evil.example")).status == 403
    assert (await post(served.port, f"token={TOKEN}&next=//evil.example")).headers["location"] == "/"


async def test_tokens_cannot_be_guessed_quickly(start_server: StartServer) -> None:
    """After some wrong tokens the form is refused for a while; the right token still opens the pages."""
    served = await start_server(TOKEN)
    statuses = [(await post(served.port, "token=wrong")).status for _ in range(8)]
    assert (statuses[0], statuses[-1]) == (401, 429)
    assert (await ask(served.port, "/", token=TOKEN)).status == 200


async def test_viewers_are_limited_and_counted_until_they_go(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A viewer beyond the limit gets 503 with one line, until another viewer leaves."""
    monkeypatch.setattr(module, "MOST_VIEWERS", 2)
    served = await start_server()
    viewers = [await live(served.port) for _ in range(2)]
    refused = await ask(served.port, "/live/")
    assert (refused.status, refused.body) == (503, b"2 viewers already: try again later\n")
    head = await connect(served.port)
    await head.send(request("/live/", method="HEAD"))
    assert await head.reader.readline() == b"HTTP/1.1 503 Service Unavailable\r\n"
    head.close()
    assert (await ask(served.port, "/")).status == 200
    viewers[0].close()
    await until(lambda: served.server._count_live_pages() == 1)
    third = await live(served.port)
    third.close()
    viewers[1].close()


async def test_a_viewer_that_does_not_read_is_dropped(start_server: StartServer) -> None:
    """A viewer that reads nothing for the time limit is disconnected; others are not."""
    served = await start_server(limits=replace(LIMITS, answer_s=0.2, check_s=0.02))
    reading = await live(served.port, "/live/events")
    with socket.socket() as mute:
        mute.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        mute.connect(("127.0.0.1", served.port))
        mute.sendall(request("/live/?columns=240"))
        await until(lambda: served.studio.viewers == 2)
        channel = served.studio._channels[WebPage(), 240]
        pictures = [replace(channel.picture, title=title * 200_000) for title in "ab"]
        async with asyncio.timeout(300):
            while served.server._count_live_pages() != 1:
                channel.show(pictures[channel._version % 2], 0.0)
                await asyncio.sleep(0.002)
    reading.close()


async def test_live_pages_end_with_the_server(start_server: StartServer) -> None:
    """Closing the server does not wait for viewers."""
    served = await start_server()
    viewer = await live(served.port)
    async with asyncio.timeout(300):
        await served.server.close()
    await viewer.closed()
    viewer.close()
    assert not served.server._streams


async def test_hostile_names_reach_no_browser_as_markup(start_server: StartServer) -> None:
    """Hostile names are escaped in the page and in its live changes."""
    served = await start_server(shown=hostile_snapshot())
    body = (await ask(served.port, "/")).body.decode()
    assert HOSTILE[:8] not in body
    assert "&lt;script&gt;" in body
    client = await live(served.port)
    async with asyncio.timeout(300):
        event = (await client.reader.readuntil(b"\n\n")).decode()
    assert "<script>" not in event
    assert "\x1b" not in event
    client.close()


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
