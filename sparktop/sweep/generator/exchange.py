"""One completion request and its streamed answer, from writing the request to the end of the stream."""

from __future__ import annotations

import json
import re
from array import array
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from sparktop.model.failure import RequestFailure
from sparktop.model.load import (
    AnswerRead,
    ConversationCall,
    EndReason,
    LoadEvent,
    RequestEnded,
    RequestStarted,
)
from sparktop.model.plain import hide_in_repr
from sparktop.model.text import clean
from sparktop.net.failure import not_http, server_words
from sparktop.net.parser import BrokenAnswerError, HttpAnswer
from sparktop.sweep.generator.connection import Connection, Endpoint
from sparktop.sweep.generator.prompts import NewPrompt, PromptMaker
from sparktop.sweep.generator.stream import ENDLESS_EVENT, TokenStream
from sparktop.sweep.generator.wire import BIN_S, Batch, TokenBin, TokenTimes
from sparktop.sweep.plan.own_requests import Prompt
from sparktop.sweep.plan.plan import Api, Timeouts
from sparktop.sweep.terms import request_errors as errors
from sparktop.sweep.terms.request_errors import (
    WORDS_LIMIT,
    body_failure,
    event_failure,
    request_failure,
    status_failure,
)

_MOST_WORDS_BYTES = 64 << 10
"""Maximum bytes that are kept of a body that is not an event stream."""
_WORDS_S = 2.0
"""Maximum seconds from the head of an error response to the end of its body."""
_TRAILING_S = 0.25
"""Maximum seconds from the stream's last event to the end of the response."""
_STALE_S = 2.0
"""Maximum seconds from a request to the loss of its idle connection for which the server is taken to have
closed that while it was idle: the news takes a round trip, and longer where this process is late. A server
that closes it later gave up the request itself. TCP does not tell the two apart: servers that read ahead have
acknowledged a request that they drop unread (an asyncio server with an idle time of 0.25 s: one of four)."""
_SPARE_TOKENS = 64
"""Tokens beyond twice the number asked for, from which on an answer is taken not to stop."""
_AT_ONCE_SHARE = 0.1
"""Share (0 to 1) of a request within which first event and end of an answer arrive together."""
_SERVED_BY_HEADERS = ("x-litellm-model-id", "x-litellm-model-api-base")
"""Headers in which LiteLLM names the backend that answered, the better one first."""
_ROUTER_MS_HEADER = "x-litellm-overhead-duration-ms"
"""Header in which LiteLLM says how many milliseconds it added."""
_ROUTER_MS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,20})?")
"""A valid value of the header; LiteLLM may also send "None" or a negative number, which count as unknown."""
_FAILED_FINISHES = frozenset({"error", "abort", "aborted", "cancelled", "timeout"})
"""Finish reasons with which a server says that it did not complete the answer."""


@hide_in_repr("content")
class ReadyRequest(Struct, frozen=True):
    """A completion request that is serialised and ready to be sent."""

    request_id: str
    content: bytes
    """Complete HTTP request: head and body."""
    prompt_tokens: int | None
    output_tokens: int
    due: float | None = None
    """Open loop: when it is due, in monotonic seconds; None in other modes."""
    call: ConversationCall | None = None
    """Agents: its place in a conversation; None in other modes."""

    def started(self, at: float, run: int, *, resent: bool = False) -> RequestStarted:
        """Return the event that its body was written at the time `at`."""
        return RequestStarted(self.request_id, at, run, self.prompt_tokens, self.due, self.call, resent)


