"""Asks the RAS thread of NCCL on this machine about the ranks of a job, and reads its answers.

A query can harm a job: NCCL 2.26.2 to 2.26.5 crash while a communicator starts, versions below 2.29.2 read
wrong memory while a rank is missing. So versions below 2.28.7, which write no JSON either, are never asked,
and nothing is ever polled.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from sparktop.hardware.kernel_file import entries, open_regular, read_bytes
from sparktop.model.failure import Failure, FailureError, FailureKind
from sparktop.model.ranks import (
    Communicator,
    MissingRank,
    Rank,
    RanksAnswer,
    RanksReply,
    RankStatus,
)
from sparktop.model.text import clean, host_port, reason_of
from sparktop.stopping import timeout

MOST_COMMUNICATORS, MOST_RANKS = 1024, 4096
"""Most communicators of an answer, and most ranks of each, that are kept."""


class RanksError(ValueError):
    """An answer that is not one of NCCL's RAS thread; the message is one clean line."""


def plain_hash(text: str) -> str:
    """Return a hash as 16 digits in lower case without 0x, as NCCL's text has it; "" for no hash."""
    digits = text.strip().lower().removeprefix("0x")
    return digits.rjust(16, "0") if re.fullmatch(r"[0-9a-f]{1,16}", digits) else ""


def host_or_none(host: str | None) -> str | None:
    """Return an address without brackets; None where NCCL writes that it does not know the host."""
    return None if host in {None, "", "unknown"} else str(host).strip("[]")


def pid_or_none(pid: int | None) -> int | None:
    """Return a process id; None where NCCL writes that it does not know it (-1)."""
    return pid if pid is not None and pid >= 0 else None


_MOST_COUNTS = 16
"""Operations that are counted apart for a rank."""
_IN_PROGRESS = 7
"""NCCL's code for an operation that has not ended."""
_MISSING_COMMA = re.compile(r'("nvml_dev":\s*-?\d+)(\s*"status")')
"""Finds where NCCL 2.28.7 and 2.28.9 leave out a comma: after `nvml_dev` of missing ranks."""
_LARGEST = 2**63
"""Numbers from this on are no counts of NCCL."""


def parse_json(text: str) -> RanksAnswer:
    """Parse the JSON document in `text` (NCCL 2.28.7 and newer), which may have other lines before it.

    Raises:
        RanksError: there is no complete document of the known form.
    """
    _, brace, after = text.partition("{")
    report = _load_json(brace + after)
    if not isinstance(report, dict) or not isinstance(report.get("communicators"), list):
        raise RanksError("the answer is not NCCL's: it lists no communicators")
    ras = _object_or_empty(report.get("ras"))
    took_s = ras.get("collection_time_sec")
    return RanksAnswer(
        nccl=_text_or_none(report.get("nccl_version")),
        communicators=tuple(map(_read_communicator, report["communicators"][:MOST_COMMUNICATORS])),
        timeouts=_int_or_none(ras.get("timeouts_count")) or 0,
        took_s=float(took_s) if isinstance(took_s, int | float) and 0 <= took_s < _LARGEST else None,
    )


def _load_json(document: str) -> object:
    """Return the JSON value at the start of `document`, with NCCL's missing comma inserted where needed.

    Raises:
        RanksError: there is none.
    """
    for text in (document, _MISSING_COMMA.sub(r"\1,\2", document)):
        try:
            return json.JSONDecoder().raw_decode(text)[0]
        except (ValueError, RecursionError):
            continue
    raise RanksError("half an answer of NCCL, or none: its JSON cannot be parsed")


def _read_communicator(fields: object) -> Communicator:
    """Return a communicator of the JSON.

    What NCCL lists as missing ranks are of two kinds: missing ones, which give no answer at all, and absent
    ones, which answer but are not in the group (yet, or any more).
    """
    if not isinstance(fields, dict):
        raise RanksError("the answer is not NCCL's: a communicator without fields")
    ranks = [_read_rank(entry) for entry in _objects_in(fields.get("ranks"))]
    missing: list[MissingRank] = []
    for entry in _objects_in(fields.get("missing_ranks")):
        status = _object_or_empty(entry.get("status"))
        if status.get("unresponsive") is False and status.get("considered_dead") is not True:
            ranks.append(replace(_read_rank(entry), status=RankStatus.ABSENT))
        else:
            missing.append(_read_missing_rank(entry))
    return Communicator(
        plain_hash(_text_or_none(fields.get("hash")) or ""),
        _text_or_none(fields.get("secondary_hash")),
        _int_or_none(fields.get("size")) or len(ranks) + len(missing),
        tuple(ranks),
        tuple(missing),
    )


