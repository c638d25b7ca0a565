"""Answers of NCCL's RAS thread, parsed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from sparktop.model.ranks import ALL_OPERATIONS, Communicator, MissingRank, Rank, RanksAnswer, RankStatus
from sparktop.model.text import clean

# What both formats of an answer of NCCL's RAS thread share: limits, hashes, addresses and process ids.

MOST_COMMUNICATORS, MOST_RANKS = 1024, 4096
"""Most communicators of an answer, and most ranks of each, that are kept."""


class RanksError(ValueError):
    """An answer that is not one of NCCL's RAS thread; the message is one clean line."""


def plain_hash(text: str) -> str:
    """Return a hash as 16 digits in lower case without 0x, as NCCL's text has it; "" for no hash."""
    digits = text.strip().lower().removeprefix("0x")
    return digits.rjust(16, "0") if re.fullmatch(r"[0-9a-f]{1,16}", digits) else ""


def known_host(host: str | None) -> str | None:
    """Return an address without brackets; None where NCCL writes that it does not know the host."""
    return None if host in {None, "", "unknown"} else str(host).strip("[]")


def known_pid(pid: int | None) -> int | None:
    """Return a process id; None where NCCL writes that it does not know it (-1)."""
    return pid if pid is not None and pid >= 0 else None


# Parses the JSON answer of NCCL's RAS thread (NCCL 2.28.7 and newer).

_MOST_COUNTS = 16
_IN_PROGRESS = 7
"""NCCL's code for an operation that has not ended."""
_MISSING_COMMA = re.compile(r'("nvml_dev":\s*-?\d+)(\s*"status")')
_LARGEST = 2**63


def parse_json(text: str) -> RanksAnswer:
    """Parse the JSON document in `text`, which may have other lines before it.

    Raises:
        RanksError: there is no complete document of the known form.
    """
    document = text[text.find("{") :] if "{" in text else ""
    found = _loaded(document)
    if not isinstance(found, dict) or not isinstance(found.get("communicators"), list):
        raise RanksError("the answer is not NCCL's: it lists no communicators")
    ras = found.get("ras")
    ras = ras if isinstance(ras, dict) else {}
    return RanksAnswer(
        nccl=_text(found.get("nccl_version")),
        communicators=tuple(_communicators(found["communicators"][:MOST_COMMUNICATORS])),
        timeouts=_whole(ras.get("timeouts_count")) or 0,
        took_s=_seconds(ras.get("collection_time_sec")),
    )


def _loaded(document: str) -> object:
    """Return the first JSON value of `document`.

    NCCL 2.28.7 and 2.28.9 leave out the comma after `nvml_dev` of missing ranks; it is inserted where the
    document cannot be parsed without it.
    """
    for text in (document, _MISSING_COMMA.sub(r"\1,\2", document)):
        try:
            return json.JSONDecoder().raw_decode(text)[0]
        except (ValueError, RecursionError):
            continue
    raise RanksError("half an answer of NCCL, or none: its JSON cannot be parsed")


def _communicators(given: list[object]) -> Iterator[Communicator]:
    for one in given:
        if not isinstance(one, dict):
            raise RanksError("the answer is not NCCL's: a communicator without fields")
        ranks, others = _entries(one.get("ranks")), _entries(one.get("missing_ranks"))
        missing = [entry for entry in others if _is_silent(entry)]
        absent = [entry for entry in others if entry not in missing]
        yield Communicator(
            plain_hash(_text(one.get("hash")) or ""),
            _text(one.get("secondary_hash")),
            _whole(one.get("size")) or len(ranks) + len(others),
            (*map(_rank, ranks), *(replace(_rank(entry), status=RankStatus.ABSENT) for entry in absent)),
            tuple(_missing(entry) for entry in missing),
        )


def _entries(given: object) -> list[Mapping[str, object]]:
    return [one for one in given[:MOST_RANKS] if isinstance(one, dict)] if isinstance(given, list) else []


def _rank(entry: Mapping[str, object]) -> Rank:
    status = entry.get("status")
    error = _whole(status.get("async_error")) if isinstance(status, dict) else None
    return Rank(
        _whole(entry.get("rank")),
        known_host(_text(entry.get("host"))),
        known_pid(_whole(entry.get("pid"))),
        _whole(entry.get("cuda_dev")),
        _status(status if isinstance(status, dict) else {}),
        error if error not in {None, 0, _IN_PROGRESS} else None,
        _counts(entry.get("collective_counts")),
    )


