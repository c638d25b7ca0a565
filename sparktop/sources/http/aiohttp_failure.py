"""Errors of aiohttp, classified as `failure.py` classifies others; only users of aiohttp import this."""

from __future__ import annotations

import ssl

import aiohttp

from sparktop.sources.http import failure
from sparktop.sources.http.failure import AnswerError

_ALERT, _SHOWN_ALERT = b"\x15\x03\x03", rb"\x15\x03"
"""How a TLS alert begins, and how aiohttp shows it in messages."""


def transport_error(error: Exception, where: str) -> AnswerError:
    """Return, without raising it, the `AnswerError` for an exception of aiohttp or the operating system.

    `where` (host and port) names the server in the message. `error` loses its traceback.
    """
    failure.forget_frames(error)
    match error:
        case aiohttp.ClientConnectorDNSError():
            found = failure.transport_error(UnicodeError(), where)
        case aiohttp.ClientConnectorCertificateError():
            found = failure.transport_error(error.certificate_error, where)
        case aiohttp.ClientSSLError():
            cause = error.os_error
            found = failure.transport_error(
                cause if isinstance(cause, ssl.SSLError) else ssl.SSLError(), where
            )
        case aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError():
            found = failure.unusable_address(where)
        case aiohttp.ClientResponseError():
            seen = f"{error.message} {error.__cause__}".encode("utf-8", "replace")
            found = failure.not_http(where, seen.replace(_SHOWN_ALERT, _ALERT))
        case aiohttp.ClientPayloadError():
            # aiohttp distinguishes a reset from a short answer only in its text.
            is_reset = isinstance(error.__cause__, OSError) or "ConnectionResetError" in str(error)
            found = failure.broken_off(where, is_reset=is_reset)
        case aiohttp.ServerDisconnectedError():
            found = failure.no_answer(where)
        case _:
            found = failure.transport_error(getattr(error, "os_error", None) or error, where)
    return found
