"""What a load test is made of: modes, kinds, points and levels of load, and the events of its requests.

Events come from the load generator and the simulated cluster; the recorder keeps them. All times are
monotonic seconds of the machine that sends the load (model seconds in a simulation), so only their
differences have a meaning. A request yields, in this order: `RequestStarted` (again where it is sent again),
any number of `AnswerRead`, and one `RequestEnded`. A run yields `RunStarted`, then its requests.
`sparktop.sweep.result.measure` defines the metrics computed from these events.

Also the place of a request in a conversation.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from sparktop.model.failure import RequestFailure


class LoadMode(StrEnum):
    """How the requests of a run (one repetition of a load level) follow one another."""

    BURST = "burst"
    """All requests start at once; the run ends when all have ended."""
    STEADY = "steady"
    """A constant number of requests in flight for a duration: a request that ends is replaced at once."""
    OPEN = "open"
    """Requests begin at times drawn before the run, however many are in flight: an open loop."""
    AGENTS = "agents"
    """Agents, each of which pauses after an answer before it sends its next request."""

    @property
    def noun(self) -> str:
        """A name for it: "bursts", "closed loop", "open loop", "agents"."""
        return _MODE_WORDS[self][0]

    @property
    def sentence(self) -> str:
        """The name with how requests follow one another."""
        return ": ".join(_MODE_WORDS[self])


_MODE_WORDS = {
    LoadMode.BURST: ("bursts", "each run starts all requests at once"),
    LoadMode.STEADY: ("closed loop", "a request that ends is replaced at once"),
    LoadMode.OPEN: ("open loop", "requests come at a rate, however many are in flight"),
    LoadMode.AGENTS: ("agents", "each pauses after an answer before its next request"),
}
"""(Name, how requests follow one another) of each mode."""


class LoadKind(StrEnum):
    """What a sweep varies from level to level: the axis of its tables and curves."""

    CONCURRENCY = "concurrency"
    """Requests at the same time."""
    RATE = "rate"
    """Requests per second that arrive, however many are in flight."""
    AGENTS = "agents"
    """Conversations at the same time, with pauses of tools and people."""

    @property
    def amount(self) -> str:
        """What the values of the axis count: "requests at once", "requests per second", "agents"."""
        return _KIND_WORDS[self][0]

    @property
    def sign(self) -> str:
        """The same in at most six cells, for the edge of a plot: "c", "/s", "agents"."""
        return _KIND_WORDS[self][1]

    @property
    def example(self) -> str:
        """The short name of a level, and what it stands for."""
        return _KIND_WORDS[self][2]


_KIND_WORDS = {
    LoadKind.CONCURRENCY: ("requests at once", "c", "c16: 16 requests at once"),
    LoadKind.RATE: (
        "requests per second",
        "/s",
        "2/s: two requests per second arrive, however many are in flight",
    ),
    LoadKind.AGENTS: (
        "agents",
        "agents",
        "8 agents: as many conversations at once, with pauses of tools and people",
    ),
}
"""(Amount, sign, example) of each kind of load."""


REMOVED_KINDS = frozenset({"pools", "users"})
"""Values of `LoadKind` in files of earlier versions; what these hold of them is ignored."""


MOST_IN_FLIGHT = 512
"""Requests in flight from which on an open-loop level makes further ones wait in the client."""


ALIKE_WITHIN_PERCENT = 10
"""Lengths in tokens up to so many percent apart are alike: they share a row of a comparison."""


def are_like_lengths(count: int | None, other: int | None) -> bool:
    """Return whether two lengths in tokens are alike, as far as both are known."""
    if count is None or other is None:
        return True
    return 100 * max(count, other) <= (100 + ALIKE_WITHIN_PERCENT) * min(count, other)


class LoadPoint(Struct, frozen=True):
    """The position of a level on the axis of its sweep; points of different kinds are never compared."""

    kind: LoadKind
    value: float
    rises_to: float | None = None
    """The value at the end of a level during which it rises; None if it stays the same."""
    trace: str | None = None
    """Name of the recorded traffic whose mean rate this is; None for arrivals that are drawn."""
    text: str | None = None
    """The kind of text that all prompts are, such as "code"; None for made prompts and the user's own."""

    @property
    def concurrency(self) -> int:
        """The number of requests at the same time; 0 on another axis."""
        return int(self.value) if self.kind is LoadKind.CONCURRENCY else 0

    @property
    def most_in_flight(self) -> int:
        """The most requests in flight of a level."""
        return MOST_IN_FLIGHT if self.kind is LoadKind.RATE else int(self.value)

    @property
    def words(self) -> str:
        """The value as a user writes it: "8", "1.5", or "0.5..4" for a rising one."""
        first = f"{self.value:g}"
        return first if self.rises_to is None else f"{first}..{self.rises_to:g}"

    @property
    def label(self) -> str:
        """The point with its unit: "c = 8", "c = 8 code", "1.5 /s", "1.5 /s of day.csv", "8 agents"."""
        match self.kind:
            case LoadKind.CONCURRENCY:
                return f"c = {self.words}" + ("" if self.text is None else f" {self.text}")
            case LoadKind.RATE:
                return f"{self.words} /s" + ("" if self.trace is None else f" of {self.trace}")
            case LoadKind.AGENTS:
                return f"{self.words} agent" if self.value == 1 else f"{self.words} agents"

    @property
    def short(self) -> str:
        """The point for narrow columns: "c8", "1.5/s", "8 agents"."""
        match self.kind:
            case LoadKind.CONCURRENCY:
                return f"c{self.words}" + ("" if self.text is None else f" {self.text}")
            case LoadKind.RATE:
                return f"{self.words}/s"
            case _:
                return self.label

    @property
    def order(self) -> tuple[int, float, float, str, str]:
        """The sort key: by kind, then ascending by value."""
        return (
            list(LoadKind).index(self.kind),
            self.value,
            self.rises_to or 0.0,
            self.trace or "",
            self.text or "",
        )

    def __lt__(self, other: LoadPoint) -> bool:
        """Return whether this point comes before `other` in tables and curves."""
        return self.order < other.order