def _is_silent(entry: Mapping[str, object]) -> bool:
    """Return whether the process of a missing rank does not answer: it may answer and not know the group."""
    status = entry.get("status")
    flags = status if isinstance(status, dict) else {}
    return flags.get("unresponsive") is not False or flags.get("considered_dead") is True


def _missing(entry: Mapping[str, object]) -> MissingRank:
    rank = _whole(entry.get("rank"))
    if rank is None:
        raise RanksError("the answer is not NCCL's: a missing rank without its number")
    status = entry.get("status")
    dead = isinstance(status, dict) and status.get("considered_dead") is True
    host, pid = known_host(_text(entry.get("host"))), known_pid(_whole(entry.get("pid")))
    return MissingRank(rank, host, pid, _whole(entry.get("cuda_dev")), dead)


def _status(status: Mapping[str, object]) -> RankStatus:
    if any(status.get(name) is True for name in ("finalize_called", "destroy_flag", "abort_flag")):
        return RankStatus.STOPPING
    begun = _whole(status.get("init_state"))
    if begun == _IN_PROGRESS:
        return RankStatus.STARTING
    return RankStatus.RUNNING if begun == 0 else RankStatus.FAILED


def _counts(given: object) -> dict[str, int]:
    if not isinstance(given, dict):
        return {}
    pairs = ((clean(name, 40), _whole(value)) for name, value in list(given.items())[:_MOST_COUNTS])
    return {name: value for name, value in pairs if value is not None and value >= 0}


def _whole(value: object) -> int | None:
    whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) < _LARGEST
    return value if whole else None  # type: ignore[return-value]  # an int, as checked


def _seconds(value: object) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if 0 <= value < _LARGEST else None


def _text(value: object) -> str | None:
    return clean(value, 100) if isinstance(value, str) else None


# Parses the text answer of NCCL's RAS thread.
#
# The text names only communicators whose ranks differ, fail or are missing, and of their ranks only those
# that are few: the others are counted.

_VERSION = re.compile(r"NCCL version (\S{1,60})(?: compiled with.*)?")
_TOOK = re.compile(r"Communicators\.\.\. \((\d{1,6}(?:\.\d{1,6})?)s\)")
_GROUP = re.compile(r"\s*(\d+)\s+(\d+)\s+\S+\s+\S+\s+(\d+)\s+\S+\s+([A-Z,]+)\s+([A-Z,]+)\s*")
"""A row of the table of communicators: number of the group, communicators in it, ranks of each, status,
errors."""
_HEADING = re.compile(r"#(\d+)-\d+ \(([0-9a-f]{1,16})\) (INCOMPLETE|ERROR|MISMATCH)")
_DIFFERENT = re.compile(r"\s+Communicator ranks have different (?:(\w{1,40}) )?operation counts")
_PLACE = r"(?: -- (?:GPU (\d+).{0,40}? managed by process (-?\d+) on node (\S{1,100})|\[.*))?"
_LAUNCHED = r"(?:launched up to operation (\d+)|not launched any operations)"
_COUNT = re.compile(rf"\s+Rank (\d+) has {_LAUNCHED}{_PLACE}")
_COUNTS = re.compile(rf"\s+(\d+) ranks have {_LAUNCHED}")
_STATUS = re.compile(rf"\s+Rank (\d+) has status ([A-Z]+){_PLACE}")
_STATUSES = re.compile(r"\s+(\d+) ranks have status ([A-Z]+)")
_RANK = re.compile(rf"\s+Rank (\d+){_PLACE}")
_ERROR = re.compile(rf"\s+Rank (\d+) reported [\w ]{{1,60}}?{_PLACE}")
_PROCESS = re.compile(r"\s+Process (\d+) on node (\S{1,100}) managing GPU")
_TIMEOUTS = re.compile(r"\s+Encountered (\d+) communication timeout")
_WORDS = {
    "RUNNING": RankStatus.RUNNING,
    "INIT": RankStatus.STARTING,
    "FINALIZE": RankStatus.STOPPING,
    "ABORT": RankStatus.STOPPING,
}


