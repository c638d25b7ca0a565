"""Parsing of the lines of llama-benchy's `--emit-progress` (schema llama-benchy-progress.v1).

The lines are untrusted: one that is not JSON, has another schema, an unknown type or lacks a required field
is counted and ignored. The text of tokens is not read.
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
"""Maximum bytes of a line: that of a failed request contains the server's complete answer."""
_MOST_WALL_S = 1e11
"""Larger Unix times are invalid: five thousand years."""
_MOST_SECONDS = 1e6
_MOST_TOKENS = 100_000
"""Maximum tokens in one line, or requested by one request."""
_MOST_PROMPT = 100_000_000


@dataclass(frozen=True, slots=True)
class Asked:
    """What all requests of a level have in common: target and lengths."""

    model: str
    url: str
    """Without /v1, user name and password."""
    label: str
    concurrency: int
    prompt_tokens: int
    context_tokens: int
    """Tokens in front of the prompt, which llama-benchy calls depth."""
    output_tokens: int

    @property
    def all_prompt_tokens(self) -> int:
        """Tokens of context and prompt together."""
        return self.context_tokens + self.prompt_tokens


@dataclass(slots=True)
class Begun:
    """A stream begins. All times `at` are Unix seconds of the writer."""

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
    """The first chunk of an answer was read, `after_s` seconds after the start by the tool's stamps."""

    at: float
    request_id: int
    after_s: float


@dataclass(slots=True)
class GaveToken:
    """The first chunk with text was read; `after_s` as in `Responded`."""

    at: float
    request_id: int
    after_s: float


@dataclass(slots=True)
class GaveTokens:
    """A chunk with text was read, including the first one."""

    at: float
    request_id: int
    count: int
    is_guess: bool
    """True if the server sent no token ids, so that a chunk was counted as one token."""


@dataclass(slots=True)
class Ended:
    """A request is over."""

    at: float
    request_id: int
    tokens: int
    """As counted by the server, else by the tool."""
    prompt_tokens: int | None
    error: str
    """Empty if the request succeeded."""


@dataclass(slots=True)
class Completed:
    """The complete run is over."""

    at: float
    status: str
    """ok, interrupted or error."""


Line = Begun | Started | Responded | GaveToken | GaveTokens | Ended | Completed


class LineReader:
    """Split data into lines and parse them; count those that cannot be parsed."""

    def __init__(self) -> None:
        """Start without data."""
        self._rest = b""
        self._skips = False
        """True inside a line that is too long."""
        self.passed_over: Counter[str] = Counter()
        """Number of ignored lines by reason, in clean words."""

    def feed(self, data: bytes) -> Iterator[Line]:
        """Yield the lines that the data completes."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if self._skips:
                self._skips = False  # the line that is too long ends here
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
    """Parse a line; return the reason if it is invalid, None if it is of no use here."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return "no JSON"
    if not isinstance(fields, dict) or fields.get("schema") != SCHEMA:
        return "of another schema"
    at, kind = finite(fields.get("ts")), fields.get("type")
    if at is None or not 0 < at < _MOST_WALL_S:
        return "without a time"
    if kind == "latency_measured":
        return None  # the latency of its probe is subtracted from its own figures; sparktop has no use for it
    read = _READERS.get(kind) if isinstance(kind, str) else None
    return "of an unknown type" if read is None else read(at, fields) or f"{kind} without what it needs"


def passed_words(counts: Counter[str]) -> str | None:
    """Return a line about the ignored lines; None if there are none."""
    total = counts.total()
    parts = ", ".join(f"{count} {why}" for why, count in counts.most_common())
    return f"{total} line{'' if total == 1 else 's'} passed over: {parts}" if total else None


def _begun(at: float, fields: Mapping[str, object]) -> Begun:
    version = words(fields, "llama_benchy_version")
    return Begun(at, clean(f"llama-benchy {version}" if version else "llama-benchy", 40))


def _started(at: float, fields: Mapping[str, object]) -> Started | None:
    request_id, concurrency = _id(fields), concurrency_at(fields, "concurrency")
    prompt, output = whole(fields, "prompt_size"), whole(fields, "response_size")
    context, run = whole(fields, "context_size") or 0, whole(fields, "run_index")
    if request_id is None or concurrency is None or prompt is None or output is None or run is None:
        return None
    if output > _MOST_TOKENS or prompt + context > _MOST_PROMPT:
        return None
    asked = Asked(
        model=words(fields, "model") or "",
        url=_address(fields.get("base_url")),
        label=clean(words(fields, "target_label") or "", 40),
        concurrency=concurrency,
        prompt_tokens=prompt,
        context_tokens=context,
        output_tokens=output,
    )
    return Started(at, request_id, run, asked)


def _responded(at: float, fields: Mapping[str, object]) -> Responded | None:
    request_id, after_s = _id(fields), _seconds(fields.get("ttfr_s"))
    return None if request_id is None or after_s is None else Responded(at, request_id, after_s)


def _gave_token(at: float, fields: Mapping[str, object]) -> GaveToken | None:
    request_id, after_s = _id(fields), _seconds(fields.get("ttft_s"))
    return None if request_id is None or after_s is None else GaveToken(at, request_id, after_s)


def _gave_tokens(at: float, fields: Mapping[str, object]) -> GaveTokens | None:
    request_id, count = _id(fields), fields.get("count")
    if request_id is None or not isinstance(count, int) or not 0 <= count <= _MOST_TOKENS:
        return None
    return GaveTokens(at, request_id, int(count), fields.get("estimated") is True)


def _ended(at: float, fields: Mapping[str, object]) -> Ended | None:
    request_id, tokens = _id(fields), whole(fields, "total_tokens")
    if request_id is None:
        return None
    error = fields.get("error")
    return Ended(
        at=at,
        request_id=request_id,
        tokens=min(tokens or 0, _MOST_TOKENS),
        # 0 stands for an unknown count: no prompt is empty.
        prompt_tokens=whole(fields, "prompt_tokens") or None,
        error=(clean(error) or "no reason told") if error else "",
    )


def _completed(at: float, fields: Mapping[str, object]) -> Completed:
    return Completed(at, words(fields, "status") or "ok")


_READERS = {
    "header": _begun,
    "request_start": _started,
    "request_first_response": _responded,
    "request_first_token": _gave_token,
    "tokens": _gave_tokens,
    "request_end": _ended,
    "bench_complete": _completed,
}


def _id(fields: Mapping[str, object]) -> int | None:
    found = fields.get("request_id")
    return found if type(found) is int and 0 <= found < 1 << 53 else None


def _seconds(value: object) -> float | None:
    found = finite(value)
    return found if found is not None and 0 <= found <= _MOST_SECONDS else None


def _address(url: object) -> str:
    """Return a server's address without the parts that may be secret; "" if it is invalid."""
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
