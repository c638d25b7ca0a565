"""The pages of `tests/pages/*.toml`: read, served over HTTP with moving counters, watched, and compared.

README.md beside this file describes the files. `python -m tests.pages.shelf` prints a table of all of them.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import socket
import sys
import tomllib
from argparse import Namespace
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import quote

from aiohttp import web
from msgspec.structs import replace

from sparktop.commands.choice import apply_arguments
from sparktop.commands.observation import observe
from sparktop.commands.snapshot import render
from sparktop.model.targets import Watch
from sparktop.watch.ways import Ways
from tests.virtual_loop import VirtualLoop
from tests.web_server import answering

FOLDER = Path(__file__).parent
DEFAULT_SECONDS = 12.0
_TOLERANCE = 0.02
_SETTLE_S = 0.002
_SAMPLE = re.compile(r"(?P<name>[A-Za-z_:][\w:]*)(?P<labels>\{.*\})?[ \t]+(?P<value>.+)")
_MOVING = re.compile(r"(?P<start>[-+.\deE]+?)\+(?P<step>[.\deE-]+)/(?P<every>[.\d]*)s")
_CHANGED = re.compile(r"\s+@(?P<at>[.\d]+)s\s+")
_HISTOGRAM = re.compile(
    r"histogram (?P<bounds>[-.\de ]+): (?P<count>\S+) of (?P<values>[-.\de ]+)", re.IGNORECASE
)
_PLACEHOLDER = re.compile(r"<<(?P<what>[^<>\n]+)>>")


@dataclass(frozen=True)
class Answer:
    """What a route answers from `from_s` seconds after the server's start on."""

    body: str = ""
    status: int = 200
    type: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    from_s: float = 0.0

    def content_type(self) -> str:
        """Return the value of the header Content-Type."""
        if self.type is not None:
            return self.type
        return "application/json" if self.body.lstrip()[:1] in {"{", "["} else "text/plain; version=0.0.4"


@dataclass(frozen=True)
class Page:
    """One file of the shelf."""

    name: str
    title: str
    source: str
    """Where names and meaning were read: repository, path and version."""
    shows: str
    """What sparktop must show of it, in one sentence."""
    routes: Mapping[str, tuple[Answer, ...]]
    expected: Mapping[str, object]
    beside: tuple[str, ...] = ()
    """Names of pages that are served at other ports at the same time."""
    watched: tuple[str, ...] = ()
    """Names of the pages that are given to sparktop as TARGET; by default this one."""
    seconds: float = DEFAULT_SECONDS
    """Seconds for which it is watched, in virtual time."""


_KEYS = {"title", "source", "shows", "routes", "beside", "watched", "seconds", "expect"}
_EXPECTED = {
    *("text", "not_text", "backend", "router", "snapshot", "backends", "routers"),
    *("never_asked", "asked_at_most", "events", "not_events"),
}


def read(path: Path) -> Page:
    """Return the page in a file.

    Raises:
        ValueError: a key is unknown or missing; the message names the file.
    """
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    expected = document.get("expect", {})
    unknown = [*(document.keys() - _KEYS), *(expected.keys() - _EXPECTED)]
    missing = {"title", "source", "shows", "routes", "expect"} - document.keys()
    if unknown or missing:
        raise ValueError(f"{path.name}: unknown keys {sorted(unknown)}, missing keys {sorted(missing)}")
    routes = {
        route: tuple(Answer(**one) for one in (found if isinstance(found, list) else [found]))
        for route, found in document["routes"].items()
    }
    name = path.stem
    return Page(
        name,
        document["title"],
        document["source"],
        document["shows"],
        routes,
        expected,
        tuple(document.get("beside", ())),
        tuple(document.get("watched", (name,))),
        float(document.get("seconds", DEFAULT_SECONDS)),
    )


