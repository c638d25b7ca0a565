"""Reads and writes files for the store: load of sweeps, earlier starts and setups, published rates."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from sparktop.analysis.placement import address_of
from sparktop.files import BaseFolder, find_folder, folder_of, read_own, write_whole
from sparktop.hardware.kernel_file import read_small
from sparktop.model.snapshot import Kept, PastStart
from sparktop.model.targets import BackendTarget, RouterTarget
from sparktop.model.text import clean, reason_of
from sparktop.model.yardsticks import PastSetup, PublishedRates, Reference, TableTarget
from sparktop.store import Store

# A sweep writes a file with its process and the addresses it loads into sparktop's state folder, and
# removes it at its end. A monitor beside it then knows that an uneven load is the sweep's choice and no
# fault of a router.


LOOK_EVERY_S = 2.0
"""Seconds between two readings of the announcements."""
_FOLDER = "load"
_LONGEST = 65_536
"""Most bytes of an announcement."""
_MOST_FILES, _MOST_TARGETS = 64, 256
"""Most announcements, and addresses of one."""


class _Announcement(Struct, frozen=True):
    """What a process loads."""

    pid: int
    started: str | None
    """When it started, as the kernel counts it."""
    host: str
    """The name of its machine."""
    targets: tuple[str, ...]
    """Addresses."""
    result: str | None = None
    """The file that gets the result; None if it is not kept, or was not announced."""


@contextmanager
def announced_load(
    urls: Iterable[str], result: Path | None, env: Mapping[str, str] = os.environ
) -> Iterator[None]:
    """Announce in a `with` block that this process loads the servers and routers at `urls`.

    `result` is the file that gets the result; None if it is not kept.
    Nothing is announced where the state folder cannot be written: the load matters more.
    """
    folder, pid = find_folder(env, BaseFolder.STATE), os.getpid()
    if folder is None:
        yield
        return
    path = folder / _FOLDER / f"{pid}.json"
    result_path = None if result is None else str(result.resolve())
    load = _Announcement(pid, _start_time(pid), socket.gethostname(), tuple(sorted({*urls})), result_path)
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(path, msgspec.json.encode(load))
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def announced_loads(env: Mapping[str, str] = os.environ) -> dict[int, tuple[str, ...]]:
    """Return the addresses that other living processes of this user load from this machine, by process ID."""
    loads = (load for load in _announcements(env) if load.pid != os.getpid())
    return {load.pid: load.targets[:_MOST_TARGETS] for load in loads}


def results_under_way(env: Mapping[str, str] = os.environ) -> frozenset[Path]:
    """Return the result files of sweeps that run now: of this and of other processes of this user here."""
    return frozenset(Path(load.result) for load in _announcements(env) if load.result is not None)


def _announcements(env: Mapping[str, str]) -> list[_Announcement]:
    """Return what living processes on this machine announced.

    A file of another user, a link, a file that others may write, and one whose process has ended are ignored.
    """
    folder = find_folder(env, BaseFolder.STATE)
    if folder is None:
        return []
    loads: list[_Announcement] = []
    with suppress(OSError):
        for path in sorted(folder.joinpath(_FOLDER).glob("*.json"))[:_MOST_FILES]:
            with suppress(OSError, ValueError, RecursionError):
                loads.append(msgspec.json.decode(read_own(path, _LONGEST), type=_Announcement))
    own_loads = (load for load in loads if load.pid > 0 and load.host == socket.gethostname())
    return [load for load in own_loads if _is_alive(load.pid, load.started)]


def _is_alive(pid: int, started: str | None) -> bool:
    """Return whether the process that announced itself still runs, and no other one has its number."""
    start_time = _start_time(pid)
    if start_time is not None:
        return start_time == started
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return started is None


def _start_time(pid: int) -> str | None:
    """Return when a process started, as the kernel counts it; None where it is not known."""
    fields = (read_small(f"/proc/{pid}/stat") or b"").rpartition(b")")[2].split()
    return fields[19].decode("ascii", "replace") if len(fields) > 19 else None  # noqa: PLR2004 - field 22 of proc(5)


async def follow_announced(store: Store, sleep: Callable[[float], Awaitable[object]]) -> None:
    """Report every `LOOK_EVERY_S` seconds to the store which of its servers other processes load."""
    begun: dict[int, frozenset[str]] = {}  # by process: names for which `begin_own_load` was called
    loads_told: dict[int, tuple[str, ...]] = {}  # by process: the addresses of the load that an event tells
    while True:
        watched = [
            (address_of(target.url), target.name)
            for target in store.targets()
            if isinstance(target, BackendTarget | RouterTarget)
        ]
        loads = announced_loads()
        names_by_pid: dict[int, frozenset[str]] = {}
        for pid, urls in loads.items():
            loaded = set(map(address_of, urls)) - {None}
            names_by_pid[pid] = frozenset(name for address, name in watched if address in loaded)
        for pid in begun.keys() - names_by_pid.keys():
            names, _ = begun.pop(pid), loads_told.pop(pid)
            store.end_own_load(names.difference(*begun.values()))  # the others still load theirs
        for pid, names in names_by_pid.items():
            names_before = begun.get(pid, frozenset())
            if new_names := names - names_before:
                begun[pid] = names_before | new_names
                store.begin_own_load(new_names)
                if loads_told.get(pid) != loads[pid]:  # else more of what it loads is watched now
                    store.note("sweep", f"load on {', '.join(sorted(new_names))} by a sweep of process {pid}")
                loads_told[pid] = loads[pid]
        await sleep(LOOK_EVERY_S)


# Keeps the starts of servers in a file, so that the next start has an expected duration.
#
# The file is on the viewer's machine, in sparktop's state folder. The store asks for it only while a server
# starts; what it is given goes through its journal, so that a recording is replayed without the file.


STARTS_EVERY_S = 2.0
"""Seconds between two looks at what the store wants to know."""
_REPEAT_S = 60.0
"""Seconds after which earlier starts are given to the store again, for a recording that began meanwhile."""
_MOST = 200
"""Most starts that are kept in all."""
_PER_KEY = 6
"""Most starts that are kept of one model on one machine, the newest."""
_MOST_BYTES = 1 << 20
"""Most bytes of a file."""
FILE_NAME = "starts.json"


def starts_file(env: Mapping[str, str]) -> Path:
    """Return the path of the file with earlier starts."""
    return folder_of(env, BaseFolder.STATE) / FILE_NAME


def read_starts(path: Path) -> tuple[tuple[PastStart, ...], str | None]:
    """Return (earlier starts, why the file cannot be read); a missing file has no starts."""
    file_content, problem = read_kept(path)
    return file_content.starts[-_MOST:], problem


def read_kept(path: Path) -> tuple[Kept, str | None]:
    """Return (what a file of the state folder holds, why it cannot be read); a missing file holds nothing."""
    from sparktop.sources.decode import WireError, clean_record

    try:
        content = read_own(path, _MOST_BYTES)
    except FileNotFoundError:
        return Kept(), None
    except OSError as error:
        return Kept(), reason_of(error)
    try:
        return clean_record(msgspec.json.decode(content, type=Kept)), None
    except (ValueError, RecursionError, WireError):
        return Kept(), "its content is damaged"


def add_starts(path: Path, finished: Iterable[PastStart]) -> str | None:
    """Add starts to the file; return why it cannot be written, or None.

    A damaged file is replaced.
    """
    earlier, _ = read_starts(path)
    kept_starts: list[PastStart] = []
    for start in sorted((*earlier, *finished), key=lambda start: -start.ended_at):
        if sum(past.key == start.key for past in kept_starts) < _PER_KEY:
            kept_starts.append(start)
    return _write_kept(path, Kept(tuple(reversed(kept_starts[:_MOST]))))


def _write_kept(path: Path, kept: Kept) -> str | None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(path, msgspec.json.encode(kept))
    except OSError as error:
        return reason_of(error)
    return None


def _note_problem(store: Store, what: str, path: Path, problem: str | None) -> None:
    """Note in the event log what a `problem` with a file causes; nothing without one."""
    if problem is not None:
        store.note("sparktop", clean(f"{what}: {path}: {problem}", 300))


async def keep_starts(
    store: Store, sleep: Callable[[float], Awaitable[None]], env: Mapping[str, str] | None = None
) -> None:
    """Pass earlier starts to the store while a server starts, and keep those that end; run until cancelled.

    A store of simulated servers is left alone.
    """
    path = starts_file(os.environ if env is None else env)
    given_at: dict[tuple[str, str, str], float] = {}
    passed_s = 0.0
    while not store.simulated:
        keys = store.starts.wanted
        given_at = {key: at for key, at in given_at.items() if key in keys and passed_s - at < _REPEAT_S}
        if new_keys := keys - given_at.keys():
            starts, problem = await asyncio.to_thread(read_starts, path)
            _note_problem(store, "earlier starts are not known", path, problem)
            if mine := tuple(start for start in starts if start.key in new_keys):
                store.learn(Kept(mine))
            given_at.update(dict.fromkeys(new_keys, passed_s))
        if finished := store.starts.take_finished():
            problem = await asyncio.to_thread(add_starts, path, finished)
            _note_problem(store, "the start is not kept", path, problem)
        await sleep(STARTS_EVERY_S)
        passed_s += STARTS_EVERY_S


# Keeps the best steps of servers in each of their setups in another file, and reads published rates: those
# that sparktop ships and those in the folder `recipes` beside the user's configuration file.


SETUPS_FILE, RECIPES = "bests.json", "recipes"
SHIPPED = Path(__file__).resolve().parent.parent / "references"
_SAVE_EVERY_S, _GIVE_EVERY_S = 60.0, 300.0
"""Seconds between two writings of the setups, and after which they are read again."""
_MOST_KEPT = 120
"""Setups of all servers that are kept, those that served last."""
_MOST_RECIPES, _RECIPE_BYTES = 64, 1 << 18
"""Most tables in the folder, and bytes of one."""
_HIGHEST = 1e6
"""Counts and rates above this are damaged."""
_RATES = ("decode_tps", "output_tps")
"""Rates of a table that are compared, by preference."""


def read_recipe(content: bytes) -> list[PublishedRates]:
    """Return the decode rates of a published table by target; those without a machine or a rate are left out.

    Raises:
        ValueError: it is no such table.
    """
    recipe = msgspec.json.decode(content, type=Reference)
    result = []
    for target in recipe.targets:
        machine = target.machine or recipe.machine
        if not machine:
            continue
        for lengths, levels in _levels_by_lengths(target, recipe).items():
            tokens = " → ".join("?" if count is None else f"{count:,}" for count in lengths)
            stated = f"{tokens} tokens" if any(lengths) else "lengths not stated"
            source = f"{recipe.name}: {target.name}, {stated}"
            result.append(
                PublishedRates(
                    clean(source, 120),
                    clean(recipe.model, 200),
                    recipe.engine,
                    clean(machine, 60),
                    target.machines,
                    max(1, len(target.engines)),
                    tuple(levels),
                    *lengths,
                )
            )
    return result


def _levels_by_lengths(
    target: TableTarget, recipe: Reference
) -> dict[tuple[int | None, int | None], list[tuple[int, float]]]:
    """Return (requests at once, rate) of a target's levels by (prompt tokens, generated tokens).

    The rate is the first of `_RATES` that any level of the target has; levels without it are left out.
    """
    name = next((rate for rate in _RATES if any(rate in level.figures for level in target.levels)), "")
    by_lengths: dict[tuple[int | None, int | None], list[tuple[int, float]]] = {}
    for level in target.levels:
        count, rate = level.concurrency, level.figures.get(name)
        if 0 < count < _HIGHEST and isinstance(rate, int | float) and 0 < rate < _HIGHEST:
            lengths = level.pp or recipe.pp, level.tg or recipe.tg
            by_lengths.setdefault(lengths, []).append((count, float(rate)))
    return by_lengths


def read_recipes(env: Mapping[str, str]) -> tuple[tuple[PublishedRates, ...], str | None]:
    """Return (published rates of the shipped tables and the user's own, which of the latter cannot be read).

    Of the user's, a file that others can write is not read.
    """
    folder, result, problems = find_folder(env, BaseFolder.CONFIG), list[PublishedRates](), list[str]()
    for path in sorted(SHIPPED.glob("*.json")):
        result += read_recipe(path.read_bytes())
    try:
        paths = [] if folder is None else sorted((folder / RECIPES).glob("*.json"))[:_MOST_RECIPES]
    except OSError:
        paths = []
    for path in paths:
        try:
            result += read_recipe(read_own(path, _RECIPE_BYTES))
        except OSError as error:
            problems.append(f"{path}: {reason_of(error)}")
        except (ValueError, RecursionError) as error:
            problems.append(f"{path}: no published table: {error}")
    return tuple(result), problems[0] if problems else None


def add_setups(path: Path, changed: Iterable[PastSetup]) -> str | None:
    """Put the setups of servers in place of the file's of the same servers; return why not, or None."""
    earlier, changed_setups = read_kept(path)[0].setups, tuple(changed)
    keys = {setup.key for setup in changed_setups}
    every = (*changed_setups, *(setup for setup in earlier if setup.key not in keys))
    kept_setups = sorted(every, key=lambda setup: setup.at)[-_MOST_KEPT:]
    return _write_kept(path, Kept(setups=tuple(kept_setups)))


async def keep_setups(
    store: Store, sleep: Callable[[float], Awaitable[None]], env: Mapping[str, str] | None = None
) -> None:
    """Pass published rates and earlier setups to the store, and keep new bests; run until cancelled.

    Of a store of simulated servers nothing is kept.
    """
    env = os.environ if env is None else env
    path = folder_of(env, BaseFolder.STATE) / SETUPS_FILE
    given_keys: set[tuple[str, str, str]] = set()
    passed_s = saved_s = given_s = 0.0
    while True:
        if passed_s - given_s >= _GIVE_EVERY_S:  # for a recording that began meanwhile, and new recipes
            given_s, given_keys = passed_s, set()
        if new_keys := store.yardsticks.wanted - given_keys:
            given_keys |= new_keys
            await _give_setups(store, path, env, new_keys)
        if passed_s - saved_s >= _SAVE_EVERY_S:
            saved_s, changed = passed_s, store.yardsticks.take_changed()
            if changed and not store.simulated:
                problem = await asyncio.to_thread(add_setups, path, changed)
                _note_problem(store, "best steps are not kept", path, problem)
        await sleep(STARTS_EVERY_S)
        passed_s += STARTS_EVERY_S


async def _give_setups(
    store: Store, path: Path, env: Mapping[str, str], keys: Collection[tuple[str, str, str]]
) -> None:
    """Pass to the store published rates, and the setups of servers with these keys in the file `path`."""
    kept, problem = (Kept(), None) if store.simulated else await asyncio.to_thread(read_kept, path)
    published, wrong_table = await asyncio.to_thread(read_recipes, env)
    setups = tuple(setup for setup in kept.setups if setup.key in keys)
    store.learn(Kept(setups=setups, published=published))
    _note_problem(store, "earlier setups are not known", path, problem)
    if wrong_table:
        store.note("sparktop", clean(wrong_table, 300))