@hide_in_repr("secret", "own_texts")
class Terms(Struct, frozen=True):
    """What all requests of a load run share: server address, time limits, API key, kind of server."""

    where: str
    """Host and port of the server, for messages."""
    router: bool = False
    """True if the server is a router."""
    secret: str | None = None
    """API key, redacted from error messages in case the server repeats it."""
    timeouts: Timeouts = Timeouts()
    own_texts: tuple[str, ...] = ()
    """What the user added to requests, redacted likewise."""
    first_event_is_token: bool = False
    """True if the server sends its first event, the role, at the time of its first token."""
    keep_text: bool = False
    """True if the texts of answers are collected."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """What error messages must not repeat."""
        return (*([self.secret] if self.secret else ()), *self.own_texts)


class Exchange:
    """A request and its answer on one connection.

    It calls `freed` exactly once, when it no longer uses the connection.
    """

    def __init__(
        self,
        request: ReadyRequest,
        connection: Connection,
        log: RunLog,
        terms: Terms,
        freed: Callable[[Exchange], None],
        *,
        resent: bool = False,
    ) -> None:
        """Send the request at once, and record its events in `log`; `resent` if it was sent before."""
        self.request = request
        self.connection = connection
        self.answer = HttpAnswer()
        self.stream = TokenStream(keep_text=terms.keep_text)
        self.end: RequestEnded | None = None
        """Set when the request is over. The connection may still be needed to read the end of the body."""
        self.words = bytearray()
        """The beginning of a body that is not an event stream."""
        self.is_stale = False
        """True if the server had closed the connection while it was idle: instead of an end the request needs
        another connection."""
        self._log = log
        self._terms = terms
        self._freed: Callable[[Exchange], None] | None = freed
        self._may_be_stale = connection.was_idle
        """True until a byte arrives, if the server may have closed the connection before the request."""
        self._served_by: str | None = None
        self._router_ms: float | None = None
        self._head_at: float | None = None
        self._most_tokens = 2 * request.output_tokens + _SPARE_TOKENS
        connection.reader = self
        self.started_at = connection.send(request.content)
        log.request_started(request.started(self.started_at, log.run, resent=resent))

    def take(self, at: float, data: bytes) -> None:
        """Parse data that was read at the time `at`; record tokens, and end the request if it is over."""
        self._may_be_stale = False
        try:
            body = self.answer.feed(data)
            if self._head_at is None and self.answer.status is not None:
                self._read_head(at)
            if body and self.end is None:
                self._read_body(at, body)
        except BrokenAnswerError as error:
            words = f"{self._terms.where}: {error}"
            is_http = self.answer.status is not None
            self._fail(at, errors.MALFORMED, words if is_http else not_http(self._terms.where, data).message)
        if self.answer.done:
            self._body_ended(at)
            self._release_connection(reusable=self.answer.reusable)

    def lost(self, at: float, error: Exception | None) -> None:
        """End the request because the connection was lost at the time `at`.

        This is a failure, unless the answer is complete. An answer whose head states no length is complete
        when the connection is closed.
        """
        where = self._terms.where
        if self._may_be_stale and self.end is None and at - self.started_at <= _STALE_S:
            self.is_stale = True
        elif self.answer.close():
            self._body_ended(at)
        elif self._head_at is None:
            why = f" ({clean(error, 60)})" if error is not None and str(error) else ""
            self._fail(at, errors.DISCONNECTED, f"{where} closed the connection without an answer{why}")
        elif not self.answer.is_ok:
            self._fail_by_status(at)
        else:
            tokens = self.stream.tokens
            self._fail(at, errors.TRUNCATED, f"the stream of {where} broke off after {tokens} tokens")
        self._release_connection(reusable=False)

    def fail(self, failure: RequestFailure) -> None:
        """End the request, which could not be sent again, with `failure`."""
        self._end_request(failure.at, EndReason.ERROR, failure)

    def cancel(self, at: float) -> None:
        """Cancel the request at the time `at` unless it is over.

        Close its connection, unless `freed` was called before.
        """
        self._end_request(at, EndReason.ABORT, None)
        self._release_connection(reusable=False)

    def check(self, now: float) -> None:
        """End the request as failed if it exceeds a time limit at the time `now`; called at intervals."""
        times, limits, where = self.stream.times, self._terms.timeouts, self._terms.where
        if self.end is not None:
            if now - self.end.at > _TRAILING_S:
                self._release_connection(reusable=False)
        elif self._head_at is not None and not self.answer.is_ok:
            if now - self._head_at > _WORDS_S:
                self._fail_by_status(now)
        elif not times and now - self.started_at > limits.first_token_s:
            message = f"no token from {where} within {limits.first_token_s:g} s"
            self._fail(now, errors.TIMEOUT_FIRST_TOKEN, message)
        elif times and now - times[-1] > limits.between_tokens_s:
            message = f"{where} stopped in mid-stream: no token for {limits.between_tokens_s:g} s"
            self._fail(now, errors.TIMEOUT_BETWEEN_TOKENS, message)
        elif now - self.started_at > limits.whole_s:
            message = f"{where} did not finish a request within {limits.whole_s:g} s"
            self._fail(now, errors.TIMEOUT_WHOLE, message)

    @property
    def came_at_once(self) -> bool:
        """True if the first event and the end of the answer arrived almost together.

        The time between them must be at most a tenth of the request's duration. False for a failed request,
        and if the first event has more than the role "assistant".
        """
        prelude_s = self.stream.prelude_s
        if prelude_s is None or self.end is None or not self.end.ok:
            return False
        return prelude_s <= _AT_ONCE_SHARE * (self.end.at - self.started_at)

    def _read_head(self, at: float) -> None:
        self._head_at = at
        for name in _SERVED_BY_HEADERS:
            if value := clean(self.answer.headers.get(name, "")):
                self._served_by = value
                break
        router_ms_text = self.answer.headers.get(_ROUTER_MS_HEADER, "")
        self._router_ms = float(router_ms_text) if _ROUTER_MS.fullmatch(router_ms_text) else None

    def _read_body(self, at: float, body: bytes) -> None:
        stream = self.stream
        if not stream.tokens:
            self._read_beginning(at, body)
        elif count := stream.feed(at, body):
            self._log.later_tokens(at, count, self._served_by)
        if stream.error is not None:
            terms = self._terms
            words = server_words(stream.error.encode(), terms.secrets, WORDS_LIMIT)
            failure = event_failure(words, at, terms.where, router=terms.router)
            self._end_request(at, EndReason.ERROR, failure)
        elif stream.fault is not None:
            word = errors.ENDLESS if stream.fault == ENDLESS_EVENT else errors.MALFORMED
            self._fail(at, word, f"{self._terms.where} {stream.fault}")
        elif stream.done:
            self._body_ended(at)
        elif stream.tokens > self._most_tokens:
            asked = self.request.output_tokens
            message = f"{self._terms.where} does not stop: {stream.tokens} tokens, {asked} were asked for"
            self._fail(at, errors.ENDLESS, message)

    def _read_beginning(self, at: float, body: bytes) -> None:
        """Parse a part of the body up to the read with the first token, or a body that is not a stream."""
        stream, log, name = self.stream, self._log, self.request.request_id
        had_begun = stream.has_begun
        if not had_begun and len(self.words) < _MOST_WORDS_BYTES:
            self.words += body[:_MOST_WORDS_BYTES]
        if not self.answer.is_ok:
            return
        count = stream.feed(at, body)
        if count or (stream.has_begun and not had_begun):
            log.add(AnswerRead(name, at, count, stream.is_reasoning))
        if count:
            log.later_tokens(at, count, self._served_by)

    def _body_ended(self, at: float) -> None:
        """End the request after a complete answer: as failed if the answer is faulty, else as successful."""
        stream, where = self.stream, self._terms.where
        if self.end is not None:
            return
        stream.close()
        if not self.answer.is_ok:
            self._fail_by_status(at)
        elif not stream.has_begun:
            body = bytes(self.words)
            words = server_words(body, self._terms.secrets, WORDS_LIMIT)
            quoted = f": {words}" if words and b'"choices"' not in body else ""
            message = f"{where} answered without an event stream{quoted}"
            failure = body_failure(words, body, at, where)
            self._end_request(at, EndReason.ERROR, failure or request_failure(errors.NO_STREAM, message, at))
        elif stream.finish_reason in _FAILED_FINISHES:
            message = f"{where} ended a request with finish_reason {stream.finish_reason}"
            self._fail(at, errors.ERROR_EVENT, message)
        elif not (stream.done or stream.finish_reason or stream.tokens >= self.request.output_tokens):
            message = f"the stream of {where} ended early, after {stream.tokens} tokens"
            self._fail(at, errors.TRUNCATED, message)
        elif not (stream.times or stream.count_tokens().generated):
            self._fail(at, errors.NO_TOKENS, f"the stream of {where} held no token")
        else:
            reason = EndReason.LENGTH if stream.finish_reason == "length" else EndReason.STOP
            self._end_request(at, reason, None)

    def _fail_by_status(self, at: float) -> None:
        terms = self._terms
        failure = status_failure(
            self.answer.status or 0,
            server_words(bytes(self.words), terms.secrets, WORDS_LIMIT),
            at,
            terms.where,
            router=terms.router,
            has_key=terms.secret is not None,
            served_by=self._served_by,
            headers=self.answer.headers,
        )
        self._end_request(at, EndReason.ERROR, failure)

    def _fail(self, at: float, word: str, message: str) -> None:
        self._end_request(at, EndReason.ERROR, request_failure(word, message, at))

    def _end_request(self, at: float, reason: EndReason, error: RequestFailure | None) -> None:
        if self.end is not None:
            return
        tokens = self.stream.count_tokens(first_event_is_token=self._terms.first_event_is_token)
        usage = self.stream.usage
        self.end = RequestEnded(
            request_id=self.request.request_id,
            at=at,
            reason=reason,
            error=error,
            prompt_tokens=None if usage is None else usage.prompt_tokens,
            cached_tokens=None if usage is None else usage.cached_tokens,
            generated_tokens=tokens.generated,
            token_source=tokens.source,
            served_by=self._served_by,
            hidden_before=tokens.hidden_before,
            spans_all=tokens.spans_all,
            router_ms=self._router_ms,
        )
        self._log.request_ended(self.end, tokens.times, tokens.counts, tokens.answer_from)
        if reason is EndReason.ERROR and not self.answer.done:
            self._release_connection(reusable=False)

    def _release_connection(self, *, reusable: bool) -> None:
        """Call `freed` unless it was called before; close the connection first if it is not `reusable`."""
        freed, self._freed = self._freed, None
        if freed is None:
            return
        if reusable and self.connection.open:
            self.connection.reader = None
        else:
            self.connection.abort()
        freed(self)


# Request bodies for both OpenAI-compatible completion APIs: only the prompt and a salt vary within a run.


CACHE_SALT = "cache_salt"
"""Field with which vLLM keeps a request's prompt apart from others in the prefix cache."""
MAX_TOKENS, MAX_COMPLETION_TOKENS = "max_tokens", "max_completion_tokens"
"""Names of the field for the length of an answer: the older one, which most servers take, and the newer."""
TOKEN_IDS, STREAM_OPTIONS, CHUNK_USAGE = "return_token_ids", "stream_options", "continuous_usage_stats"
OPTIONAL_FIELDS = (TOKEN_IDS, CACHE_SALT, "min_tokens", "ignore_eos", STREAM_OPTIONS, CHUNK_USAGE)
"""Fields that an OpenAI-compatible server need not support; a server that refuses one gets requests without
it.  `CHUNK_USAGE` is a key within `STREAM_OPTIONS`. It requests the running total of generated tokens in each
chunk of the answer."""
_PATHS = {Api.CHAT: "/v1/chat/completions", Api.COMPLETIONS: "/v1/completions"}
"""Path of each completion API."""