@dataclass(slots=True)
class _Group:
    """A row of the table of communicators."""

    comms: int
    size: int
    status: RankStatus
    errors: str


@dataclass(slots=True)
class _Open:
    """A communicator that is being read."""

    group: int
    ranks: dict[int, Rank] = field(default_factory=dict)
    unnamed: list[Rank] = field(default_factory=list)
    missing: dict[int, MissingRank] = field(default_factory=dict)


class _Reader:
    """The state while the lines of an answer are read in their order."""

    def __init__(self) -> None:
        self.version: str | None = None
        self.took_s: float | None = None
        self.timeouts = 0
        self.groups: dict[int, _Group] = {}
        self.found: dict[str, _Open] = {}
        self.dead: set[tuple[str | None, int | None]] = set()
        self.ended = False
        """Whether the last section of the answer, its warnings, was seen."""
        self._open: _Open | None = None
        self._part = ""
        """The kind of block that is being read: INCOMPLETE, ERROR, MISMATCH, DEAD or ""."""
        self._operation = ALL_OPERATIONS
        self._shared: tuple[int, int] | None = None
        """(number of ranks, count) of the group of ranks whose names may follow; None outside of one."""

    def take(self, line: str) -> None:
        """Read one line."""
        if not line.strip():
            self._open, self._part, self._shared = None, "", None
            return
        heading = _HEADING.fullmatch(line)
        if heading:
            self._begin(int(heading[1]), plain_hash(heading[2]), heading[3])
        elif line == "DEAD":
            self._part = "DEAD"
        elif line == "Warnings":
            self.ended = True
        elif self._open is not None:
            self._inside(line, self._open)
        else:
            self._outside(line)

    def _begin(self, group: int, name: str, part: str) -> None:
        if len(self.found) < MOST_COMMUNICATORS:
            self._open = self.found.setdefault(name, _Open(group))
            self._part = part

    def _outside(self, line: str) -> None:
        readers: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], None]], ...] = (
            (_VERSION, self._note_version),
            (_TOOK, self._note_time),
            (_GROUP, self._note_group),
            (_TIMEOUTS, self._note_timeouts),
            (_PROCESS, self._note_process),
        )
        for pattern, read in readers:
            if match := pattern.match(line):
                read(match)
                return

    def _note_version(self, match: re.Match[str]) -> None:
        self.version = clean(match[1], 60)

    def _note_time(self, match: re.Match[str]) -> None:
        self.took_s = float(match[1])

    def _note_group(self, match: re.Match[str]) -> None:
        words = match[4].split(",")
        status = RankStatus.RUNNING if words == ["RUNNING"] else RankStatus.STARTING
        if not {"FINALIZE", "ABORT"}.isdisjoint(words):
            status = RankStatus.STOPPING
        self.groups[int(match[1])] = _Group(min(int(match[2]), 10**6), int(match[3]), status, match[5])

    def _note_timeouts(self, match: re.Match[str]) -> None:
        self.timeouts = int(match[1])

    def _note_process(self, match: re.Match[str]) -> None:
        if self._part == "DEAD":
            self.dead.add((known_host(match[2]), int(match[1])))

    def _inside(self, line: str, comm: _Open) -> None:
        if len(comm.ranks) + len(comm.missing) > MOST_RANKS:
            return
        if different := _DIFFERENT.match(line):
            self._operation, self._shared = different[1] or ALL_OPERATIONS, None
        elif one := _COUNT.match(line):
            self._count(comm, one, int(one[2] or 0), one[3], one[4], one[5])
        elif many := _COUNTS.match(line):
            self._shared = (int(many[1]), int(many[2] or 0))
            comm.unnamed.append(Rank(None, counts={self._operation: self._shared[1]}, many=self._shared[0]))
        elif one := _STATUS.match(line):
            rank = self._rank(comm, one, one[3], one[4], one[5])
            comm.ranks[int(one[1])] = replace(rank, status=_WORDS.get(one[2], RankStatus.FAILED))
        elif many := _STATUSES.match(line):
            comm.unnamed.append(Rank(None, status=_WORDS.get(many[2], RankStatus.FAILED), many=int(many[1])))
        elif one := _ERROR.match(line):
            comm.ranks[int(one[1])] = replace(self._rank(comm, one, one[2], one[3], one[4]), error=-1)
        elif one := _RANK.match(line):
            self._named(comm, one)

    def _named(self, comm: _Open, one: re.Match[str]) -> None:
        """Read a rank without a figure: a missing one, or one of the ranks that were counted before."""
        number = int(one[1])
        if self._part == "INCOMPLETE":
            comm.missing[number] = MissingRank(number, known_host(one[4]), _number(one[3]), _number(one[2]))
        elif self._shared is not None and comm.unnamed:
            last = comm.unnamed[-1]
            if last.many > 1:
                comm.unnamed[-1] = replace(last, many=last.many - 1)
            else:
                comm.unnamed.pop()
            self._count(comm, one, self._shared[1], one[2], one[3], one[4])

    def _count(
        self, comm: _Open, one: re.Match[str], count: int, gpu: str | None, pid: str | None, host: str | None
    ) -> None:
        rank = self._rank(comm, one, gpu, pid, host)
        comm.ranks[int(one[1])] = replace(rank, counts={**rank.counts, self._operation: count})

    @staticmethod
    def _rank(comm: _Open, one: re.Match[str], gpu: str | None, pid: str | None, host: str | None) -> Rank:
        number = int(one[1])
        return comm.ranks.get(number) or Rank(number, known_host(host), _number(pid), _number(gpu))


