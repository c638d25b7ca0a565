"""Events of load on a server: the common language of the generator, the simulated cluster and the recorder.

All times are monotonic seconds on the clock of the load's source (or model seconds in a simulation), so only
their differences have a meaning. A request yields, in this order: `RequestStarted`, perhaps
`ResponseStarted`, then `FirstToken`, any number of `Tokens`, and one `RequestEnded`. A level yields
`LevelStarted`, its runs with their requests between `RunStarted` and `RunEnded`, and `LevelEnded`.
`sparktop.sweep.result.measure` defines the figures computed from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sparktop.model.failure import Failure


class LoadMode(StrEnum):
    """How the requests of a run follow one another."""

    BURST = "burst"
    """All at once; the run ends when all have ended."""
    STEADY = "steady"
    """A constant number in flight for a duration: a request that ends is replaced at once."""


class TokenSource(StrEnum):
    """How the number of tokens in a chunk is known, best first."""

    TOKEN_IDS = "token_ids"  # noqa: S105 - a word of the result file, not a password
    CHUNK_USAGE = "chunk_usage"
    """The server's running total, sent with each chunk."""
    USAGE = "usage"
    """Each chunk counts as one token, checked against the server's total at the end. If the two disagree, the
    times of single tokens are unknown, and every figure that needs them is withheld."""
    CHUNKS = "chunks"
    """The server sends no counts: each chunk counts as one token."""


class EndReason(StrEnum):
    """How a request ended."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    """Cancelled by the client: the level's time was up, or the user stopped it."""
    ERROR = "error"
    """Refused, broken off or cut short; the event holds the failure."""


@dataclass(frozen=True, slots=True)
class Level:
    """The load put on one target at one concurrency."""

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
    """A run of the current level begins."""

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
    """None if it is not known at the start."""


@dataclass(frozen=True, slots=True)
class ResponseStarted:
    """The first event of the answer's stream arrived, whatever it holds (TTFR ends here)."""

    request_id: str
    at: float


@dataclass(frozen=True, slots=True)
class FirstToken:
    """The read that brought the first token, and perhaps more (TTFT ends here)."""

    request_id: str
    at: float
    count: int = 1
    """All tokens of that read; no `Tokens` event repeats them."""
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
    """A request's stream is over, successfully or not; no event of it follows."""

    request_id: str
    at: float
    reason: EndReason
    error: Failure | None = None
    """Why it failed; set exactly when the reason is `error`."""
    prompt_tokens: int | None = None
    """As the server counted them."""
    cached_tokens: int | None = None
    """Prompt tokens among these that were in its prefix cache."""
    generated_tokens: int | None = None
    """As the server counted them; the token events and `hidden_before` add up to it if every token's read is
    known."""
    token_source: TokenSource | None = None
    """How the counts of its token events are known."""
    served_by: str | None = None
    """The backend that a router named in its answer."""
    hidden_before: int = 0
    """Tokens that the server counted before the first visible chunk, for example hidden reasoning."""
    spans_all: bool = False
    """Whether its first and last token events are those of its first and last token, even if some in between
    are missing."""
    router_ms: float | None = None
    """Time that a router added before the answer, in milliseconds, from the answer's header."""

    @property
    def ok(self) -> bool:
        """Whether the server finished it."""
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
"""An event of a single request."""
LoadEvent = LevelStarted | RunStarted | RequestEvent | RunEnded | LevelEnded
"""Any event of a load."""
