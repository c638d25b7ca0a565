"""Source of a remote machine's samples: polls its sparktop agent over HTTP."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from urllib.parse import urlencode

from msgspec.structs import replace

from sparktop import __version__
from sparktop.model.failure import Failure, FailureError, FailureKind
from sparktop.model.node import ClockGap, NodeIdentity, NodeSample
from sparktop.model.ranks import RanksReply
from sparktop.model.targets import NodeTarget
from sparktop.model.text import clean
from sparktop.net.client import OK, HttpSource, Request, Response, SharedSession, read_beside
from sparktop.net.failure import AnswerError, first_line, key_problem, server_words, status_error
from sparktop.sources.decode import MOST_BYTES, WireError, decode, decode_ranks, on_local_clock
from sparktop.sources.replies import ASKS_RANKS, Reply

_USUAL_INTERVAL_S = 1.0
"""Seconds between two samples of an agent that does not say it."""
_LATE_S = 0.02
"""Seconds past its due time at which a sample is requested: taking it needs a moment."""
_SHORTEST_WAIT_S = 0.05
"""Least seconds between two requests for one sample."""
_APART_S = 1e-3
"""Seconds put between two samples that network delays would have swapped."""

AskForReply = Callable[[], Awaitable[tuple[Reply, float]]]
"""Requests the samples after `NodeReplies.since`; returns the reply and its arrival time on this viewer's
clock."""


class NodeReplies:
    """Converts the replies of one node's agent into samples, with times on the clock of this machine.

    Each sample is returned once, in time order.
    """

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        """Create the state before the first reply; `wall` returns Unix time."""
        self._wall = wall
        self.identity: NodeIdentity | None = None
        """Identity of the node; replaced by a new object only when a field changed."""
        self.since: float | None = None
        """The node's clock (seconds) at the newest sample received; None before the first and after a
        restart."""
        self.reader_sha256: str | None = None
        """SHA-256 of the reader that was sent to the node, which becomes part of its identity."""
        self.nothing_new: str | None = None
        """Message that the node answered this poll without a new sample; None if it has not. A source whose
        deadline passes between two requests reports it: the node is not silent."""
        self._boot_id: str | None = None
        self._placed_at: float | None = None
        self._due_at: float | None = None
        self._asked_for: tuple[bool, float | None] | None = None

    def take_reply(self, reply: Reply, received_at: float) -> NodeSample | None:
        """Return the newest sample of `reply`, with other new samples in `missed`; None if no sample is new.

        `received_at` is the time on this machine's clock, in seconds, at which the reply arrived. Updates
        `identity` and `since`.
        """
        self._update_identity(reply)
        since_s = self.since
        new_samples = sorted(
            (sample for sample in reply.samples if since_s is None or sample.at > since_s),
            key=lambda sample: sample.at,
        )
        newest = on_local_clock(replace(reply, samples=tuple(new_samples)), received_at)
        if newest is None:
            return None
        # Not past the node's own time: after a sample from the future, no later one would ever count as new.
        self.since = min(new_samples[-1].at, reply.monotonic_s)
        *missed, last = (self._after_previous(sample) for sample in (*newest.missed, newest))
        return replace(last, missed=tuple(missed))

    async def poll(
        self,
        ask: AskForReply,
        end: float,
        sleep: Callable[[float], Awaitable[None]],
        asked_for: tuple[bool, float | None],
    ) -> NodeSample:
        """Call `ask` repeatedly until a new sample arrives, and return it as `take_reply` does.

        `end` is the deadline in seconds of the event loop's clock; `sleep` waits between two requests.
        `asked_for` is what the requests ask of the node: while it stays the same, the first request waits
        until the next sample is due.

        Raises:
            WireError: no new sample arrived in time. Exceptions of `ask` pass through.
        """
        self.nothing_new = None
        loop = asyncio.get_running_loop()
        if self._due_at is not None and loop.time() < self._due_at < end and asked_for == self._asked_for:
            await sleep(self._due_at - loop.time())
        self._due_at, self._asked_for = None, asked_for
        while True:
            asked_since, asked_at = self.since, self._wall()
            reply, received_at = await ask()
            gap = _clock_gap(reply, asked_at, self._wall())
            sample = self.take_reply(reply, received_at)
            if self.since is None:
                due_s, nothing_new = 0.0, "the agent answers and has taken no sample yet"
            else:
                age_s = reply.monotonic_s - self.since
                due_s = (reply.interval_s or _USUAL_INTERVAL_S) - age_s + _LATE_S
                nothing_new = f"the agent answers, but its newest sample is {max(0.0, age_s):.0f} s old"
            if sample is not None:
                self._due_at = loop.time() + due_s
                return replace(sample, clock=gap)
            if self.since != asked_since:
                continue  # the node restarted: its samples are older than the requested time
            self.nothing_new = nothing_new
            wait_s = max(_SHORTEST_WAIT_S, due_s)
            if loop.time() + wait_s > end:
                raise WireError(FailureKind.TIMEOUT, self.nothing_new)
            await sleep(wait_s)

    def _update_identity(self, reply: Reply) -> None:
        """Update the identity and the boot id from `reply`.

        After a reboot or a clock reset, clear `since`, so that all samples are requested again.
        """
        other_boot = None not in {reply.boot_id, self._boot_id} and reply.boot_id != self._boot_id
        if other_boot or (self.since is not None and reply.monotonic_s < self.since):
            self.since = None
        self._boot_id = reply.boot_id or self._boot_id
        other_version = None if reply.sparktop == __version__ else reply.sparktop
        identity = replace(
            reply.identity,
            sparktop=other_version,
            simulated=reply.simulated,
            reader_sha256=self.reader_sha256,
        )
        if identity != self.identity:
            self.identity = identity

    def _after_previous(self, sample: NodeSample) -> NodeSample:
        """Return the sample, at a time after that of the sample before."""
        if self._placed_at is not None and sample.at <= self._placed_at:
            sample = replace(sample, at=self._placed_at + _APART_S, missed=())
        self._placed_at = sample.at
        return sample


def _clock_gap(reply: Reply, asked_at: float, answered_at: float) -> ClockGap | None:
    """Return how far the node's wall clock is ahead, by an answer between two times (Unix) of this one's."""
    if reply.wall_s is None or answered_at < asked_at:  # this clock was set meanwhile
        return None
    return ClockGap(reply.wall_s - (asked_at + answered_at) / 2, (answered_at - asked_at) / 2)


SAMPLE_PATH, RANKS_PATH = "/v1/sample", "/v1/ranks"
_SHORTEST_S = 0.01
"""Least seconds that a request is given."""


class AgentSource(HttpSource):
    """Polls one agent over HTTP.

    Each returned sample has in `missed` the earlier samples that the agent has taken since the previous poll.
    """

    def __init__(
        self,
        target: NodeTarget,
        *,
        session: SharedSession | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Watch `target` over `session`, which several sources may share; None opens a private session."""
        super().__init__(target.name, target.url or "", target.tls_ca, session, clock)
        self.show_processes = False
        """Whether to request the process table too."""
        self.interval_s: float | None = None
        """Requested seconds between the node's samples; None leaves the interval to the node."""
        self._token, self._token_file = target.token, target.token_file
        self._sleep = sleep
        self._replies = NodeReplies()

    @property
    def identity(self) -> NodeIdentity | None:
        """Identity of the machine; None before the first answer."""
        return self._replies.identity

    async def poll(self, deadline_s: float) -> NodeSample | Failure:
        """Return the newest sample; its `missed` has the older samples that no poll has returned yet.

        Return a `Failure` if no new sample arrives within `deadline_s` seconds.
        """
        end = asyncio.get_running_loop().time() + deadline_s

        async def ask() -> tuple[Reply, float]:
            body, received_at = await self._fetch(SAMPLE_PATH, end)
            return await read_beside(partial(decode, body), len(body), turn=self._session.turn), received_at

        try:
            request = (self.show_processes, self.interval_s)
            return await self._replies.poll(ask, end, self._sleep, request)
        except FailureError as error:
            late_words = self._replies.nothing_new if error.kind is FailureKind.TIMEOUT else None
            return Failure(error.kind, clean(late_words or str(error)), self._clock())

    async def ask_ranks(self, deadline_s: float) -> RanksReply | Failure:
        """Return what NCCL on the agent's machine answers about the ranks of a job, within `deadline_s` s."""
        end = asyncio.get_running_loop().time() + deadline_s
        try:
            body, _ = await self._fetch(RANKS_PATH, end)
            return await read_beside(partial(decode_ranks, body), len(body))
        except FailureError as error:
            message = str(error)
            if error.kind is FailureKind.NOT_FOUND:
                message = f"the agent at {self._where} is too old to ask NCCL: update sparktop there"
            return Failure(error.kind, clean(message, 300), self._clock())

    async def _fetch(self, path: str, end: float) -> tuple[bytes, float]:
        """Send one GET for `path`; return the body, and the arrival time of the headers by this clock.

        Raises:
            AnswerError: a network error, a status other than 200, an unusable body or token file, or the
                deadline `end` (in seconds of the event loop's clock) has passed.
        """
        token = self._token
        if self._token_file is not None:
            token = first_line(self._token_file, f"token_file of {self._where}: ") or None
        if key_problem(token) is not None:
            message = f"the token for {self._where} holds characters that no HTTP header may hold"
            raise AnswerError(FailureKind.UNAUTHORIZED, message)
        request = Request(
            self._url + path,
            self._where,
            token,
            self._query_string() if path == SAMPLE_PATH else "",
            self._trust.context(),
            {ASKS_RANKS: "1"} if path == RANKS_PATH else {},
        )
        left_s = max(_SHORTEST_S, end - asyncio.get_running_loop().time())
        try:
            response = await self._session.get(
                request, deadline_s=left_s, clock=self._clock, cap_bytes=MOST_BYTES
            )
        except AnswerError as error:
            self._trust.forget()
            if error.kind is not FailureKind.REFUSED:
                raise
            message = f"no agent at {self._where}: start `sparktop agent` there (connection refused)"
            raise AnswerError(FailureKind.REFUSED, message) from error
        if response.status != OK:
            raise _refusal_error(response, self._where, token)
        return response.body, response.at

    def _query_string(self) -> str:
        query: dict[str, str] = {}
        if self._replies.since is not None:
            query["since"] = repr(self._replies.since)
        if self.show_processes:
            query["processes"] = "1"
        if self.interval_s is not None:
            query["interval_s"] = f"{self.interval_s:g}"
        return f"?{urlencode(query)}" if query else ""


