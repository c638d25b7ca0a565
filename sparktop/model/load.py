"""Load on a server, as events: what the generator, the simulated cluster and the recorder all speak.

All times are monotonic seconds of whoever made the load (or model seconds in a simulation), so only their
differences mean something. A request gives, in this order: `RequestStarted`, perhaps `ResponseStarted`, then
`FirstToken`, any number of `Tokens`, and one `RequestEnded`. A level gives `LevelStarted`, its runs with
their requests between `RunStarted` and `RunEnded`, and `LevelEnded`. What each figure made of them means
stands in `sparktop.sweep.result.measure`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sparktop.model.failure import Failure


class LoadMode(StrEnum):
    """How the requests of a run follow one another."""

    BURST = "burst"
    """All at once, and the run ends when all have ended."""
    STEADY = "steady"
    """So many in flight for a duration: one that ends is replaced at once."""


class TokenSource(StrEnum):
    """What the number of tokens in a chunk was taken from, best first."""

    TOKEN_IDS = "token_ids"  # noqa: S105 - a word of the result file, no password
    CHUNK_USAGE = "chunk_usage"
    """The server's running total, sent with each chunk."""
    USAGE = "usage"
    """Each chunk is one token, checked against the server's total at the end. Where the two disagree, the
    times of single tokens are unknown and every figure that needs them is withheld."""
    CHUNKS = "chunks"
    """The server sends no counts: each chunk is taken for one token."""


class EndReason(StrEnum):
    """How a request ended."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    """Called off by whoever sent it: the level's time was up, or a person stopped it."""
    ERROR = "error"
    """Refused, broken off or cut short; the event holds the failure."""


@dataclass(frozen=True, slots=True)
class Level:
    """One target under one concurrency: what is asked of it."""

    target: str
    concurrency: int
    prompt_tokens: int
    output_tokens: int
    mode: LoadMode = LoadMode.BURST
    runs: int = 1
    duration_s: float | None = None
    """Of each run in steady mode; None in burst mode."""


@dataclass(frozen=True, slots=True)
class LevelStarted:
    """A level begins."""

    at: float
    level: Level


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A run of the present level begins."""

    at: float
    run: int
    """Counted from 0 in its level."""


@dataclass(frozen=True, slots=True)
class RequestStarted:
    """A request's body was written to the socket: every latency counts from here."""

    request_id: str
    at: float
    run: int = 0
    prompt_tokens: int | None = None
    """As far as known when it starts."""


@dataclass(frozen=True, slots=True)
class ResponseStarted:
    """The first event of the answer's stream came, whatever it held (TTFR ends here)."""

    request_id: str
    at: float


@dataclass(frozen=True, slots=True)
class FirstToken:
    """The read that brought the first token, perhaps several (TTFT ends here)."""

    request_id: str
    at: float
    count: int = 1
    """All tokens of that read: they are not told again by `Tokens`."""
    reasoning: bool = False


@dataclass(frozen=True, slots=True)
class Tokens:
    """A later read that brought tokens."""

    request_id: str
    at: float
    count: int = 1
    reasoning: bool = False


@dataclass(frozen=True, slots=True)
class RequestEnded:
    """A request's stream is over, well or not; nothing of it follows."""

    request_id: str
    at: float
    reason: EndReason
    error: Failure | None = None
    """Why it failed; set exactly when the reason is `error`."""
    prompt_tokens: int | None = None
    """As the server counted them."""
    cached_tokens: int | None = None
    """Of those, the ones that its prefix cache held."""
    generated_tokens: int | None = None
    """As the server counted them; the token events and `hidden_before` add up to it if every token's read is
    known."""
    token_source: TokenSource | None = None
    """What the counts of its token events were taken from."""
    served_by: str | None = None
    """The backend that a router named in its answer."""
    hidden_before: int = 0
    """Tokens that the server counted before the first chunk that shows one, for example hidden reasoning."""
    spans_all: bool = False
    """Its first and last token events are those of its first and last token, though some between may lack."""
    router_ms: float | None = None
    """What a router added before the answer, in milliseconds, as it says in the answer's header."""

    @property
    def ok(self) -> bool:
        """True when the server finished it."""
        return self.reason in {EndReason.STOP, EndReason.LENGTH}


@dataclass(frozen=True, slots=True)
class RunEnded:
    """A run is over: all its requests have ended."""

    at: float
    run: int


@dataclass(frozen=True, slots=True)
class LevelEnded:
    """A level is over."""

    at: float
    level: Level


RequestEvent = RequestStarted | ResponseStarted | FirstToken | Tokens | RequestEnded
"""What can happen to one request."""
LoadEvent = LevelStarted | RunStarted | RequestEvent | RunEnded | LevelEnded
"""Everything that a load tells of itself."""
