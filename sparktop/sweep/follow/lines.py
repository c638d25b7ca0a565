"""Parses the progress stream that llama-benchy writes with `--emit-progress`: one JSON object per line.

The lines are untrusted. A line that is not JSON, has another schema than llama-benchy-progress.v1, an
unknown type, or lacks a required field, is counted and ignored. The text of tokens is not read.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from sparktop.model.text import clean
from sparktop.sweep.compare.imports.reading import concurrency_at, finite, whole, words
from sparktop.values import dataclass

SCHEMA = "llama-benchy-progress.v1"
MOST_LINE = 1 << 20
"""Maximum bytes of a line; the line of a failed request contains the server's complete answer."""
_MOST_WALL_S = 1e11
"""Maximum valid Unix time in seconds, about the year 5100."""
_MOST_SECONDS = 1e6
_MOST_TOKENS = 100_000
"""Maximum number of tokens in one line, and of output tokens that a request may ask for."""
_MOST_PROMPT = 100_000_000


@dataclass(frozen=True, slots=True)
class Asked:
    """What all requests of a level have in common: target, concurrency and lengths."""

    model: str
    url: str
    """Without /v1, user name and password."""
    label: str
    """The tool's own name for the target; empty without one."""
    concurrency: int
    prompt_tokens: int
    context_tokens: int
    """Tokens in front of the prompt, which llama-benchy calls depth."""
    output_tokens: int

    @property
    def all_prompt_tokens(self) -> int:
        """Number of tokens of context and prompt together."""
        return self.context_tokens + self.prompt_tokens


@dataclass(slots=True)
class Begun:
    """A line of the progress stream that is the first of a benchmark.

    `at` is the line's Unix time in seconds by the clock of the machine that wrote the stream. The field `at`
    of the other kinds of lines has the same meaning.
    """

    at: float
    tool: str


@dataclass(slots=True)
class Started:
    """A line of the progress stream: a request is about to be sent."""

    at: float
    request_id: int
    run: int
    asked: Asked


@dataclass(slots=True)
class Responded:
    """A line of the progress stream: the first chunk of a request's answer arrived."""

    at: float
    request_id: int
    after_s: float
    """Seconds from the request's start to the chunk, as the tool measured them."""


@dataclass(slots=True)
class GaveToken:
    """A line of the progress stream: the first chunk with text of a request's answer arrived."""

    at: float
    request_id: int
    after_s: float
    """Seconds from the request's start to the chunk, as the tool measured them."""


@dataclass(slots=True)
class GaveTokens:
    """A line of the progress stream: any chunk with text of a request's answer arrived."""

    at: float
    request_id: int
    count: int
    is_guess: bool
    """True if the server sent no token ids, so that a chunk was counted as one token."""


@dataclass(slots=True)
class Ended:
    """A line of the progress stream: a request has ended, successfully or not."""

    at: float
    request_id: int
    tokens: int
    """Number of generated tokens by the server's count, else by the tool's."""
    prompt_tokens: int | None
    """Number of prompt tokens by the server's count; None if unknown."""
    error: str
    """The error message; empty if the request succeeded."""


@dataclass(slots=True)
class Completed:
    """A line of the progress stream that is the last of a benchmark."""

    at: float
    status: str
    """ok, interrupted or error."""


Line = Begun | Started | Responded | GaveToken | GaveTokens | Ended | Completed


class LineReader:
    """Splits a stream that arrives in parts into lines and parses them; counts the lines that are invalid."""

    def __init__(self) -> None:
        """Start at the beginning of a stream."""
        self._rest = b""
        """The beginning of a line whose end has not arrived yet."""
        self._skips = False
        """True while the rest of a line that is too long is ignored."""
        self.passed_over: Counter[str] = Counter()
        """Number of ignored lines by reason."""

    def feed(self, data: bytes) -> Iterator[Line]:
        """Add data to the stream, and yield each line that is complete now, parsed.

        Invalid lines are counted and skipped.
        """
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
    """Parse a line of the progress stream; return None for a line that sparktop does not need.

    If the line is invalid, return the reason as text.
    """
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
        return None  # llama-benchy subtracts this latency from its own metrics; sparktop does not
    read = _READERS.get(kind) if isinstance(kind, str) else None
    return "of an unknown type" if read is None else read(at, fields) or f"{kind} without what it needs"


def passed_words(counts: Counter[str]) -> str | None:
    """Return a message on how many lines of a stream were ignored, by reason; None if there were none."""
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
        error=(clean(error) or "no reason given") if error else "",
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
    """Return a server's URL without user name, password, query and /v1; "" if it is not an HTTP URL."""
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
