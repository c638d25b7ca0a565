"""Failures of requests: an error code under which result files count each, and a message for the user.

The codes are finer than `FailureKind`. For example, `timeout:first_token` and `timeout:whole` have different
causes in a server, and `http:429` from a server is not the same as the rejection by a router in front of it.

Also what a server's refusal says of the field at fault, or of a prompt that is too long.
"""

from __future__ import annotations

import errno
import json
import re
import socket
import ssl
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from email.utils import parsedate_to_datetime
from types import MappingProxyType

from msgspec.structs import replace

from sparktop.model.failure import FailureKind, RequestFailure
from sparktop.model.load import LoadEvent, RequestEnded
from sparktop.model.text import clean
from sparktop.net.failure import server_words, status_error, transport_error

REFUSED = "refused"
"""Nothing listens at the address."""
DNS = "dns"
"""The host name does not resolve."""
UNREACHABLE = "unreachable"
"""There is no route, or the address cannot be used."""
TLS = "tls"
"""The TLS connection cannot be made."""
DESCRIPTORS = "descriptors"
"""The limit of open files of this process is reached."""
TIMEOUT_CONNECT = "timeout:connect"
"""No connection in time."""
TIMEOUT_FIRST_TOKEN = "timeout:first_token"  # noqa: S105 - tokens of a language model, no secret
"""No first token in time."""
TIMEOUT_BETWEEN_TOKENS = "timeout:between_tokens"
"""The stream paused for too long."""
TIMEOUT_WHOLE = "timeout:whole"
"""The answer was not complete in time."""
DISCONNECTED = "disconnected"
"""The connection was closed before a response began."""
TRUNCATED = "truncated"
"""The stream stopped before its end."""
MALFORMED = "malformed"
"""The response is not HTTP, or has events that are not JSON."""
NO_STREAM = "no_stream"
"""The server sent a complete answer instead of a stream, so the times of its tokens are unknown."""
NO_TOKENS = "no_tokens"
"""The stream ended without a token."""
ENDLESS = "endless"
"""The server sent many more tokens than requested, or an event without an end."""
ERROR_EVENT = "error_event"
"""The server sent an error inside a stream that had begun."""
WRONG_MODEL = "wrong_model"
"""The server does not have the requested model."""
ROUTER_REJECTION = "router_rejection"
"""The router had no backend for the request."""
CONTEXT = "context"
"""A conversation does not fit into the server's context, although it was compacted; nothing was sent."""
CANCELLED = "cancelled"
"""A command to the load generator was cancelled before it began; never used for a single request."""
HTTP = "http"
"""Prefix of the code for an HTTP status other than 200, such as `http:429`."""

WORDS_LIMIT = 240
"""Maximum characters kept of a server's error message. Refusals mention the context length only after the
first hundred characters."""

_KINDS = {
    REFUSED: FailureKind.REFUSED,
    DNS: FailureKind.DNS,
    UNREACHABLE: FailureKind.UNREACHABLE,
    TLS: FailureKind.TLS,
    DESCRIPTORS: FailureKind.UNSUPPORTED,
    DISCONNECTED: FailureKind.UNREACHABLE,
    NO_STREAM: FailureKind.UNSUPPORTED,
    ENDLESS: FailureKind.TOO_LARGE,
    CONTEXT: FailureKind.TOO_LARGE,
    WRONG_MODEL: FailureKind.NOT_FOUND,
    ROUTER_REJECTION: FailureKind.HTTP,
    ERROR_EVENT: FailureKind.HTTP,
}
"""Category of each error code; others are malformed answers."""
_STATUS_KINDS = {
    401: FailureKind.UNAUTHORIZED,
    403: FailureKind.UNAUTHORIZED,
    404: FailureKind.NOT_FOUND,
    503: FailureKind.LOADING,
}
"""Category of an HTTP status; others are HTTP errors."""
_TOO_MANY_FILES = frozenset({errno.EMFILE, errno.ENFILE})
_NOT_FOUND = 404
_TOO_MANY_REQUESTS = 429
REDIRECTS = frozenset({301, 302, 303, 307, 308})
_UNAUTHORIZED = frozenset({401, 403})
_IS_MISSING = ("not exist", "not found", "not be found", "unknown", "invalid model")
"""Words with which servers say that they do not have a model."""
_WANTS_TLS = "https"
"""In the words with which a server that speaks TLS refuses plain HTTP."""
_ERROR_KEYS = (b'"error"', b'"errors"', b'"message"', b'"detail"')
"""Members of which the body of an error has one."""
_PAGE_BYTES = 200
"""Bytes at the beginning of a body that show whether it is a web page."""
_NO_BACKEND = ("no deployments available", "no healthy deployment", "no available backend")
"""Words with which routers say that they had no backend for a request."""


