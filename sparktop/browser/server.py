"""HTTP server of `sparktop serve`: pages, their live changes, and the form for the token.

GET /…              a page, see `page.py`; ?sort= ?filter= ?list= choose what a board or a wall shows
GET /live/…         the same page as server-sent events: ?columns=N is the width of the window in cells
GET /board.js /style.css /icon.svg
POST /login         the token, for a cookie; nothing else takes a body
GET /healthz        liveness, without a token
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import aclosing
from functools import cache, lru_cache
from http.cookies import CookieError, SimpleCookie
from importlib.resources import files
from pathlib import Path
from urllib.parse import parse_qs, parse_qsl, quote, unquote

from aiohttp import web

from sparktop import __version__
from sparktop.agent.access import Service
from sparktop.agent.gate import Limits, Rates
from sparktop.agent.server import WebServer, page, text
from sparktop.browser.drawing import FILTER, ResultPages
from sparktop.browser.page import MOST_WORDS, WIDTHS, PageKind, WebPage, parse_path, shared_width
from sparktop.browser.picture import MOST_LINK_ROWS, MOST_ROWS, Picture, class_of
from sparktop.browser.renderer import PageRenderer
from sparktop.colors.palette import (
    ANSI_COLORS,
    BOLD,
    COLOR_ROLES,
    EDGES,
    GRADIENT_ROLES,
    LEVELS,
    OPTIONAL_ROLES,
    Palette,
    find_palette,
    palettes,
)
from sparktop.model.targets import Watch
from sparktop.report.html import templates
from sparktop.store import Store
from sparktop.watch.monitor import Monitor

AUTO = "auto"
"""Stands for the usual theme or the light one, as each viewer's browser asks for dark or light colours."""
LIGHT = "spark-light"
"""The theme of printed pages, and of viewers who ask for light colours."""
_ROLES = tuple(role for role in (*COLOR_ROLES, *OPTIONAL_ROLES, *EDGES) if "background" not in role)


@lru_cache(maxsize=16)
def style_sheet(theme: str) -> str:
    """Return the style sheet with the colours of `theme`, which may be `AUTO`. Printed pages are light."""
    palette = find_palette(Watch().theme if theme == AUTO else theme)
    parts = [read_static("board.css"), *_position_rules()]
    if palette is not None:
        parts += _color_rules(palette)
    light = find_palette(LIGHT)
    if light is not None:
        rules = "\n".join(_color_rules(light))
        where = "print, (prefers-color-scheme: light)" if theme == AUTO else "print"
        parts.append(f"@media {where} {{\n{rules}\n}}")
    return "\n".join((*parts, ""))


@cache
def read_static(name: str) -> str:
    """Return the text of a file in the folder `static`."""
    return (files("sparktop.browser") / "static" / name).read_text(encoding="utf-8")


def _position_rules() -> Iterator[str]:
    """Yield a class for each position in cells: the pages' own policy forbids styles in elements."""
    widest = max(WIDTHS)
    yield from (f".w{cells}{{width:{cells}ch}}" for cells in range(1, widest + 1))
    yield from (f".c{cells}{{--columns:{cells}}}" for cells in WIDTHS)
    yield from (f".over.x{cells}{{left:{cells}ch}}" for cells in range(widest))
    yield from (f".y{row}{{top:calc({row}em*var(--line))}}" for row in range(MOST_ROWS))
    yield from (f".h{rows}{{height:calc({rows}em*var(--line))}}" for rows in range(1, MOST_LINK_ROWS + 1))


def _color_rules(palette: Palette) -> Iterator[str]:
    scheme = "dark" if palette.dark else "light"
    yield f":root{{color-scheme:{scheme}}}"
    background, text = (_css_color(palette, role) for role in ("background", "text"))
    yield f"body,dialog{{background:{background};color:{text}}}"
    for role in _ROLES:
        bold = ";font-weight:bold" if role in BOLD else ""
        yield f".{class_of(role)}{{color:{_css_color(palette, role)}{bold}}}"
    for role in GRADIENT_ROLES:
        yield f".{class_of(role)}{{color:{_css_color(palette, role)}}}"
        for level in range(LEVELS):
            yield f".{role}-{level}{{color:{_css_color(palette, f'{role}/{level}')}}}"


def _css_color(palette: Palette, role: str) -> str:
    color = palette.color(role)
    if color.startswith("#"):
        return color
    is_dark = palette.dark if role == "background" else not palette.dark
    default = "#000000" if is_dark else "#ffffff"
    return ANSI_COLORS.get(color, default)