def _number(text: str | None) -> int | None:
    return None if text is None else known_pid(int(text))


def parse_text(text: str) -> RanksAnswer:
    """Parse an answer in text form, which may have other lines before it.

    Raises:
        RanksError: this is not an answer of NCCL, or not a complete one.
    """
    reader = _Reader()
    for line in text.splitlines():
        reader.take(line.rstrip()[:1024])
    if reader.version is None:
        raise RanksError("the answer is not NCCL's: it does not begin with a version")
    if not reader.ended or not text.endswith("\n") or not _is_whole(reader):
        raise RanksError("half an answer of NCCL: its text ends too early")
    named = tuple(_communicator(name, one, reader) for name, one in reader.found.items())
    return RanksAnswer(
        reader.version,
        "text",
        (*named, *_changing(reader.groups, reader.found)),
        max(0, sum(group.comms for group in reader.groups.values()) - len(named)),
        reader.timeouts,
        reader.took_s,
    )


def _is_whole(reader: _Reader) -> bool:
    """Return whether the details of all communicators whose ranks differ follow their row of the table."""
    for number, group in reader.groups.items():
        named = [one for one in reader.found.values() if one.group == number]
        if group.errors != "OK" and len(named) < min(group.comms, MOST_COMMUNICATORS):
            return False
        if (
            group.errors == "MISMATCH"
            and group.size <= MOST_RANKS
            and any(_counted(one) < group.size for one in named)
        ):
            return False
    return True


def _counted(one: _Open) -> int:
    return len(one.ranks) + sum(rank.many for rank in one.unnamed)


def _communicator(name: str, one: _Open, reader: _Reader) -> Communicator:
    group = reader.groups.get(one.group)
    status = group.status if group is not None else RankStatus.RUNNING
    ranks = [rank for _, rank in sorted(one.ranks.items())] + one.unnamed
    if status is not RankStatus.RUNNING and all(rank.status is RankStatus.RUNNING for rank in ranks):
        ranks = [replace(rank, status=status) for rank in ranks] or [Rank(None, status=status)]
    missing = tuple(
        replace(rank, dead=(rank.host, rank.pid) in reader.dead) for _, rank in sorted(one.missing.items())
    )
    size = group.size if group is not None else sum(rank.many for rank in ranks) + len(missing)
    return Communicator(name, None, size, tuple(ranks), missing)


def _changing(groups: Mapping[int, _Group], found: Mapping[str, _Open]) -> list[Communicator]:
    """Return an entry without a hash for each group of unnamed communicators that start or shut down."""
    named = {one.group for one in found.values()}
    return [
        Communicator("", None, group.size, (Rank(None, status=group.status, many=max(1, group.size)),))
        for number, group in groups.items()
        if number not in named and group.status is not RankStatus.RUNNING
    ]