@hide_in_repr("extra")
class BodyForm(Struct, frozen=True):
    """The constant part of request bodies: all except prompt, number of output tokens and cache salt."""

    model: str
    api: Api
    dropped: frozenset[str] = frozenset()
    """Fields that the server refuses: bodies leave out optional ones, and name the length by its newer name
    where it is `MAX_TOKENS`."""
    extra: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """Further fields, which the user gives: they replace optional ones."""

    @property
    def droppable(self) -> frozenset[str]:
        """Fields of a body, as a refusal may name them, without which a request can be tried again."""
        length = frozenset() if MAX_TOKENS in self.dropped else frozenset({MAX_TOKENS, MAX_COMPLETION_TOKENS})
        return frozenset(OPTIONAL_FIELDS) - self.dropped - self.extra.keys() | length

    def without(self, fields: Collection[str]) -> BodyForm:
        """Return a copy whose bodies also leave out the optional `fields`."""
        return replace(self, dropped=self.dropped | frozenset(fields))

    def request(
        self,
        endpoint: Endpoint,
        prompt: Prompt,
        output_tokens: int,
        cache_salt: str | None,
        context: str | None = None,
    ) -> bytes:
        """Return a complete HTTP request to `endpoint`, head and body, as bytes to write.

        It asks for a stream of exactly `output_tokens` tokens. `context` is text before the prompt, in a chat
        as a system message; None without one.
        No `temperature` is sent, so the server's default applies. With temperature 0, a model with random
        weights would repeat itself, and routers treat repeated output as a fault.
        """
        if self.api is Api.CHAT:
            system_messages = [] if context is None else [{"role": "system", "content": context}]
            messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
            encoded = _compact_json([*system_messages, *messages])
        else:
            encoded = _compact_json(prompt if context is None else f"{context}\n{prompt}")
        return self.conversation(endpoint, (encoded[1:-1],), output_tokens, cache_salt)

    def conversation(
        self, endpoint: Endpoint, parts: Iterable[bytes], output_tokens: int, cache_salt: str | None
    ) -> bytes:
        """Return a request as `request` does, for a prompt that is already encoded.

        `parts` together are the content of the JSON array of messages or, for the completions API, of the
        JSON string of the prompt.
        """
        begin, end = (b'{"messages":[', b"],") if self.api is Api.CHAT else (b'{"prompt":"', b'",')
        fields = _compact_json(self._other_fields(output_tokens, cache_salt))
        body = b"".join((begin, *parts, end, fields[1:]))
        return endpoint.head("POST", _PATHS[self.api], len(body)) + body

    def _other_fields(self, output_tokens: int, cache_salt: str | None) -> dict[str, object]:
        """Return all fields of a body except the prompt."""
        length = MAX_COMPLETION_TOKENS if MAX_TOKENS in self.dropped else MAX_TOKENS
        fields: dict[str, object] = {"model": self.model, length: output_tokens, "stream": True}
        optional: dict[str, object] = {
            STREAM_OPTIONS: {"include_usage": True}
            | ({} if CHUNK_USAGE in self.dropped else {CHUNK_USAGE: True}),
            TOKEN_IDS: True,
            "ignore_eos": True,
            "min_tokens": output_tokens,
        }
        if cache_salt is not None:
            optional[CACHE_SALT] = cache_salt
        sent_fields = {name: value for name, value in optional.items() if name not in self.dropped}
        return {**fields, **sent_fields, **self.extra}