def request_failure(word: str, message: str, at: float, status: int | None = None) -> RequestFailure:
    """Return a failure with the error code `word` and the `FailureKind` that fits it; clean the message.

    `at` is the time of the failure in seconds, `status` the HTTP status of the response, if there was one.
    """
    if word.startswith("timeout"):
        kind = FailureKind.TIMEOUT
    elif status is not None and word.startswith(HTTP):
        kind = _STATUS_KINDS.get(status, FailureKind.HTTP)
    else:
        kind = _KINDS.get(word, FailureKind.MALFORMED)
    return RequestFailure(kind, clean(message), at, word, status)


class RequestFailedError(Exception):
    """A server cannot be used, or refuses a request; `failure` has the reason."""

    def __init__(self, failure: RequestFailure) -> None:
        """Keep `failure`, and use its message as the message of this exception."""
        super().__init__(failure.message)
        self.failure = failure


def error_word(failure: RequestFailure) -> str:
    """Return the error code under which result files count a failure, such as `timeout:connect`."""
    return failure.word or failure.kind.value


def count_errors(events: Iterable[LoadEvent]) -> Counter[str]:
    """Return the number of failed requests in the events of a run, by error code."""
    ends = (event for event in events if isinstance(event, RequestEnded))
    return Counter(error_word(end.error) for end in ends if end.error is not None)