def concurrency_point(concurrency: int, text: str | None = None) -> LoadPoint:
    """Return the point of a level of `concurrency` requests at the same time, of a kind of text if given."""
    return LoadPoint(LoadKind.CONCURRENCY, concurrency, text=text)


class Level(Struct, frozen=True):
    """A load level: what is sent to one target at one point of the axis, in one or more runs."""

    target: str
    """Name of the target; "" in rows that compare several, and where it does not matter."""
    point: LoadPoint
    pp: int | None = None
    """Prompt tokens of each request, its context not included. None if they are not known, or differ: those
    of the user's own prompts and of built-in texts."""
    tg: int | None = None
    """Output tokens of each request; None if unknown."""
    depth: int = 0
    """Tokens of context before the prompt."""

    @property
    def label(self) -> str:
        """The load without its lengths: "c = 4", "c = 4 @ 8,192"."""
        return self.point.label + (f" @ {self.depth:,}" if self.depth else "")

    @property
    def order(self) -> tuple[LoadPoint, int, int, int]:
        """The sort key: the point, then context, prompt and output tokens; unknown lengths are 0."""
        return self.point, self.depth, self.pp or 0, self.tg or 0


class TokenSource(StrEnum):
    """How the number of tokens in a chunk of an answer is determined, the most reliable method first."""

    TOKEN_IDS = "token_ids"  # noqa: S105 - a word of the result file, not a password
    CHUNK_USAGE = "chunk_usage"
    """The server's running total, sent with each chunk."""
    USAGE = "usage"
    """Each chunk counts as one token, and the sum is compared with the server's total at the end of the
    request. If they differ, the times of single tokens are unknown, and every metric that needs them is
    withheld."""
    CHUNKS = "chunks"
    """The server sends no counts: each chunk counts as one token."""


class EndReason(StrEnum):
    """How a request of a load test ended."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    """Cancelled by the client: the level's time was up, or the user stopped it."""
    ERROR = "error"
    """Refused, broken off or cut short; the event holds the failure."""


class RunStarted(Struct, frozen=True, tag=True, omit_defaults=True):
    """Event: a run (one repetition) of the current load level begins."""

    at: float
    run: int
    """Number of the run in its level, counted from 0."""
    measured: tuple[float, float] | None = None
    """Open loop: begin and end of the time in which the measured requests are due; None if the run does not
    say."""