def _objects_in(value: object) -> list[Mapping[str, object]]:
    return [item for item in value[:MOST_RANKS] if isinstance(item, dict)] if isinstance(value, list) else []


def _object_or_empty(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _read_rank(entry: Mapping[str, object]) -> Rank:
    status = _object_or_empty(entry.get("status"))
    error = _int_or_none(status.get("async_error"))
    return Rank(
        _int_or_none(entry.get("rank")),
        host_or_none(_text_or_none(entry.get("host"))),
        pid_or_none(_int_or_none(entry.get("pid"))),
        _int_or_none(entry.get("cuda_dev")),
        _read_status(status),
        error if error not in {None, 0, _IN_PROGRESS} else None,
        _read_counts(entry.get("collective_counts")),
    )


def _read_missing_rank(entry: Mapping[str, object]) -> MissingRank:
    rank = _int_or_none(entry.get("rank"))
    if rank is None:
        raise RanksError("the answer is not NCCL's: a missing rank without its number")
    dead = _object_or_empty(entry.get("status")).get("considered_dead") is True
    host, pid = host_or_none(_text_or_none(entry.get("host"))), pid_or_none(_int_or_none(entry.get("pid")))
    return MissingRank(rank, host, pid, _int_or_none(entry.get("cuda_dev")), dead)


def _read_status(status: Mapping[str, object]) -> RankStatus:
    """Return the status of a rank that has answered."""
    if any(status.get(name) is True for name in ("finalize_called", "destroy_flag", "abort_flag")):
        return RankStatus.STOPPING
    start = _int_or_none(status.get("init_state"))
    if start == _IN_PROGRESS:
        return RankStatus.STARTING
    return RankStatus.RUNNING if start == 0 else RankStatus.FAILED


def _read_counts(given: object) -> dict[str, int]:
    if not isinstance(given, dict):
        return {}
    pairs = ((clean(name, 40), _int_or_none(value)) for name, value in list(given.items())[:_MOST_COUNTS])
    return {name: value for name, value in pairs if value is not None and value >= 0}


def _int_or_none(value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < _LARGEST:
        return value
    return None


def _text_or_none(value: object) -> str | None:
    return clean(value, 100) if isinstance(value, str) else None


MOST_BYTES = 4 << 20
"""Most bytes of an answer: one rank of one communicator takes about 500 bytes of JSON."""
_CONNECT_S = 2.0
"""Seconds that a connection may take."""
_LINE_S = 3.0
"""Seconds for NCCL to acknowledge a command: its thread does that at once, also while the GPUs hang."""
_LONGEST_LINE = 2048
"""Most bytes of a line of an answer."""
_GATHER_S = 5
"""Seconds that NCCL waits for each leg of gathering. Never 0: that would leak memory in the job for good."""

Address = tuple[str, int]


class QueryError(FailureError):
    """Raised where NCCL gave no usable answer."""


async def query(address: Address, deadline_s: float) -> RanksAnswer:
    """Ask the RAS thread at `address` (host, port) and return its answer, within `deadline_s` seconds.

    Raises:
        QueryError: nothing listens there, the answer is late or too large, or it is not one of NCCL.
    """
    where = host_port(*address)
    try:
        async with timeout(deadline_s):
            return await _exchange(address, where)
    except TimeoutError:
        message = f"NCCL at {where} gave no complete answer within {deadline_s:g} s: is its process stopped?"
        raise QueryError(FailureKind.TIMEOUT, message) from None
    except RanksError as error:
        raise QueryError(FailureKind.MALFORMED, f"{where}: {error}") from None
    except OSError as error:
        message = f"{where}: the connection broke off: {reason_of(error)}"
        raise QueryError(FailureKind.UNREACHABLE, message) from None


async def _exchange(address: Address, where: str) -> RanksAnswer:
    """Make one query, in lines of text over TCP.

    `CLIENT PROTOCOL 2` shows that it is NCCL that listens, `SET FORMAT json` that it writes JSON, and
    `STATUS` asks for the report, after which NCCL closes the connection. Nothing is sent after `STATUS`, and
    the connection is not half-closed: either would make the RAS thread spin.
    """
    reader, writer = await _connect(address, where)
    try:
        if not (await _send_command(reader, writer, b"CLIENT PROTOCOL 2\n")).startswith(b"SERVER PROTOCOL"):
            raise RanksError("something else than NCCL listens there")
        if (await _send_command(reader, writer, b"SET FORMAT json\n")).strip() != b"OK":
            raise QueryError(FailureKind.UNSUPPORTED, f"not asked: {where} writes no JSON: {_TOO_OLD}")
        await _send_command(reader, writer, b"TIMEOUT %d\n" % _GATHER_S)
        writer.write(b"STATUS\n")
        await writer.drain()
        body = bytearray()
        while chunk := await reader.read(1 << 16):
            body += chunk
            if len(body) > MOST_BYTES:
                raise RanksError(f"an answer of over {MOST_BYTES >> 20} MiB")
        text = body.decode("utf-8", "replace")
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
    return parse_json(text)


async def _connect(address: Address, where: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to `address`.

    Raises:
        QueryError: nothing listens there.
    """
    try:
        async with timeout(_CONNECT_S):
            return await asyncio.open_connection(*address, limit=_LONGEST_LINE)
    except TimeoutError:
        raise QueryError(FailureKind.TIMEOUT, f"no connection to {where} within {_CONNECT_S:g} s") from None
    except (OSError, UnicodeError, OverflowError):
        raise QueryError(FailureKind.REFUSED, f"no RAS thread of NCCL listens at {where}") from None


async def _send_command(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, command: bytes) -> bytes:
    """Send a command and return the line that acknowledges it."""
    writer.write(command)
    await writer.drain()
    try:
        async with timeout(_LINE_S):
            line = await reader.readline()
    except TimeoutError:
        message = f"it accepts connections but acknowledged nothing within {_LINE_S:g} s"
        raise QueryError(FailureKind.TIMEOUT, f"NCCL's RAS thread hangs: {message}") from None
    except ValueError:
        raise RanksError("something else than NCCL listens there") from None
    if not line.endswith(b"\n"):
        raise RanksError("the connection was closed before the answer")
    return line


Version = tuple[int, int, int]

_LIBRARY = re.compile(
    rb"^[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \d+ +(/\S*/libnccl\.so[.0-9]*)( \(deleted\))?$", re.MULTILINE
)
"""A line of /proc/PID/maps that names the library, and whether that file was removed or replaced since."""
# "libnccl.so.2.28.3".
_VERSION_IN_FILE = re.compile(r"libnccl\.so\.(\d+)\.(\d+)\.(\d+)$")
# "nvidia_nccl_cu13-2.28.3.dist-info".
_VERSION_IN_PACKAGE = re.compile(r"nvidia_nccl_cu\d+-(\d+)\.(\d+)\.(\d+)[^/]*\.dist-info$")
_VERSION_IN_CONTENT = re.compile(rb"NCCL version (\d{1,3})\.(\d{1,3})\.(\d{1,3})")
_VARIABLE = b"NCCL_RAS_ADDR="
_MOST_FOUND = 64
"""Most processes that are reported; a machine has a few for each GPU."""
_LIBRARY_BYTES = 1 << 30
"""Most bytes searched for the version of a library whose path does not say it."""
_CHUNK, _OVERLAP = 1 << 20, 64
"""Bytes of a library that are read at once, and by which two pieces overlap: a version is shorter."""
_PACKAGES = 3
"""Folders between a library file and the folder of Python packages: nvidia/nccl/lib."""


LoadedNccl = tuple[Version | None, str | None]
"""Of the NCCL library of one process: the version (None where it cannot be read), and NCCL_RAS_ADDR of the
process's environment (None where it is not set or not readable)."""


def loaded_nccl(root: Path = Path("/")) -> tuple[LoadedNccl, ...]:
    """Return the NCCL library of each process that has loaded one and that this user may look into."""
    proc = root / "proc"
    versions: dict[tuple[int, int], Version | None] = {}
    libraries: list[LoadedNccl] = []
    for name in entries(proc):
        if len(libraries) == _MOST_FOUND:
            break
        library = library_path(read_bytes(f"{proc}/{name}/maps") or b"") if name.isdecimal() else None
        if library is None:
            continue
        path, is_replaced = library
        version = _library_version(proc / name, path, versions, is_replaced=is_replaced)
        address = None
        # Everything else in the environment is ignored, secrets too.
        for variable in (read_bytes(f"{proc}/{name}/environ") or b"").split(b"\0"):
            if variable.startswith(_VARIABLE):
                address = variable[len(_VARIABLE) :].decode("utf-8", "replace")[:200]
                break
        libraries.append((version, address))
    return tuple(libraries)


def library_path(maps: bytes) -> tuple[str, bool] | None:
    """Return (path, whether that file was replaced or removed) of the library in /proc/PID/maps, or None."""
    match = _LIBRARY.search(maps)
    return None if match is None else (match[1].decode("utf-8", "replace"), match[2] is not None)


def parse_version(text: str | None) -> Version | None:
    """Return the numbers of a version such as "2.28.7" or "2.28.7+cuda13.0"; None for any other text."""
    return _numbers_in(re.match(r"(\d{1,3})\.(\d{1,3})\.(\d{1,3})", text or ""))


def seen_from_here(process: Path, path: str) -> Path:
    """Return a path that leads to the file `path` of a process, which may run in a container."""
    inside = process / "root" / path.lstrip("/")
    try:
        return inside if inside.exists() else Path(path)
    except OSError:
        return Path(path)


def _library_version(
    process: Path, path: str, versions: dict[tuple[int, int], Version | None], *, is_replaced: bool
) -> Version | None:
    """Return the version of a process' library; `versions` keeps the results by device and inode.

    What stands at the path of a replaced file has another version: only a number in its name counts.
    """
    if is_replaced:
        return version_in_name(path)
    file = seen_from_here(process, path)
    try:
        status = file.stat()
    except OSError:
        return version_in_name(str(file))
    key = (status.st_dev, status.st_ino)
    if key not in versions:
        versions[key] = version_by_names(file) or _version_in_content(file)
    return versions[key]


def version_by_names(file: Path) -> Version | None:
    """Return the version in the name of the file, or of the Python package that the file belongs to."""
    named = version_in_name(str(file))
    if named is not None or len(file.parents) <= _PACKAGES:
        return named
    # site-packages/nvidia/nccl/lib/libnccl.so.2
    packages = (_numbers_in(_VERSION_IN_PACKAGE.search(name)) for name in entries(file.parents[_PACKAGES]))
    return next((version for version in packages if version is not None), None)


def _version_in_content(file: Path) -> Version | None:
    """Return the version that the library writes to logs, which is among its constants."""
    try:
        with open_regular(file) as opened:
            tail_bytes = b""
            while opened.tell() < _LIBRARY_BYTES:
                chunk = opened.read(_CHUNK)
                if not chunk:
                    break
                if match := _VERSION_IN_CONTENT.search(tail_bytes + chunk):
                    return int(match[1]), int(match[2]), int(match[3])
                tail_bytes = chunk[-_OVERLAP:]
    except OSError:
        return None
    return None


def version_in_name(path: str) -> Version | None:
    """Return the version in the name of a library file; None where it has none, as in libnccl.so.2."""
    return _numbers_in(_VERSION_IN_FILE.search(path))


def _numbers_in(match: re.Match[str] | None) -> Version | None:
    return None if match is None else (int(match[1]), int(match[2]), int(match[3]))


OLDEST: Version = (2, 28, 7)
"""The oldest version that is asked: the first that writes JSON."""
_TOO_OLD = "NCCL 2.28.7 and newer are asked"
SAFE: Version = (2, 29, 2)
"""The oldest version without a known fault in its answer."""
DEADLINE_S = 12.0
"""Seconds for a query; NCCL itself gathers for 10 s at most: two legs of `_GATHER_S`."""
REST_S = 1.0
"""Seconds after a query within which another request gets the same result."""
_PORT = 28028
"""Port of NCCL's RAS service, where NCCL_RAS_ADDR names none."""
_LOCAL: tuple[Address, ...] = (("::1", _PORT), ("127.0.0.1", _PORT))
_MOST_ADDRESSES = 4
"""Addresses of processes that are tried, before those of this machine."""


class RasReader:
    """Asks NCCL's RAS thread on this machine, one query at a time."""

    def __init__(
        self,
        *,
        root: Path = Path("/"),
        env: Mapping[str, str] | None = None,
        addresses: Sequence[Address] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Search for processes below `root`/proc.

        `addresses` replaces the addresses at which NCCL is looked for: those of NCCL_RAS_ADDR in `env` (None:
        this process's environment) and in the processes that have loaded NCCL, else port 28028 of localhost.
        """
        self._root = root
        self._env = os.environ if env is None else env
        self._addresses = None if addresses is None else tuple(addresses)
        self._clock = clock
        self._running: asyncio.Task[RanksReply | Failure] | None = None
        self._last: tuple[float, RanksReply | Failure] | None = None

    async def ask(self) -> RanksReply | Failure:
        """Return the answer of NCCL, or a `Failure`; a request during a query gets the result of that query.

        Asking is the caller's decision: it must follow from a key press, or from the configuration while an
        engine stands still, never while an engine loads.
        """
        if self._last is not None and self._clock() - self._last[0] < REST_S:
            return self._last[1]
        if self._running is None:
            self._running = asyncio.get_running_loop().create_task(self._ask_addresses())

            def keep_result(task: asyncio.Task[RanksReply | Failure]) -> None:
                self._running = None
                if not task.cancelled() and task.exception() is None:
                    self._last = (self._clock(), task.result())

            self._running.add_done_callback(keep_result)
        return await asyncio.shield(self._running)

    async def close(self) -> None:
        """End a running query; leaving early does no harm to the job."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait({self._running})

    async def _ask_addresses(self) -> RanksReply | Failure:
        loaded = await asyncio.to_thread(loaded_nccl, self._root)
        versions = [version for version, _ in loaded if version is not None]
        if versions and min(versions) < OLDEST:
            message = f"not asked: NCCL {_version_text(min(versions))} can crash when it is asked; {_TOO_OLD}"
            return Failure(FailureKind.UNSUPPORTED, message, self._clock())
        end = self._clock() + DEADLINE_S
        addresses = self._addresses_to_try(loaded) if self._addresses is None else self._addresses
        for address in addresses:
            try:
                answer = await query(address, max(0.1, end - self._clock()))
            except QueryError as error:
                if error.kind is not FailureKind.REFUSED:
                    return error.failure(self._clock())
            else:
                return RanksReply(answer, _warning(answer))
        why = (
            ", although it is loaded: is NCCL_RAS_ENABLE 0, or its network not the host's?"
            if loaded
            else ": one GPU alone needs no NCCL; a container needs the host's network"
        )
        message = f"no RAS thread of NCCL listens on this machine{why}"
        return Failure(FailureKind.REFUSED, message, self._clock())

    def _addresses_to_try(self, loaded: Sequence[LoadedNccl]) -> Sequence[Address]:
        """Return the addresses that environments name, then the usual ones, each once."""
        variables = [self._env.get("NCCL_RAS_ADDR"), *(variable for _, variable in loaded)]
        by_variable = [address for variable in variables if variable for address in parse_address(variable)]
        return list(dict.fromkeys((*by_variable[:_MOST_ADDRESSES], *_LOCAL)))


def _warning(answer: RanksAnswer) -> str | None:
    """Return a remark on the version that answered; None without one."""
    version = parse_version(answer.nccl)
    if version is not None and version >= SAFE:
        return None
    which = "of an unknown version" if version is None else _version_text(version)
    return f"NCCL {which}: below {_version_text(SAFE)} an answer about a missing rank can be wrong"


def parse_address(text: str) -> tuple[Address, ...]:
    """Return the addresses that a value of NCCL_RAS_ADDR (host:port) means; () if it cannot be parsed.

    The name localhost means ::1 and 127.0.0.1: NCCL listens at the first of them that its resolver returns.
    """
    host, colon, port = text.strip().rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        return ()
    host = host.strip("[]")
    if host == "localhost":
        return ("::1", int(port)), ("127.0.0.1", int(port))
    return ((host, int(port)),)


def _version_text(version: Version) -> str:
    return ".".join(str(number) for number in version)