def names() -> list[str]:
    """Return the names of all pages, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def value_at(text: str, seconds: float) -> float | str:
    """Return the value of an expression such as "3", "100+7.5/s", "0+60/5s" or "0 @10s 1" at a time.

    `100+7.5/s` rises all the time, `0+60/5s` by 60 every five seconds. Text that is no number is returned
    as it is.
    """
    parts = _CHANGED.split(text.strip())
    current = parts[0]
    for at, later in zip(parts[1::2], parts[2::2], strict=True):
        if seconds >= float(at):
            current = later
    moving = _MOVING.fullmatch(current)
    if moving is None:
        return current
    start, step = float(moving["start"]), float(moving["step"])
    if not moving["every"]:
        return start + step * seconds
    return start + step * math.floor(seconds / float(moving["every"]) + 1e-9)


def _written(value: float | str) -> str:
    return value if isinstance(value, str) else repr(value)


def rendered(body: str, seconds: float, urls: Mapping[str, str]) -> str:
    """Return a body as it is served `seconds` after the start; `urls` are those of the pages by name."""

    def placed(found: re.Match[str]) -> str:
        kind, _, name = found["what"].partition(" ")
        if kind == "url":
            return urls[name]
        if kind == "port":
            return urls[name].rpartition(":")[2]
        value = value_at(found["what"], seconds)
        return _written(int(value) if isinstance(value, float) and value.is_integer() else value)

    body = _PLACEHOLDER.sub(placed, body)
    if body.lstrip()[:1] in {"{", "[", "<"}:
        return body
    return "".join(f"{one}\n" for line in body.splitlines() for one in _lines(line, seconds))


def _lines(line: str, seconds: float) -> Iterator[str]:
    found = None if line.startswith("#") else _SAMPLE.fullmatch(line)
    if found is None:
        yield line
        return
    name, labels, text = found["name"], found["labels"] or "", found["value"]
    histogram = _HISTOGRAM.fullmatch(text)
    if histogram is None:
        yield f"{name}{labels} {_written(value_at(text, seconds))}"
        return
    count = math.floor(float(value_at(histogram["count"], seconds)) + 1e-9)
    values = [float(one) for one in histogram["values"].split()]
    counts = [(count + len(values) - 1 - index) // len(values) for index in range(len(values))]
    inner = labels[1:-1].rstrip(",")
    before = f"{inner}," if inner else ""
    for bound in (*histogram["bounds"].split(), "+Inf"):
        below = sum(n for n, value in zip(counts, values, strict=True) if value <= float(bound))
        yield f'{name}_bucket{{{before}le="{bound}"}} {float(below)}'
    yield f"{name}_sum{labels} {sum(n * value for n, value in zip(counts, values, strict=True))!r}"
    yield f"{name}_count{labels} {float(count)}"


class Served:
    """A page that is being served."""

    def __init__(self, page: Page, urls: Mapping[str, str]) -> None:
        """Serve `page`; `urls` are those of the pages beside it, by name."""
        self.page, self._urls = page, urls
        self.asked: list[str] = []
        """Path and query of each request."""
        self._began = asyncio.get_running_loop().time()

    async def answer(self, request: web.Request) -> web.Response:
        """Answer by the routes of the page; 404 for others, 405 for anything but GET."""
        self.asked.append(request.path_qs)
        seconds = asyncio.get_running_loop().time() - self._began
        routes = self.page.routes
        found = routes.get(request.path_qs) or routes.get(request.path) or ()
        current = [one for one in found if one.from_s <= seconds]
        if request.method != "GET" or not current:
            status = 404 if request.method == "GET" else 405
            return web.json_response({"detail": "Not Found"}, status=status)
        one = current[-1]
        body = rendered(one.body, seconds, self._urls).encode()
        headers = {**one.headers, "Content-Type": one.content_type()}
        return web.Response(status=one.status, body=body, headers=headers)


@asynccontextmanager
async def serving(pages: Iterable[Page]) -> AsyncIterator[tuple[dict[str, Served], dict[str, str]]]:
    """Serve pages on free ports of 127.0.0.1 until the block ends; yield ({name: Served}, {name: URL})."""
    urls: dict[str, str] = {}
    served = {page.name: Served(page, urls) for page in pages}
    async with AsyncExitStack() as stack:
        for name, one in served.items():
            urls[name] = await stack.enter_async_context(answering("/{path:.*}", one.answer))
        yield served, urls


@dataclass(frozen=True)
class Watched:
    """What sparktop showed of a page."""

    snapshot: Mapping[str, Any]
    text: str
    asked: tuple[str, ...]
    """Path and query of each request to the page's own server."""
    url: str


async def look_up(host: str, port: int | None) -> list[tuple[Any, ...]]:
    """Return the addresses of a host, by a thread of the loop: for these alone virtual time stands still."""
    return await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)


