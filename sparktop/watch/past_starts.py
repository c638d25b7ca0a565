"""Keeps the starts of servers in a file, so that the next start has an expected duration.

The file is on the viewer's machine, in sparktop's state folder. The store asks for it only while a server
starts; what it is given goes through its journal, so that a recording is replayed without the file.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path

import msgspec

from sparktop.files import Place, folder_of, write_whole
from sparktop.model.loading import PastStart, PastStarts
from sparktop.model.text import clean
from sparktop.store import Store

LOOK_EVERY_S = 2.0
_REPEAT_S = 60.0
"""Seconds after which earlier starts are given to the store again, for a recording that began meanwhile."""
_MOST = 200
_PER_KEY = 6
"""Most starts that are kept of one model on one machine, the newest."""
_MOST_BYTES = 1 << 20
FILE_NAME = "starts.json"


def starts_file(env: Mapping[str, str]) -> Path:
    """Return the path of the file with earlier starts."""
    return folder_of(env, Place.STATE) / FILE_NAME


def read_starts(path: Path) -> tuple[tuple[PastStart, ...], str | None]:
    """Return (earlier starts, why the file cannot be read); a missing file has no starts."""
    from sparktop.sources.wire.decode import WireError, checked

    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        return (), None
    except OSError as error:
        return (), error.strerror or type(error).__name__
    try:
        found = msgspec.json.decode(content, type=PastStarts)
        return checked(found).starts[-_MOST:], None
    except (ValueError, RecursionError, WireError):
        return (), "its content is damaged"


def add_starts(path: Path, finished: Iterable[PastStart]) -> str | None:
    """Add starts to the file; return why it cannot be written, or None.

    A damaged file is replaced.
    """
    known, _ = read_starts(path)
    kept: list[PastStart] = []
    for one in sorted((*known, *finished), key=lambda one: -one.ended_at):
        if sum(other.key == one.key for other in kept) < _PER_KEY:
            kept.append(one)
    starts = PastStarts(tuple(reversed(kept[:_MOST])))
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(path, msgspec.json.encode(starts))
    except OSError as error:
        return error.strerror or type(error).__name__
    return None


async def keep_starts(
    store: Store, sleep: Callable[[float], Awaitable[None]], env: Mapping[str, str] | None = None
) -> None:
    """Pass earlier starts to the store while a server starts, and keep those that end; run until cancelled.

    A store of simulated servers is left alone.
    """
    path = starts_file(os.environ if env is None else env)
    given: dict[tuple[str, str, str], float] = {}
    passed_s = 0.0
    while not store.simulated:
        wanted = store.starts.wanted
        given = {key: at for key, at in given.items() if key in wanted and passed_s - at < _REPEAT_S}
        if new := wanted - given.keys():
            starts, problem = await asyncio.to_thread(read_starts, path)
            if problem is not None:
                store.note("sparktop", clean(f"earlier starts are not known: {path}: {problem}", 300))
            if mine := tuple(one for one in starts if one.key in new):
                store.learn_starts(mine)
            given.update(dict.fromkeys(new, passed_s))
        if finished := store.starts.take_finished():
            problem = await asyncio.to_thread(add_starts, path, finished)
            if problem is not None:
                store.note("sparktop", clean(f"the start is not kept: {path}: {problem}", 300))
        await sleep(LOOK_EVERY_S)
        passed_s += LOOK_EVERY_S
