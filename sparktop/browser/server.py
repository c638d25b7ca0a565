"""HTTP server of `sparktop serve`: pages, their live changes, and the form for the token.

GET /…              a page, see `address.py`
                    ?sort= ?filter= ?list= choose what a board or a wall shows, see `choice.py`
GET /live/…         the same page as server-sent events: ?columns=N is the width of the window in cells
GET /board.js /style.css /icon.svg
POST /login         the token, for a cookie; nothing else takes a body
GET /healthz        liveness, without a token
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from contextlib import aclosing
from urllib.parse import parse_qs, parse_qsl, unquote

from aiohttp import web

from sparktop.agent.gate import Limits, Rates
from sparktop.agent.server import WebServer, page, text
from sparktop.browser.address import Page, parse_path
from sparktop.browser.document import ICON, page_html, token_html
from sparktop.browser.sessions import VALID_S, Sessions, cookie
from sparktop.browser.studio import Studio
from sparktop.browser.style import AUTO, static, style_sheet
from sparktop.browser.widths import shared_width
from sparktop.colors.palette import palettes
from sparktop.model.targets import Watch

MOST_VIEWERS = 64
"""Live pages at once; further viewers are refused with a line."""
LIMITS = Limits(connections=256, requests_per_s=50.0, request_burst=400.0)
"""More connections than viewers, since each viewer also fetches the page's parts; of one address as many as
of many, since viewers may share a tunnel."""
_LOGINS_PER_S, _LOGIN_BURST = 0.5, 5.0
_MOST_FORM = 4096
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_SECURITY = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_HTML = "text/html; charset=utf-8"
_PUBLIC = frozenset({"/style.css", "/icon.svg", "/login"})
"""What the form for the token needs; nothing of it is about what is watched."""


class BrowserServer(WebServer):
    """Serves the pages of a studio to browsers."""

    forms = frozenset({"/login"})
    command = "serve"

    def __init__(
        self,
        studio: Studio,
        *,
        theme: str,
        names: Collection[str],
        sessions: Sessions | None = None,
        token: str | None = None,
        is_tls: bool = False,
        limits: Limits = LIMITS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Serve the pages of `studio` in the colours of `theme`, unless a viewer chooses other ones.

        The usual theme follows the browser's choice between dark and light. `names` are those of the server
        itself; requests with another Host header are refused. With `token`, `sessions` has the cookies that
        stand for it. `is_tls` is whether browsers use TLS.
        """
        super().__init__(token=token, limits=limits, clock=clock, names=names)
        self._studio = studio
        self._theme = AUTO if theme == Watch().theme else theme
        self._sessions = sessions
        self._is_tls = is_tls
        self._logins = Rates(_LOGINS_PER_S, _LOGIN_BURST, clock)
        self._streams: dict[asyncio.Task[object], asyncio.Transport | None] = {}
        """The transport of each live page, by the task that writes to it."""

    async def close(self) -> None:
        """End the live pages, stop listening, and wait a moment for responses in progress."""
        for task in list(self._streams):
            task.cancel()
        await super().close()

    def admits(self, request: web.BaseRequest) -> bool:
        """Return whether a request has the token or a cookie that stands for it, or none is required."""
        if super().admits(request):
            return True
        return self._sessions is not None and self._sessions.admits(request.headers.get("Cookie"))

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Respond to one request, refused ones too, with the headers that browsers need."""
        response = await super()._handle(request)
        if not response.prepared:
            for name, value in _SECURITY.items():
                response.headers.setdefault(name, value)
        return response

    async def unknown(self, request: web.BaseRequest, path: str) -> web.StreamResponse:
        """Respond to a request without the token: with its form, if a page was requested."""
        if path in _PUBLIC:
            return await self.respond(request, path)
        wanted = parse_path(path, request.rel_url.query)
        if wanted is None or request.headers.get("Sec-Fetch-Dest", "document") != "document":
            return text(401, "unauthorized", close=True, headers={"WWW-Authenticate": "Bearer"})
        return self._form(request, wanted.address, is_wrong=False)

    async def respond(self, request: web.BaseRequest, path: str) -> web.StreamResponse:
        """Respond to a request for the route `path`."""
        if path == "/login":
            return await self._login(request)
        if (part := self._part(request, path)) is not None:
            return part
        is_live = path.startswith("/live/")
        found = parse_path(path.removeprefix("/live") if is_live else path, request.rel_url.query)
        if found is None:
            return text(404, "not found: the board is /", close=True)
        return await self._live(request, found) if is_live else await self._page(request, found)

    def _part(self, request: web.BaseRequest, path: str) -> web.Response | None:
        """Return a response with a part of all pages; None if `path` is not that of one."""
        if path == "/style.css":
            asked = request.rel_url.query_string
            theme = asked if asked in self._themes() else self._theme
            return page(style_sheet(theme).encode(), "text/css; charset=utf-8")
        if path == "/board.js":
            return page(static("board.js").encode(), "text/javascript; charset=utf-8")
        return page(ICON.encode(), "image/svg+xml") if path == "/icon.svg" else None

    async def _page(self, request: web.BaseRequest, wanted: Page) -> web.Response:
        """Return the document of a page, drawn at the width that the browser had last."""
        cookies = request.headers.get("Cookie")
        picture = await self._studio.picture(
            wanted,
            shared_width(
                cookie(cookies, "sparktop_columns"),
                on_a_phone="Mobi" in request.headers.get("User-Agent", ""),
            ),
        )
        body = page_html(picture, wanted, theme=self._theme_of(request), themes=self._themes())
        response = page(body.encode(), _HTML)
        response.set_status(200 if picture.is_found else 404)
        return response

    def _themes(self) -> tuple[str, ...]:
        """Return the themes that a viewer can choose, the configured one first."""
        return tuple(dict.fromkeys((self._theme, AUTO, *palettes())))

    def _theme_of(self, request: web.BaseRequest) -> str:
        chosen = unquote(cookie(request.headers.get("Cookie"), "sparktop_theme"))
        return chosen if chosen in self._themes() else self._theme

    async def _live(self, request: web.BaseRequest, wanted: Page) -> web.StreamResponse:
        """Stream a page as server-sent events until the viewer goes, reads too slowly, or the server ends."""
        if self._count() >= MOST_VIEWERS:
            words = f"{MOST_VIEWERS} viewers already: try again later"
            return text(503, words, close=True, headers={"Retry-After": "10"})
        compressed = "gzip" in request.headers.get("Accept-Encoding", "")
        headers = {"Content-Type": "text/event-stream", "Cache-Control": "no-store", "Server": "sparktop"}
        headers["X-Accel-Buffering"] = "no"  # a proxy passes each event on at once
        if compressed:
            headers["Content-Encoding"] = "gzip"
        response = web.StreamResponse(headers={**_SECURITY, **headers})
        if request.method == "HEAD":
            return response
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a request outside of a task")
        self._streams[task] = request.transport
        try:
            await response.prepare(request)
            width = shared_width(request.rel_url.query.get("columns"))
            async with aclosing(self._studio.watch(wanted, width, compressed=compressed)) as events:
                async for event in events:
                    await response.write(event)
        except ConnectionError:
            pass  # the viewer went
        finally:
            self._streams.pop(task, None)
        return response

    def _count(self) -> int:
        """Return the number of live pages; end those whose viewers have gone, before their next picture."""
        gone = [task for task, one in self._streams.items() if one is None or one.is_closing()]
        for task in gone:
            task.cancel()
        return len(self._streams) - len(gone)

    def _form(self, request: web.BaseRequest, address: str, *, is_wrong: bool) -> web.Response:
        """Return the form for the token, which then leads to `address`."""
        body = token_html(theme=self._theme_of(request), next_path=address, is_wrong=is_wrong)
        response = page(body.encode(), _HTML)
        # With no-referrer, browsers send no usable Origin with a form.
        response.headers["Referrer-Policy"] = "same-origin"
        response.set_status(401)
        return response

    async def _login(self, request: web.BaseRequest) -> web.Response:
        """Set a cookie if the form has the token, and lead to the page that was requested."""
        if self._sessions is None or request.method != "POST":
            return _redirect("/")
        if not self._logins.take(request.remote):
            return text(429, "too many tries: wait a moment", close=True, headers={"Retry-After": "5"})
        async with asyncio.timeout(self._limits.request_s):
            body = await request.content.read(_MOST_FORM)
        fields = parse_qs(body.decode("utf-8", "replace"), max_num_fields=4)
        path, _, query = fields.get("next", ["/"])[0].partition("?")
        wanted = parse_path(path, dict(parse_qsl(query[:_MOST_FORM]))) or Page()
        if not self._sessions.is_token(fields.get("token", [""])[0]):
            return self._form(request, wanted.address, is_wrong=True)
        response = _redirect(wanted.address)
        response.set_cookie(
            self._sessions.name,
            self._sessions.new_cookie(),
            max_age=VALID_S,
            httponly=True,
            samesite="Strict",
            secure=self._is_tls,
        )
        return response


def _redirect(path: str) -> web.Response:
    """Return a redirection to a page of this server."""
    response = text(303, "see the page")
    response.headers["Location"] = path
    return response