def status_failure(
    status: int,
    words: str,
    at: float,
    where: str,
    *,
    router: bool,
    has_key: bool,
    served_by: str | None = None,
    headers: Mapping[str, str] = MappingProxyType({}),
) -> RequestFailure:
    """Return the failure of a request that was answered with an HTTP status other than 200.

    `words` is the server's error message, cleaned, or "". `where` is the host and port of the server, which
    may be a `router`; `has_key` says whether an API key was sent. `served_by` is the backend that answered
    through a router, None if unknown. `headers` are those of the response, by lower-case name: the goal of a
    redirect and the time to retry are in them. Rejections by the router itself and unknown models have codes
    of their own.
    """
    lower = words.lower()
    quoted = f": {words}" if words else ""
    word = f"{HTTP}:{status}"
    if router and (_names_no_backend(words) or (status == _TOO_MANY_REQUESTS and served_by is None)):
        word, message = (
            ROUTER_REJECTION,
            f"{where} gave the request to no backend (HTTP {status}){quoted}",
        )
    elif status in {400, 404} and "model" in lower and any(phrase in lower for phrase in _IS_MISSING):
        word, message = WRONG_MODEL, f"{where} does not have that model (HTTP {status}){quoted}"
    elif status in _UNAUTHORIZED | REDIRECTS:
        goal = headers.get("location", "")
        error = status_error(status, where, location=goal, words=words, has_key=has_key)
        message = error.message
    elif _WANTS_TLS in lower and "http" in lower:
        message = f"{where} speaks TLS: write https:// in its URL (HTTP {status})"
    elif status == _NOT_FOUND:
        hint = "is the URL right? --api chat and --api completions ask different routes"
        message = f"{where} has no such route (HTTP {status}){quoted}; {hint}"
    else:
        message = f"{where} answered with HTTP {status}{quoted}"
    return replace(request_failure(word, message, at, status), retry_s=retry_after_s(headers))


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return the seconds after which a response says that the request may be tried again.

    They stand in `retry-after-ms` as OpenAI sends it, or in `retry-after` (RFC 9110, 10.2.3) as seconds or as
    a date. Return None without a usable value.
    """
    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            return max(0.0, float(headers[name]) * unit_s)
        except (KeyError, ValueError):
            continue
    try:
        return max(0.0, parsedate_to_datetime(headers["retry-after"]).timestamp() - time.time())
    except (KeyError, ValueError):
        return None


def event_failure(words: str, at: float, where: str, *, router: bool) -> RequestFailure:
    """Return the failure of a request whose stream has an error event; `words` is the error message or ""."""
    if router and _names_no_backend(words):
        message = f"{where} gave the request to no backend: {words}"
        return request_failure(ROUTER_REJECTION, message, at)
    quoted = f": {words}" if words else " (no words)"
    return request_failure(ERROR_EVENT, f"{where} reported an error in mid-stream{quoted}", at)


def body_failure(words: str, body: bytes, at: float, where: str) -> RequestFailure | None:
    """Return the failure of a request that status 200 and a web page or an error answered; None for another.

    `words` is the error message in the `body`, or "".
    """
    lower = body[:_PAGE_BYTES].lstrip().lower()
    if lower.startswith((b"<!doctype html", b"<html")):
        message = f"{where} answered with a web page: is the URL that of the API, and the port right?"
        return request_failure(NO_STREAM, message, at)
    if words and _has_error(body):
        return request_failure(ERROR_EVENT, f"{where} answered with an error and HTTP 200: {words}", at)
    return None


def _has_error(body: bytes) -> bool:
    """Return whether a body has an error and no answer."""
    return b'"choices"' not in body and any(key in body for key in _ERROR_KEYS)


def _names_no_backend(words: str) -> bool:
    lower = words.lower()
    return any(phrase in lower for phrase in _NO_BACKEND)


def connect_failure(error: BaseException, at: float, *, where: str) -> RequestFailure:
    """Return the failure of a request for which no connection could be opened because of `error`.

    `where` is the host and port of the server, for the message.
    """
    number = error.errno if isinstance(error, OSError) else None
    if isinstance(error, socket.gaierror | UnicodeError):
        return request_failure(DNS, f"the host name of {where} does not resolve: is it right?", at)
    if isinstance(error, ssl.SSLError):
        return request_failure(TLS, transport_error(error, where).message, at)
    if isinstance(error, TimeoutError) or number == errno.ETIMEDOUT:
        return request_failure(TIMEOUT_CONNECT, f"no connection to {where} in time: is the host up?", at)
    if number in _TOO_MANY_FILES:
        message = "no file descriptor left for another connection: raise the limit with `ulimit -n`"
        return request_failure(DESCRIPTORS, message, at)
    if isinstance(error, ConnectionRefusedError):
        return request_failure(REFUSED, f"nothing listens on {where} (connection refused)", at)
    text = clean(error, 80) or type(error).__name__
    return request_failure(UNREACHABLE, f"{where} cannot be reached: {text}", at)


# What a refusal says: the field at fault, or that the prompt is too long for the context.


_REFUSING = frozenset({f"{HTTP}:400", f"{HTTP}:413", f"{HTTP}:422"})
"""Error codes of requests that a server rejects as such."""
_MOST_CHARACTERS = 4000
"""Of an error message that are searched: some servers repeat the whole request after it."""
_NAME = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*")
"""A name, perhaps with dots, in an error message."""
_QUOTED = re.compile(r"""['"`]([A-Za-z_]\w*(?:\.\w+)*)['"`]""")
"""A name in quotes in an error message."""


def faulty_fields(body: bytes, fields: Collection[str]) -> frozenset[str]:
    """Return those of the request's `fields` that the refusal `body` names as its faults; may be empty.

    Named are the `param` of OpenAI's errors and the `loc` of each of FastAPI's. Without these, the first of
    `fields` that stands in quotes in the message is the fault, else the first that stands there at all: what
    follows lists what is supported, or repeats the request.
    """
    last_names = {path.rpartition(".")[2] for path in _named_fields(body)}
    if not last_names.isdisjoint(fields):
        return frozenset(last_names.intersection(fields))
    words = server_words(body, None, _MOST_CHARACTERS)
    for pattern in (_QUOTED, _NAME):
        for name in pattern.findall(words):
            last_name = name.rpartition(".")[2]
            if last_name in fields:
                return frozenset({last_name})
    return frozenset()