_MENU = (
    (PageKind.BOARD, "board", "esc"),
    (PageKind.BALANCE, "balance", "b"),
    (PageKind.EVENTS, "events", "e"),
    (PageKind.SWEEPS, "sweeps", "h"),
)
"""The pages of the menu, their words and their keys."""
_KEYS = (
    ("esc", "the board; on it, back to its top"),
    ("b", "how evenly a router loads its backends"),
    ("w", "why this balance verdict"),
    ("e", "alerts and events"),
    ("h", "results of sweeps"),
    ("n", "the findings of a sweep"),
    ("/", "filter servers and machines by words; esc drops it"),
    ("o", "next order of servers and machines"),
    ("l", "on a wall: another list of the worst servers"),
    ("P", "the first machine, with its processes"),
    ("j ↓", "next panel"),
    ("k ↑", "previous panel"),
    ("enter", "the chosen panel alone"),
    ("p", "pause, and go on"),
    ("t", "next theme"),
    ("?", "these keys"),
)
ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><rect width="16" height="16" rx="3" '
    'fill="#14181c"/><path d="M2 12h2V8h2v4h2V4h2v8h2V6h2v6" fill="none" stroke="#76b900" '
    'stroke-width="1.6"/></svg>\n'
)


def page_html(picture: Picture, page: WebPage, *, theme: str, themes: tuple[str, ...]) -> str:
    """Return the document of a page; `themes` are those that a viewer can choose, `theme` is the present."""
    return _render(
        "board.html",
        title=picture.title,
        theme=theme,
        themes=themes,
        version=__version__,
        picture=picture,
        page=page,
        menu=[(WebPage(kind).path, word, key, page.kind is kind) for kind, word, key in _MENU],
        keys=_KEYS,
        filter=FILTER,
        most_words=MOST_WORDS,
    )


def token_html(*, theme: str, next_path: str, is_wrong: bool) -> str:
    """Return the form that asks for the token, and then leads to `next_path`."""
    return _render("token.html", title="sparktop: token", theme=theme, next_path=next_path, is_wrong=is_wrong)


def _render(name: str, *, theme: str, **values: object) -> str:
    return templates("sparktop.browser").get_template(name).render(theme=quote(theme), **values)


VALID_S = 30 * 86_400
"""Seconds for which a cookie is valid."""
_MOST_COOKIE = 200
"""Most characters of a cookie's value."""


class Sessions:
    """Cookies that stand for the token: an end time with a signature that only the token's owner can make.

    They hold until their end, or until the server is started with another token; nothing is stored.
    """

    def __init__(self, token: str, port: int, *, wall: Callable[[], float] = time.time) -> None:
        """Sign with `token`; `port` is part of the cookie's name, as ports of one host share cookies."""
        self.name = f"sparktop_{port}"
        self._token = token.encode()
        self._key = hashlib.sha256(b"sparktop serve cookie\0" + self._token).digest()
        self._wall = wall

    def is_token(self, text: str) -> bool:
        """Return whether `text` is the token; the comparison takes the same time for every wrong one."""
        given, expected = (hashlib.sha256(token).digest() for token in (text.strip().encode(), self._token))
        return hmac.compare_digest(given, expected)

    def new_cookie(self) -> str:
        """Return the value of a new cookie."""
        end = f"{int(self._wall()) + VALID_S}"
        return f"{end}.{self._signature(end)}"

    def admits(self, header: str | None) -> bool:
        """Return whether a Cookie header has a valid cookie of this server."""
        end, _, signature = cookie(header, self.name).partition(".")
        if not (end.isascii() and end.isdecimal() and len(end) <= 12):  # noqa: PLR2004 - digits of a time
            return False
        same = hmac.compare_digest(signature.encode(), self._signature(end).encode())
        return same and self._wall() < int(end)

    def _signature(self, end: str) -> str:
        return hmac.new(self._key, end.encode(), hashlib.sha256).hexdigest()


def cookie(header: str | None, name: str) -> str:
    """Return the value of the cookie `name` in a Cookie header; "" if it has none."""
    try:
        morsel = SimpleCookie(header or "").get(name)
    except CookieError:
        return ""
    return "" if morsel is None or len(morsel.value) > _MOST_COOKIE else morsel.value


