"""Lines of llama-benchy's `--emit-progress` (schema llama-benchy-progress.v1) as values.

Everything in them is somebody else's: a line that is no JSON, of another schema, of an unknown type or
without what its type needs is counted and passed over. The text of tokens is never looked at.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from sparktop.model.text import clean
from sparktop.sweep.compare.imports.reading import concurrency_at, finite, whole, words

SCHEMA = "llama-benchy-progress.v1"
MOST_LINE = 1 << 20
"""Bytes of a line: a failed request's holds all that the server answered."""
_MOST_WALL_S = 1e11
"""Beyond it a Unix time is none: five thousand years."""
_MOST_SECONDS = 1e6
_MOST_TOKENS = 100_000
"""Of one line, or asked of one request."""
_MOST_PROMPT = 100_000_000


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request asks for, of whom: all requests of a level have it in common."""

    model: str
    url: str
    """Without /v1, a user or a password."""
    label: str
    concurrency: int
    prompt_tokens: int
    context_tokens: int
    """Ahead of the prompt; llama-benchy calls it depth."""
    output_tokens: int

    @property
    def all_prompt_tokens(self) -> int:
        """Context and prompt."""
        return self.context_tokens + self.prompt_tokens


@dataclass(slots=True)
class Begun:
    """A stream begins; all times `at` are Unix seconds of whoever writes."""

    at: float
    tool: str


@dataclass(slots=True)
class Started:
    """A request is about to be sent."""

    at: float
    request_id: int
    run: int
    asked: Asked


@dataclass(slots=True)
class Responded:
    """The first chunk of an answer was read; `after_s` from the start as the tool stamped it."""

    at: float
    request_id: int
    after_s: float


@dataclass(slots=True)
class GaveToken:
    """The first chunk with text was read; `after_s` as above."""

    at: float
    request_id: int
    after_s: float


@dataclass(slots=True)
class GaveTokens:
    """A chunk with text was read, the first one too."""

    at: float
    request_id: int
    count: int
    is_guess: bool
    """The server told no token ids: a chunk was taken for one token."""


@dataclass(slots=True)
class Ended:
    """A request is over."""

    at: float
    request_id: int
    tokens: int
    """As the server counted them, else as the tool did."""
    prompt_tokens: int | None
    error: str
    """Empty where it went well."""


@dataclass(slots=True)
class Completed:
    """The whole run is over."""

    at: float
    status: str
    """ok, interrupted or error."""


Line = Begun | Started | Responded | GaveToken | GaveTokens | Ended | Completed


class LineReader:
    """Cuts what comes into lines and reads them; counts what it cannot read."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._rest = b""
        self._skips = False
        """Within a line that is too long."""
        self.passed_over: Counter[str] = Counter()
        """Lines by why they were passed over, in clean words."""

    def feed(self, data: bytes) -> Iterator[Line]:
        """Give the lines that are whole now, one by one."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if self._skips:
                self._skips = False  # it ends here
            elif len(line) > MOST_LINE:
                self.passed_over["too long"] += 1
            elif line.strip():
                found = _read(line)
                if isinstance(found, str):
                    self.passed_over[found] += 1
                elif found is not None:
                    yield found
        if len(self._rest) > MOST_LINE:
            if not self._skips:
                self.passed_over["too long"] += 1
            self._rest, self._skips = b"", True


def _read(line: bytes) -> Line | str | None:
    """Read a line; give why where it cannot be read, None where there is nothing in it for us."""
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):
        return "no JSON"
    if not isinstance(told, dict) or told.get("schema") != SCHEMA:
        return "of another schema"
    at, kind = finite(told.get("ts")), told.get("type")
    if at is None or not 0 < at < _MOST_WALL_S:
        return "without a time"
    if kind == "latency_measured":
        return None  # its probe's latency is taken off its own figures; ours have no use for it
    read = _READERS.get(kind) if isinstance(kind, str) else None
    return "of an unknown type" if read is None else read(at, told) or f"{kind} without what it needs"


def passed_words(counts: Counter[str]) -> str | None:
    """Say what was passed over; None where nothing was."""
    total = counts.total()
    parts = ", ".join(f"{count} {why}" for why, count in counts.most_common())
    return f"{total} line{'' if total == 1 else 's'} passed over: {parts}" if total else None


def _begun(at: float, told: Mapping[str, object]) -> Begun:
    version = words(told, "llama_benchy_version")
    return Begun(at, clean(f"llama-benchy {version}" if version else "llama-benchy", 40))


def _started(at: float, told: Mapping[str, object]) -> Started | None:
    request_id, concurrency = _id(told), concurrency_at(told, "concurrency")
    prompt, output = whole(told, "prompt_size"), whole(told, "response_size")
    context, run = whole(told, "context_size") or 0, whole(told, "run_index")
    if request_id is None or concurrency is None or prompt is None or output is None or run is None:
        return None
    if output > _MOST_TOKENS or prompt + context > _MOST_PROMPT:
        return None
    asked = Asked(
        model=words(told, "model") or "",
        url=_address(told.get("base_url")),
        label=clean(words(told, "target_label") or "", 40),
        concurrency=concurrency,
        prompt_tokens=prompt,
        context_tokens=context,
        output_tokens=output,
    )
    return Started(at, request_id, run, asked)


def _responded(at: float, told: Mapping[str, object]) -> Responded | None:
    request_id, after_s = _id(told), _seconds(told.get("ttfr_s"))
    return None if request_id is None or after_s is None else Responded(at, request_id, after_s)


def _gave_token(at: float, told: Mapping[str, object]) -> GaveToken | None:
    request_id, after_s = _id(told), _seconds(told.get("ttft_s"))
    return None if request_id is None or after_s is None else GaveToken(at, request_id, after_s)


def _gave_tokens(at: float, told: Mapping[str, object]) -> GaveTokens | None:
    request_id, count = _id(told), told.get("count")
    if request_id is None or not isinstance(count, int) or not 0 <= count <= _MOST_TOKENS:
        return None
    return GaveTokens(at, request_id, int(count), told.get("estimated") is True)


def _ended(at: float, told: Mapping[str, object]) -> Ended | None:
    request_id, tokens = _id(told), whole(told, "total_tokens")
    if request_id is None:
        return None
    error = told.get("error")
    return Ended(
        at=at,
        request_id=request_id,
        tokens=min(tokens or 0, _MOST_TOKENS),
        # 0 stands for "nobody told": no prompt is empty.
        prompt_tokens=whole(told, "prompt_tokens") or None,
        error=(clean(error) or "no reason told") if error else "",
    )


def _completed(at: float, told: Mapping[str, object]) -> Completed:
    return Completed(at, words(told, "status") or "ok")


_READERS = {
    "header": _begun,
    "request_start": _started,
    "request_first_response": _responded,
    "request_first_token": _gave_token,
    "tokens": _gave_tokens,
    "request_end": _ended,
    "bench_complete": _completed,
}


def _id(told: Mapping[str, object]) -> int | None:
    found = told.get("request_id")
    return found if type(found) is int and 0 <= found < 1 << 53 else None


def _seconds(value: object) -> float | None:
    found = finite(value)
    return found if found is not None and 0 <= found <= _MOST_SECONDS else None


def _address(url: object) -> str:
    """Give a server's address without what may be secret in it."""
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return ""
    if not host or parts.scheme not in {"http", "https"}:
        return ""
    name = f"[{host}]" if ":" in host else host
    path = parts.path.rstrip("/").removesuffix("/v1").rstrip("/")
    return clean(f"{parts.scheme}://{name}{'' if port is None else f':{port}'}{path}")
