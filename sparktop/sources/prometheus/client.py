"""HTTP client of a Prometheus, or of another server with its API, with bounds on size and time of an answer.

Queries are POST to `/api/v1/query`; other paths are read by GET. Answers are gzipped JSON, connections are
kept, and no redirect is followed. Instant queries only: one with a range selector returns raw samples.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import ssl
import time
from base64 import b64encode
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from functools import partial
from typing import TypeAlias

import msgspec
from msgspec import Raw, Struct, field

from sparktop.model.failure import FailureKind
from sparktop.model.plain import LARGEST
from sparktop.model.targets import PrometheusTarget
from sparktop.model.text import clean
from sparktop.net.client import OK, Request, Response, SharedSession, in_reader
from sparktop.net.failure import (
    NOT_FOUND,
    REDIRECTS,
    AnswerError,
    Trust,
    first_line,
    host_and_port,
    load_certificate,
    not_found,
    redirect_error,
    without_secret,
)


def quote_text(text: str) -> str:
    """Return `text` as a string literal of PromQL."""
    return json.dumps(text, ensure_ascii=False)


def any_of(values: Iterable[str]) -> str:
    """Return a quoted regular expression that matches exactly these values."""
    return quote_text("|".join(re.escape(value) for value in values))


def selector(names: Iterable[str], *matchers: str) -> str:
    """Return a selector of series with one of these metric names and all these matchers.

    A matcher is text such as `job="vllm"`, or "" for none; a text with several is possible.
    """
    parts = [f"__name__=~{any_of(sorted(names))}", *(matcher.strip().strip(",") for matcher in matchers)]
    return "{" + ",".join(part for part in parts if part) + "}"


# Answers of the Prometheus HTTP API: checked, and without anything that a query did not ask for.
#
# Its series are decoded one by one, so that 10,000 of them need not all be kept.


MOST_SERIES = 200_000
"""Most series of one answer."""
_MOST_LABEL_CHARACTERS = 1024
"""Longest value of a label; series with a longer one are left out."""
_MESSAGE_BYTES = 160
"""Longest body of an error that is taken for a message."""
Labels: TypeAlias = Mapping[str, str]
"""Values of the labels of a series by name."""
_Members: TypeAlias = dict[str, Raw]
"""The members of a JSON object by name, not decoded yet."""


class TimeSeries(Struct):
    """One series, as the API writes it: its labels, and its samples or a single one.

    A sample is (Unix time in seconds, value as written). After decoding, a single one is in `samples`, too.
    """

    labels: Labels = field(name="metric")
    samples: list[tuple[float, str]] = field(default_factory=list, name="values")
    single: tuple[float, str] | None = field(default=None, name="value")

    def __post_init__(self) -> None:
        if self.single is not None:
            self.samples = [self.single]

    @property
    def value(self) -> float | None:
        """The newest value; None where it is not a number, or beyond `LARGEST`."""
        if not self.samples:
            return None
        _, text = self.samples[-1]
        try:
            number = float(text)
        except ValueError:
            return None
        return number if abs(number) <= LARGEST else None


_decode_members = msgspec.json.Decoder(_Members).decode
_decode_list = msgspec.json.Decoder(list[Raw]).decode
_decode_series = msgspec.json.Decoder(TimeSeries).decode


def data_of(body: bytes) -> object:
    """Return the data of a successful answer as JSON values.

    Raises:
        AnswerError: the body is not one.
    """
    try:
        return msgspec.json.decode(_members_of_success(body)["data"])
    except (ValueError, RecursionError):
        raise _not_an_answer() from None


def read_answer(body: bytes, add: Callable[[TimeSeries], None]) -> tuple[str, ...]:
    """Decode an answer to a query: call `add` with each of its series in turn, and return its warnings.

    These are clean lines, such as that some stores of Thanos did not answer. A single number is a series
    without labels; series whose labels are not text are left out. After an error, what was added is of no
    use.

    Raises:
        AnswerError: the body is not an answer, or has more than `MOST_SERIES` series.
    """
    try:
        answer = _members_of_success(body)
        data = _decode_members(answer["data"])
        kind, result = msgspec.json.decode(data["resultType"]), data["result"]
        warned = msgspec.json.decode(answer.get("warnings", b"null"))
        warnings = tuple(clean(line, 200) for line in warned[:3]) if isinstance(warned, list) else ()
        if kind == "scalar":
            add(TimeSeries({}, [msgspec.json.decode(result, type=tuple[float, str])]))
            return warnings
        rows = _decode_list(result)
    except (ValueError, RecursionError, KeyError):
        raise _not_an_answer() from None
    if kind not in ("vector", "matrix"):  # a list has no hash
        raise _not_an_answer()
    if len(rows) > MOST_SERIES:
        message = f"{len(rows):,} series in one answer: name fewer servers by selector"
        raise AnswerError(FailureKind.TOO_LARGE, message)
    for raw in rows:
        with suppress(ValueError, RecursionError):  # a series that is not one
            series = _decode_series(raw)
            longest = max(map(len, series.labels.values()), default=0)
            if series.samples and longest <= _MOST_LABEL_CHARACTERS:
                add(series)
    return warnings


def trouble_in(body: bytes) -> str:
    """Return the error message in an answer without success, as one clean line; "" if there is none.

    Prometheus writes it in JSON; Mimir and proxies in a line of plain text, such as "no org id".
    """
    try:
        return _error_in(_decode_members(body))
    except (ValueError, RecursionError):
        text = body.decode(errors="replace").strip()
        is_message = len(body) <= _MESSAGE_BYTES and not any(mark in text for mark in "<{[\n\ufffd")
        return clean(text) if is_message else ""


def _error_in(answer: _Members) -> str:
    message = msgspec.json.decode(answer.get("error", b"null"))
    return clean(message, 160) if isinstance(message, str) else ""


def _members_of_success(body: bytes) -> _Members:
    """Return the members of an answer that reports success and has data.

    Raises:
        AnswerError: it reports no success.
        ValueError: it is no JSON object.
    """
    answer = _decode_members(body.removeprefix(BOM_UTF8))
    if msgspec.json.decode(answer.get("status", b"null")) == "success" and "data" in answer:
        return answer
    message = _error_in(answer)
    raise AnswerError(FailureKind.MALFORMED, message) if message else _not_an_answer()


def _not_an_answer() -> AnswerError:
    return AnswerError(
        FailureKind.MALFORMED, "the answer is not one of the Prometheus HTTP API: is the URL right?"
    )


MOST_BYTES = 20 << 20
"""Most bytes of an answer, packed or not: 500 servers with two samples of each of their series take 25 MB."""
DEADLINE_S = 10.0
"""Seconds that one query may take."""
_AT_ONCE = 4
"""Queries sent at a time; a Prometheus serves 20."""
_TOO_MUCH = frozenset({422, 429, 503})
"""HTTP status of a query that asks for too much, or too often."""
_WANTS_TLS = b"HTTP request to an HTTPS server"
"""What servers written in Go answer to plain HTTP where they want TLS."""
_NO_TENANT = "no org id"
"""What Mimir says where the header with the tenant is missing, whatever key came along."""
_DATE_TOLERANCE_S = 2.0
"""Difference in seconds of Date header and time that whole seconds and the way of the answer explain."""


class TooMuchError(AnswerError):
    """Raised where a query asked for too much, or one of too many: asking for less may help."""


class PrometheusClient:
    """Sends the queries of one configured Prometheus."""

    def __init__(self, target: PrometheusTarget, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Query `target`; connections are opened with the first query."""
        self.where = host_and_port(target.url)
        """Host and port, for messages."""
        self._target = target
        self._clock = clock
        self._session = SharedSession()
        self._session.join()
        self._tls: ssl.SSLContext | None = None
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._date_s: float | None = None
        """Unix time in whole seconds by the newest answer's Date header; None if it cannot be read."""
        self._warning = ""

    def take_warning(self) -> str:
        """Return the first warning in the answers since the last call; "" without one."""
        warning, self._warning = self._warning, ""
        return warning

    async def close(self) -> None:
        """Close all connections."""
        await self._session.leave()

    async def query(self, promql: str, add: Callable[[TimeSeries], None] | None = None) -> list[TimeSeries]:
        """Evaluate an instant query now, and return its series, which are read in a thread.

        With `add`, its series are handed to that and not returned: those of 10,000 servers take 10 MB. After
        an error, what was added is of no use.

        Raises:
            TooMuchError: HTTP status 422, 429 or 503, or an answer that is too large or too late.
            AnswerError: any other failure of network or server.
        """
        # Thanos answers with what it has, and says so in `warnings`; others ignore these two.
        parameters = {"query": promql, "dedup": "true", "partial_response": "true"}
        series: list[TimeSeries] = []
        async with self._slots:
            body = await self._ask("/api/v1/query", parameters)
            warnings = await in_reader(partial(read_answer, body, add or series.append))
        self._warning = self._warning or next(iter(warnings), "")
        return series

    async def get(self, path: str) -> object:
        """Return the data of an answer to a GET of `path`, as JSON values.

        Raises:
            AnswerError: as for `query`.
        """
        async with self._slots:
            return data_of(await self._ask(path, None))

    async def _ask(self, path: str, parameters: Mapping[str, str] | None) -> bytes:
        """Request a path, by POST of `parameters` or by GET; return the body of a successful answer."""
        if self._tls is None and self._target.url.startswith("https:"):
            self._tls = _tls_context(self._target)
        headers = {**self._headers(), "Accept-Encoding": "gzip"}
        request = Request(
            self._target.url + path, self.where, tls=self._tls, headers=headers, form=parameters
        )
        try:
            response = await self._session.get(
                request, deadline_s=DEADLINE_S, clock=self._clock, cap_bytes=MOST_BYTES
            )
        except AnswerError as error:
            if error.kind is FailureKind.TIMEOUT:
                raise TooMuchError(error.kind, error.message) from error
            if error.kind is not FailureKind.TOO_LARGE:
                raise
            size = f"an answer of over {MOST_BYTES >> 20} MiB"
            message = f"{size}: fewer servers by selector, or fewer at a time"
            raise TooMuchError(error.kind, message) from error
        if (date := response.headers.get("Date")) is not None:
            self._date_s = None
            with suppress(ValueError, TypeError, OverflowError):
                self._date_s = parsedate_to_datetime(date).timestamp()
        if response.status != OK:
            credentials = headers.get("Authorization", "").partition(" ")[2]
            raise self._status_error(response, path, credentials)
        return response.body

    def _headers(self) -> dict[str, str]:
        """Return the headers of a request, with the token of its file as it is now.

        Raises:
            AnswerError: the token cannot be read or sent.
        """
        target, headers = self._target, dict(self._target.headers)
        bearer = target.bearer
        if target.bearer_file is not None:
            bearer = first_line(target.bearer_file, "the token file ")
        for secret in (bearer, target.password, target.basic_user):
            if secret is not None and not (secret.isascii() and secret.isprintable()):
                raise AnswerError(
                    FailureKind.UNAUTHORIZED, "the token or password holds characters that no header may"
                )
        if bearer is not None:
            headers["Authorization"] = f"Bearer {bearer}"
        elif target.basic_user is not None:
            pair = f"{target.basic_user}:{target.password or ''}"
            headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
        return headers

    def _status_error(self, response: Response, path: str, credentials: str) -> AnswerError:
        """Return the error for an HTTP status other than 200 of a `path`, with what to do about it."""
        status, body = response.status, response.body
        text = body.decode("utf-8", "replace")
        for secret in (credentials, self._target.password):  # if the server repeats them
            text = without_secret(text, secret)
        trouble = trouble_in(text.encode())
        quoted = f": {trouble}" if trouble else ""
        if status in _TOO_MUCH:
            return TooMuchError(FailureKind.HTTP, f"{status}: {self.where} refuses the query{quoted}")
        if status in REDIRECTS:
            return redirect_error(status, self.where, response.headers.get("Location", ""))
        if status in {401, 403}:
            return AnswerError(
                FailureKind.UNAUTHORIZED,
                f"{status}: {self.where} {self._credentials_wanted(trouble)}{quoted}",
            )
        if _WANTS_TLS in body:
            return AnswerError(FailureKind.TLS, f"{self.where} wants TLS: write https:// in its URL")
        if status == NOT_FOUND:
            return not_found(f"{self.where} has no {path}", "a Prometheus", trouble)
        return AnswerError(FailureKind.HTTP, f"{self.where} answered with HTTP status {status}{quoted}")

    def _credentials_wanted(self, trouble: str) -> str:
        """Return what a server that refused a request with the words `trouble` wants, by what it carried."""
        if _NO_TENANT in trouble:
            return "wants a tenant: headers = { X-Scope-OrgID = … } under [[prometheus]]"
        if self._target.basic_user is not None:
            return "refuses this user and password (basic_user, password_env)"
        if self._target.bearer is not None or self._target.bearer_file is not None:
            return "refuses the bearer token"
        return "wants a key: bearer_env, bearer_file or basic_user under [[prometheus]]"

    async def clock_shift(self) -> tuple[float, float]:
        """Return how the clock of the Prometheus relates to ours, by a query of its time.

        The first figure is what to add to a Unix time of the Prometheus for monotonic seconds of this
        machine, the second by how many seconds its clock is certainly ahead of this machine's; negative:
        behind it, and 0 where the duration of the query may be the whole difference.

        VictoriaMetrics evaluates instant queries 30 s in the past: where the answer's Date header, which has
        whole seconds, differs, that counts.

        Raises:
            AnswerError: the query failed.
        """
        began = self._clock()
        series = await self.query("time()")  # VictoriaMetrics answers with a vector
        half_trip_s = (self._clock() - began) / 2
        own_unix_s = time.time() - half_trip_s
        server_unix_s = series[0].value if len(series) == 1 else None
        if server_unix_s is None:
            raise AnswerError(
                FailureKind.MALFORMED, f"{self.where} does not know its time: is it a Prometheus?"
            )
        # The header is rounded down: half a second later is nearer.
        if self._date_s is not None and abs(self._date_s + 0.5 - server_unix_s) > _DATE_TOLERANCE_S:
            server_unix_s = self._date_s + 0.5
        ahead_s = server_unix_s - own_unix_s
        certain_s = math.copysign(max(0.0, abs(ahead_s) - half_trip_s), ahead_s)
        return began + half_trip_s - server_unix_s, certain_s


def _tls_context(target: PrometheusTarget) -> ssl.SSLContext:
    """Return how certificates are verified, with this program's own certificate where one is configured.

    Raises:
        AnswerError: a certificate file cannot be used.
    """
    try:
        trust = Trust(target.tls_ca, clean(target.name, 60)).context() or ssl.create_default_context()
        if target.tls_cert is not None:
            load_certificate(trust, target.tls_cert, target.tls_key)
    except (OSError, ValueError) as error:  # includes ssl.SSLError
        message = f"a certificate file of {clean(target.name, 60)} cannot be used: {clean(error, 100)}"
        raise AnswerError(FailureKind.TLS, message) from None
    return trust