class RequestStarted(Struct, frozen=True, tag=True, omit_defaults=True):
    """Event: the body of a request was written to the socket.

    All latencies of the request are measured from here.
    """

    request_id: str
    at: float
    run: int = 0
    prompt_tokens: int | None = None
    """None if it is not known at the start."""
    due: float | None = None
    """Open loop: when the request was due, at or before `at`; None in other modes."""
    call: ConversationCall | None = None
    """Agents: the place of the request in its conversation; None in other modes."""
    resent: bool = False
    """Whether it was sent before on a connection that the server had closed while it was idle. The earlier
    event of the same request does not count."""


class AnswerRead(Struct, frozen=True, tag=True, omit_defaults=True):
    """Event: a read from the socket brought tokens of the answer, or the first SSE event of its stream.

    The time to first response (TTFR) lasts from the request's start to the first of these events, whatever it
    holds; TTFT to the first one with a token.
    """

    request_id: str
    at: float
    count: int = 1
    """Number of tokens in this read; only the first may have none."""
    reasoning: bool = False


class RequestEnded(Struct, frozen=True, tag=True, omit_defaults=True):
    """Event: a request has ended, successfully or not; no other event of the request follows."""

    request_id: str
    at: float
    reason: EndReason
    error: RequestFailure | None = None
    """Why it failed; set exactly when the reason is `error`."""
    prompt_tokens: int | None = None
    """As counted by the server."""
    cached_tokens: int | None = None
    """Those of the prompt tokens that were in the server's prefix cache."""
    generated_tokens: int | None = None
    """As counted by the server. If the read of every token is known, this is the sum of the counts of the
    token events and `hidden_before`."""
    token_source: TokenSource | None = None
    """How the counts in the request's token events are known."""
    served_by: str | None = None
    """The backend that answered, as a router named it in its answer."""
    hidden_before: int = 0
    """Tokens that the server counted before the first visible chunk, for example hidden reasoning."""
    spans_all: bool = False
    """Whether the request's first and last token events hold its first and last token, even if tokens in
    between are missing."""
    router_ms: float | None = None
    """Time that a router added before the answer, in milliseconds, from the answer's header."""

    @property
    def ok(self) -> bool:
        """Whether the server completed the answer (reason STOP or LENGTH)."""
        return self.reason in {EndReason.STOP, EndReason.LENGTH}


RequestEvent = RequestStarted | AnswerRead | RequestEnded
"""Any event of a single request."""
LoadEvent = RunStarted | RequestEvent
"""Any event of a load test."""


# The place of a request in a conversation between a person or an agent and a model.


class CallStart(StrEnum):
    """What a model call follows."""

    HUMAN = "human"
    """A person's request."""
    TOOL = "tool"
    """The output of a tool that the answer before asked for."""


class ConversationCall(Struct, frozen=True):
    """The place of a model call in its conversation."""

    lane: int
    """Number of the user or agent, from 0; it has one conversation after the other."""
    conversation: int
    """Number of the conversation in its lane, from 0."""
    turn: int
    """Number of the call in its conversation, from 0."""
    request: int
    """Number of the human request in the conversation, from 0."""
    start: CallStart
    then: CallStart | None
    """What the next call of the conversation follows; None after its last call."""
    known_tokens: int
    """Tokens at the beginning of the prompt that the server has computed before, for this conversation or, of
    the shared start, for another: what an endless prefix cache would hold."""
    new_tokens: int
    """The other tokens of the prompt."""
    compacted: bool = False
    """Whether the context was compacted just before this call."""
    measured: bool = True
    """False for the call that sends the past of a conversation that begins in the middle of its life."""


class Turn(Struct, frozen=True):
    """The next model call of a conversation, with the lengths that are known before it is sent."""

    place: ConversationCall
    pause_s: float
    """Seconds from the end of the answer before, also of an earlier conversation; 0 for the first call."""
    prompt_tokens: int
    output_tokens: int
    shared_tokens: int
    """Tokens at the beginning of the prompt that all conversations share."""
    compactions: int
    """How often the conversation's context has been compacted, this call included."""
    fits: bool = True
    """False if prompt and answer are too long together, although the context was compacted."""