def _refusal_error(response: Response, where: str, token: str | None) -> AnswerError:
    """Return the `AnswerError` for an agent's HTTP status other than 200.

    `where` is the agent's host and port, `token` the token that was sent.
    """
    words = server_words(response.body, token)
    quoted = f": {words}" if words else ""
    match response.status:
        case 401 | 403 if token:
            message = f"the agent at {where} refuses the token: look at token_env or token_file in the config"
            return AnswerError(FailureKind.UNAUTHORIZED, f"{message}{quoted}")
        case 401 | 403:
            message = f"the agent at {where} wants a token: set token_env or token_file in the config"
            return AnswerError(FailureKind.UNAUTHORIZED, f"{message}{quoted}")
        case 404:
            message = f"404: no sparktop agent answers at {where}: is the URL right?"
            return AnswerError(FailureKind.NOT_FOUND, f"{message}{quoted}")
        case 429:
            return AnswerError(FailureKind.HTTP, f"429: the agent at {where} is asked too often{quoted}")
        case 503:
            # Not LOADING, which counts as a healthy state.
            message = f"the agent at {where} has no sample"  # where a row is short, its reason is worth more
            return AnswerError(FailureKind.HTTP, f"503: {words} ({message})" if words else f"503: {message}")
        case status:
            location = response.headers.get("Location", "")
            return status_error(status, where, location=location, words=words, has_key=token is not None)
