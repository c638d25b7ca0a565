"""The webhook: a URL that the user configures, to which each event is posted as JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from sparktop.net.server import host_and_port, key_problem

if TYPE_CHECKING:
    import httpx

PAUSES_S = (1.0, 5.0, 20.0)
"""Seconds before each further try."""
DEADLINE_S = 10.0
"""Seconds that one try may take."""
_OK = range(200, 300)
_TRY_AGAIN = frozenset({408, 425, 429, *range(500, 600)})
"""HTTP statuses which mean that the same request may succeed later."""

Sleep = Callable[[float], Awaitable[object]]


class Webhook:
    """A URL that events are posted to. Its path may be a secret: messages name host and port only."""

    def __init__(
        self, url: str, token: str | None, *, sleep: Sleep = asyncio.sleep, deadline_s: float = DEADLINE_S
    ) -> None:
        """Prepare to post to `url`, with `token` as a bearer token unless it is None; nothing is sent yet."""
        self._url = url
        self._token = token
        self._where = host_and_port(url)
        self._sleep = sleep
        self._deadline_s = deadline_s
        self._client: httpx.AsyncClient | None = None

    async def send(self, document: bytes) -> str | None:
        """Post `document`; return None for success, else why it failed.

        Errors that may be temporary are followed by further tries.
        """
        if key_problem(self._token) is not None:
            return "the token holds characters that no HTTP header may hold: look at webhook_token_env"
        problem, pauses = await self._try(document), iter(PAUSES_S)
        while problem is not None and problem[1] and (pause_s := next(pauses, None)) is not None:
            await self._sleep(pause_s)
            problem = await self._try(document)
        return None if problem is None else problem[0]

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()

    async def _try(self, document: bytes) -> tuple[str, bool] | None:
        """Post once; return None for success, else (why it failed, whether another try may succeed)."""
        # Late: most starts have no webhook.
        from sparktop.net.failure import AnswerError
        from sparktop.net.once import UnreadReplyError, open_client, post

        if self._client is None:
            secure = self._url.startswith("https:")
            self._client = await asyncio.to_thread(open_client, secure=secure)
        try:
            reply = await post(
                self._client,
                self._url,
                document,
                where=self._where,
                deadline_s=self._deadline_s,
                token=self._token,
            )
            status = reply.status
        except UnreadReplyError as error:
            status = error.status
        except AnswerError as error:
            return error.message, True
        if status in _OK:
            return None
        return f"{self._where} answered with HTTP status {status}", status in _TRY_AGAIN