class Recipe(Struct, frozen=True):
    """The result of a calibration: how to make requests for a server and one prompt length."""

    form: BodyForm
    prompt: NewPrompt
    maker: PromptMaker
    """Makes prompts of other lengths: exact if the server counts words, else by estimates."""
    first_event_is_token: bool = False
    """True if the server sends its first event (with the role only) at the time of the first token. False if
    it sends this event as soon as it accepts the request."""


def _compact_json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


# The log of a load run in progress: events, tokens per tenth of a second, exact arrival times of tokens.


_BINS_PER_S = round(1 / BIN_S)
"""Token bins in a second."""


class RunLog:
    """The log of one load run, from which messages to the parent process are made."""

    def __init__(self, run_id: str, run: int = 0) -> None:
        """Start an empty log of the run `run_id`; `run` is its number within the level."""
        self.run_id = run_id
        self.run = run
        self.in_flight = 0
        self._events: list[LoadEvent] = []
        self._bins: defaultdict[tuple[int, str | None], int] = defaultdict(int)
        self._times: list[TokenTimes] = []

    def add(self, event: LoadEvent) -> None:
        """Add an event for which nothing else is recorded."""
        self._events.append(event)

    def request_started(self, start: RequestStarted) -> None:
        """Record that a request was written to its connection."""
        self.in_flight += not start.resent
        self._events.append(start)

    def later_tokens(self, at: float, count: int, served_by: str | None) -> None:
        """Record that a network read at the time `at` brought `count` tokens of an answer."""
        self._bins[int(at * _BINS_PER_S), served_by] += count

    def request_ended(
        self, end: RequestEnded, times: array[float], counts: list[int], answer_from: int
    ) -> None:
        """Record the end of a request, and keep its exact token times, which `token_times` returns.

        `times` and `counts` have the time and the token count of each network read of the answer. Reads
        before the index `answer_from` brought only reasoning tokens.
        """
        self.in_flight -= 1
        self._events.append(end)
        if times:
            self._times.append(TokenTimes(self.run_id, end.request_id, times, counts, answer_from))

    def flush(self, at: float) -> Batch | None:
        """Return a message with the events and tokens since the last call; None if there are none.

        The tokens are summed per tenth of a second and backend.
        """
        if not self._events and not self._bins:
            return None
        events, self._events = self._events, []
        bins, self._bins = self._bins, defaultdict(int)
        return Batch(
            self.run_id,
            at,
            self.in_flight,
            tuple(events),
            tuple(
                TokenBin(number / _BINS_PER_S, served_by, count)
                for (number, served_by), count in bins.items()
            ),
        )

    def token_times(self) -> Sequence[TokenTimes]:
        """Return the exact token times of all ended requests, a message each."""
        return self._times