MOST_VIEWERS = 64
"""Live pages at once; further viewers are refused with a line."""
LIMITS = Limits(connections=256, requests_per_s=50.0, request_burst=400.0)
"""More connections than viewers, since each viewer also fetches the page's parts; of one address as many as
of many, since viewers may share a tunnel."""
_LOGINS_PER_S, _LOGIN_BURST = 0.5, 5.0
"""Tries of an address to log in: a second, and at once."""
_MOST_FORM = 4096
"""Bytes of a form that are read."""
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
    """Serves pages to browsers, drawn by a `PageRenderer`."""

    forms = frozenset({"/login"})
    command = "serve"

    def __init__(
        self,
        renderer: PageRenderer,
        *,
        theme: str,
        names: Collection[str],
        sessions: Sessions | None = None,
        token: str | None = None,
        is_tls: bool = False,
        limits: Limits = LIMITS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Serve the pages of `renderer` in the colours of `theme`, unless a viewer chooses other ones.

        The usual theme follows the browser's choice between dark and light. `names` are those of the server
        itself; requests with another Host header are refused. With `token`, `sessions` has the cookies that
        stand for it. `is_tls` is whether browsers use TLS.
        """
        super().__init__(token=token, limits=limits, clock=clock, names=names)
        self._renderer = renderer
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

    async def respond_to_stranger(self, request: web.BaseRequest, path: str) -> web.StreamResponse:
        """Respond to a request without the token: with its form, if a page was requested."""
        if path in _PUBLIC:
            return await self.respond(request, path)
        page = parse_path(path, request.rel_url.query)
        if page is None or request.headers.get("Sec-Fetch-Dest", "document") != "document":
            return text(401, "unauthorized", close=True, headers={"WWW-Authenticate": "Bearer"})
        return self._token_form(request, page.address, is_wrong=False)

    async def respond(self, request: web.BaseRequest, path: str) -> web.StreamResponse:
        """Respond to a request for the route `path`."""
        if path == "/login":
            return await self._respond_login(request)
        if (part := self._shared_part(request, path)) is not None:
            return part
        is_live = path.startswith("/live/")
        page = parse_path(path.removeprefix("/live") if is_live else path, request.rel_url.query)
        if page is None:
            return text(404, "not found: the board is /", close=True)
        return await self._respond_live(request, page) if is_live else await self._respond_page(request, page)

    def _shared_part(self, request: web.BaseRequest, path: str) -> web.Response | None:
        """Return a response with a part of all pages; None if `path` is not that of one."""
        if path == "/style.css":
            query = request.rel_url.query_string
            theme = query if query in self._themes() else self._theme
            return page(style_sheet(theme).encode(), "text/css; charset=utf-8")
        if path == "/board.js":
            return page(read_static("board.js").encode(), "text/javascript; charset=utf-8")
        return page(ICON.encode(), "image/svg+xml") if path == "/icon.svg" else None

    async def _respond_page(self, request: web.BaseRequest, wanted: WebPage) -> web.Response:
        """Return the document of a page, drawn at the width that the browser had last."""
        cookies = request.headers.get("Cookie")
        picture = await self._renderer.picture(
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

    async def _respond_live(self, request: web.BaseRequest, page: WebPage) -> web.StreamResponse:
        """Stream a page as server-sent events until the viewer goes, reads too slowly, or the server ends."""
        if self._count_live_pages() >= MOST_VIEWERS:
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
            async with aclosing(self._renderer.watch(page, width, compressed=compressed)) as events:
                async for event in events:
                    await response.write(event)
        except ConnectionError:
            pass  # the viewer went
        finally:
            self._streams.pop(task, None)
        return response

    def _count_live_pages(self) -> int:
        """Return the number of live pages; end those whose viewers have gone, before their next picture."""
        closed = [task for task, stream in self._streams.items() if stream is None or stream.is_closing()]
        for task in closed:
            task.cancel()
        return len(self._streams) - len(closed)

    def _token_form(self, request: web.BaseRequest, address: str, *, is_wrong: bool) -> web.Response:
        """Return the form for the token, which then leads to `address`."""
        body = token_html(theme=self._theme_of(request), next_path=address, is_wrong=is_wrong)
        response = page(body.encode(), _HTML)
        # With no-referrer, browsers send no usable Origin with a form.
        response.headers["Referrer-Policy"] = "same-origin"
        response.set_status(401)
        return response

    async def _respond_login(self, request: web.BaseRequest) -> web.Response:
        """Set a cookie if the form has the token, and lead to the page that was requested."""
        if self._sessions is None or request.method != "POST":
            return _redirect("/")
        if not self._logins.take(request.remote):
            return text(429, "too many tries: wait a moment", close=True, headers={"Retry-After": "5"})
        async with asyncio.timeout(self._limits.request_s):
            body = await request.content.read(_MOST_FORM)
        fields = parse_qs(body.decode("utf-8", "replace"), max_num_fields=4)
        path, _, query = fields.get("next", ["/"])[0].partition("?")
        page = parse_path(path, dict(parse_qsl(query[:_MOST_FORM]))) or WebPage()
        if not self._sessions.is_token(fields.get("token", [""])[0]):
            return self._token_form(request, page.address, is_wrong=True)
        response = _redirect(page.address)
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


async def serve(
    service: Service,
    names: Collection[str],
    watch: Watch,
    sweeps: Path,
    *,
    ready: Callable[[], None],
    simulated: bool = False,
) -> int:
    """Watch the targets of `watch` and serve the board until a signal arrives; return the exit code.

    `service` has the bound sockets, token and TLS; `names` are those under which browsers address the server.
    `sweeps` is the folder of stored sweeps. `ready` is called once the server accepts connections.
    `simulated` marks the figures as simulated.
    """
    store = Store(watch, simulated=simulated)
    monitor = Monitor(watch, store)
    renderer = PageRenderer(store.snapshot, ResultPages(sweeps), show_processes=monitor.show_processes)
    port = int(service.listeners[0].getsockname()[1])
    server = BrowserServer(
        renderer,
        theme=watch.theme,
        names=names,
        token=service.token,
        sessions=None if service.token is None else Sessions(service.token, port),
        is_tls=service.tls is not None,
    )
    return await server.run(service, monitor.running(renderer.run()), ready=ready)