def _named_fields(body: bytes) -> Iterator[str]:
    """Yield the dotted path of each field that an error names as its fault."""
    try:
        refusal = json.loads(body.strip().removeprefix(b"data:"))
    except (ValueError, RecursionError):
        return
    if not isinstance(refusal, dict):
        return
    for holder in (refusal.get("error"), refusal):
        if not isinstance(holder, dict):
            continue
        param = holder.get("param")
        if isinstance(param, str):
            yield param
        for faults in (holder.get("detail"), holder.get("errors")):
            for fault in faults if isinstance(faults, list) else ():
                path = fault.get("loc") if isinstance(fault, dict) else None
                if isinstance(path, list):
                    yield ".".join(map(str, path))


_NUMBER = r"(\d{1,3}(?:[,  ]\d{3})+|\d{3,9})(?![\d,])"
"""A number of tokens, with or without separators of thousands."""
_LIMITS = tuple(
    re.compile(pattern.replace("NUMBER", _NUMBER), re.IGNORECASE)
    for pattern in (
        # vLLM, SGLang, OpenAI, LM Studio, llama.cpp and most others
        r"context[ _](?:length|size|window)(?:(?!exceed)\D){0,40}?NUMBER",
        r"n_ctx\D{0,8}?NUMBER",
        # Mistral
        r"NUMBER(?: tokens?)? max\w{0,5}[ _]context",
        # vLLM of a long prompt, LMDeploy, TabbyAPI, TensorRT-LLM
        r"max\w{0,5}[ _](?:model|session|input|seq\w*|prompt)[ _]len(?:gth)?(?:(?!exceed)\D){0,20}?NUMBER",
        r"(?:session_len|max_num_tokens|max_position_embeddings)\D{0,8}?NUMBER",
        # TGI
        r"must be <= NUMBER",
        r"must have less than NUMBER tokens",
        # Anthropic's form, which gateways pass on; Google's, Cohere's and others
        r"> NUMBER maximum",
        r"max\w{0,5}[ _](?:(?:allowed|total|number of)[ _])+(?:tokens?|length)\D{0,20}?NUMBER",
        r"cannot exceed NUMBER",
        r"limit of NUMBER tokens(?! (?:per|a|an|in|every)\b)",
        r"NUMBER[- ]tokens? limit",
    )
)
"""How servers state the limit of their context, the surest first: one may be of prompts alone."""
_TOO_LONG = re.compile(
    r"context[ _](?:length|size|window|the)\b.{0,60}(?:exceed|overflow|too small|reached)"
    r"|(?:exceed|overflow|longer than|greater than|larger than).{0,60}context"
    r"|(?:prompt|input)\b.{0,40}\btoo long"
    r"|reduce the length of the (?:messages|prompt|input)",
    re.IGNORECASE,
)
"""How servers say that a prompt is too long, without the limit."""


def stated_context(words: str) -> int | None:
    """Return the limit in tokens that a refusal states, the smallest if several; None if it states none."""
    for pattern in _LIMITS:
        if numbers := [int(re.sub(r"\D", "", match[1])) for match in pattern.finditer(words)]:
            return min(numbers)
    return None


def is_too_long(words: str) -> bool:
    """Return whether a server's error message says that a prompt is too long for its context."""
    return stated_context(words) is not None or _TOO_LONG.search(words) is not None


def is_refusal(failure: RequestFailure) -> bool:
    """Return whether the server rejected the request rather than failed to serve it.

    It does with HTTP 400, 413 or 422. With another status, or in a stream, its words say that the prompt is
    too long.
    """
    return failure.word in _REFUSING or (
        failure.word.startswith((HTTP, ERROR_EVENT)) and is_too_long(failure.message)
    )
