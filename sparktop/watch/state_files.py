"""Files in the state folder: the load that sweeps announce, and earlier starts of servers."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from sparktop.analysis.placement import address_of
from sparktop.files import Place, find_folder, folder_of, read_own, write_whole
from sparktop.hardware.kernel_file import read_small
from sparktop.model.snapshot import PastStart, PastStarts
from sparktop.model.targets import BackendTarget, RouterTarget
from sparktop.model.text import clean, reason_of
from sparktop.store import Store

# A sweep writes a file with its process and the addresses it loads into sparktop's state folder, and
# removes it at its end. A monitor beside it then knows that an uneven load is the sweep's choice and no
# fault of a router.


LOOK_EVERY_S = 2.0
_FOLDER = "load"
_LONGEST = 65_536
_MOST_FILES, _MOST_TARGETS = 64, 256


@contextmanager
def announced_load(urls: Iterable[str], env: Mapping[str, str] = os.environ) -> Iterator[None]:
    """Announce in a `with` block that this process loads the servers and routers at `urls`.

    Nothing is announced where the state folder cannot be written: the load matters more.
    """
    folder = find_folder(env, Place.STATE)
    path = None if folder is None else folder / _FOLDER / f"{os.getpid()}.json"
    pid = os.getpid()
    content = {"pid": pid, "started": _started(pid), "host": socket.gethostname(), "targets": sorted({*urls})}
    if path is not None:
        with suppress(OSError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(path, json.dumps(content))
    try:
        yield
    finally:
        if path is not None:
            with suppress(OSError):
                path.unlink(missing_ok=True)


def announced_loads(env: Mapping[str, str] = os.environ) -> dict[int, tuple[str, ...]]:
    """Return the addresses that other living processes of this user load from this machine, by process ID.

    A file of another user, a link, a file that others may write, and one whose process has ended are ignored.
    """
    folder = find_folder(env, Place.STATE)
    if folder is None:
        return {}
    try:
        paths = sorted((folder / _FOLDER).glob("*.json"))[:_MOST_FILES]
    except OSError:
        return {}
    return dict(load for load in map(_read, paths) if load is not None)


def _read(path: Path) -> tuple[int, tuple[str, ...]] | None:
    try:
        content = json.loads(read_own(path, _LONGEST))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(content, dict):
        return None
    pid, targets = content.get("pid"), content.get("targets")
    if type(pid) is not int or pid <= 0 or pid == os.getpid() or not isinstance(targets, list):
        return None
    if content.get("host") != socket.gethostname() or not _lives(pid, content.get("started")):
        return None
    return pid, tuple(one for one in targets[:_MOST_TARGETS] if isinstance(one, str))


def _lives(pid: int, started: object) -> bool:
    """Return whether the process that announced itself still runs, and no other one has its number."""
    now = _started(pid)
    if now is not None:
        return now == started
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return started is None


def _started(pid: int) -> str | None:
    """Return when a process started, as the kernel counts it; None where it is not known."""
    fields = (read_small(f"/proc/{pid}/stat") or b"").rpartition(b")")[2].split()
    return fields[19].decode("ascii", "replace") if len(fields) > 19 else None  # noqa: PLR2004 - field 22 of proc(5)


async def follow_announced(store: Store, sleep: Callable[[float], Awaitable[object]]) -> None:
    """Report every `LOOK_EVERY_S` seconds to the store which of its servers other processes load."""
    known: dict[int, frozenset[str]] = {}
    while True:
        now = {pid: _names(store, targets) for pid, targets in announced_loads().items()}
        for pid in known.keys() - now.keys():
            store.end_own_load(known.pop(pid))
        for pid, names in now.items():
            if new := names - known.get(pid, frozenset()):
                known[pid] = names | new
                store.begin_own_load(new)
                store.note("sweep", f"load by a sweep of process {pid}: {', '.join(sorted(new))}")
        await sleep(LOOK_EVERY_S)


def _names(store: Store, urls: Iterable[str]) -> frozenset[str]:
    """Return the names under which the servers and routers at `urls` are watched."""
    wanted = {address for url in urls if (address := address_of(url)) is not None}
    return frozenset(
        target.name
        for target in store.targets()
        if isinstance(target, BackendTarget | RouterTarget) and address_of(target.url) in wanted
    )


# Keeps the starts of servers in a file, so that the next start has an expected duration.
#
# The file is on the viewer's machine, in sparktop's state folder. The store asks for it only while a server
# starts; what it is given goes through its journal, so that a recording is replayed without the file.


STARTS_EVERY_S = 2.0
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
    from sparktop.sources.decode import WireError, checked

    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        return (), None
    except OSError as error:
        return (), reason_of(error)
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
        return reason_of(error)
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
        await sleep(STARTS_EVERY_S)
        passed_s += STARTS_EVERY_S