def watch(name: str) -> Watched:
    """Serve a page and those beside it, and watch it as `sparktop snapshot HOST:PORT` does.

    All of it runs in one loop in virtual time: seconds cost only their computing.
    """

    async def run() -> Watched:
        page = read(FOLDER / f"{name}.toml")
        pages = [page, *(read(FOLDER / f"{one}.toml") for one in page.beside)]
        async with serving(pages) as (served, urls):
            targets = [urls[one].removeprefix("http://") for one in page.watched]
            loop = asyncio.get_running_loop()
            watched = apply_arguments(Watch(), Namespace(targets=targets), {}, has_file=False)
            watched = replace(watched, nodes=())  # this machine is no part of the page
            watched = replace(watched, backends=tuple(replace(one, nodes=()) for one in watched.backends))
            snapshot, _, _ = await observe(watched, page.seconds, ways=Ways(clock=loop.time))
            document = json.loads(render(snapshot, "json"))
            return Watched(
                document, render(snapshot, "txt"), tuple(served[name].asked), urls[page.watched[0]]
            )

    with (
        patch("sparktop.net.client.look_up", look_up),
        asyncio.Runner(loop_factory=lambda: VirtualLoop(_SETTLE_S)) as runner,
    ):
        return runner.run(run())


def differences(expected: object, shown: object, where: str = "") -> list[str]:
    """Return where `shown` differs from `expected`: of a table, only the keys that `expected` names count.

    Numbers may differ by 2 %. A text that begins with "~" must be contained; "?" stands for null.
    """
    if isinstance(expected, Mapping):
        found: list[str] = []
        for key, value in expected.items():
            there = f"{where}.{key}" if where else key
            if isinstance(shown, list) and key.isdecimal() and int(key) < len(shown):
                found += differences(value, shown[int(key)], there)
            elif isinstance(shown, Mapping) and key in shown:
                found += differences(value, shown[key], there)
            elif value != "?":
                found.append(f"{there}: not there; expected {value!r}")
        return found
    if _equal(expected, shown):
        return []
    return [f"{where}: {shown!r}, expected {expected!r}"]


def _equal(expected: object, shown: object) -> bool:
    if isinstance(expected, str):
        if expected == "?":
            return shown is None
        if expected.startswith("~"):
            return isinstance(shown, str) and expected[1:] in shown
        return shown == expected
    if isinstance(expected, bool) or isinstance(shown, bool) or shown is None:
        return shown is expected
    if isinstance(expected, int | float) and isinstance(shown, int | float):
        return math.isclose(shown, expected, rel_tol=_TOLERANCE, abs_tol=1e-9)
    return shown == expected


def faults(page: Page, watched: Watched) -> list[str]:
    """Return how what was shown differs from what the page's file expects, a line for each difference."""
    expected: Mapping[str, Any] = page.expected
    snapshot = watched.snapshot
    found: list[str] = []
    for kind in ("backend", "router"):
        if kind in expected:
            mine = [one for one in snapshot[f"{kind}s"] if one["url"].rstrip("/") == watched.url]
            if mine:
                found += differences(expected[kind], mine[0], kind)
            else:
                shown = [one["url"] for one in snapshot["backends"]] + [
                    f"router {one['url']}" for one in snapshot["routers"]
                ]
                found.append(f"{kind}: none at {watched.url}; shown: {shown}")
    for kind in ("backends", "routers"):
        if kind in expected and len(snapshot[kind]) != expected[kind]:
            found.append(f"{len(snapshot[kind])} {kind}, expected {expected[kind]}")
    found += differences(expected.get("snapshot", {}), snapshot, "")
    found += [f"text lacks {one!r}" for one in expected.get("text", ()) if one not in watched.text]
    found += [f"text has {one!r}" for one in expected.get("not_text", ()) if one in watched.text]
    events = " | ".join(one["message"] for one in snapshot["events"])
    found += [f"events lack {one!r}: {events}" for one in expected.get("events", ()) if one not in events]
    found += [f"events have {one!r}: {events}" for one in expected.get("not_events", ()) if one in events]
    paths = [path.partition("?")[0] for path in watched.asked]
    found += [f"{one} was asked" for one in expected.get("never_asked", ()) if one in paths]
    found += [
        f"{one} was asked {paths.count(one)} times, at most {most} expected"
        for one, most in expected.get("asked_at_most", {}).items()
        if paths.count(one) > most
    ]
    return found


def table() -> str:
    """Return a Markdown table of all pages: page, source, what must be shown."""
    rows = [read(FOLDER / f"{name}.toml") for name in names()]
    lines = [f"| [{one.title}]({quote(one.name)}.toml) | {one.source} | {one.shows} |" for one in rows]
    return "\n".join(["| page | source | what must be shown |", "|---|---|---|", *lines, ""])


if __name__ == "__main__":
    sys.stdout.write(table())
