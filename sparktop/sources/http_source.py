"""What the sources that poll over HTTP share: an address, certificates, and connections."""

from __future__ import annotations

from collections.abc import Callable

from sparktop.model.failure import FailureKind
from sparktop.net.client import Answer, Request, SharedSession, fetch
from sparktop.net.failure import AnswerError, Trust, host_and_port


class HttpSource:
    """One polled address, over connections that several sources may share."""

    def __init__(
        self,
        name: str,
        url: str,
        tls_ca: str | None,
        session: SharedSession | None,
        clock: Callable[[], float],
    ) -> None:
        """Poll `url` over `session` (None: a private one); `tls_ca` is a file of certificates to trust."""
        self.name = name
        self._url = url
        self._where = host_and_port(url)
        self._trust = Trust(tls_ca, self._where)
        self._session = session or SharedSession()
        self._session.join()
        self._clock = clock
        self._closed = False

    async def _get_page(self, path: str, deadline_s: float, key: str | None) -> Answer:
        """Request `path` with `key` as bearer token, within `deadline_s` seconds.

        Raises:
            AnswerError: there is no usable answer with status 200.
        """
        request = Request(self._url + path, self._where, key, tls=self._trust.context())
        try:
            return await fetch(self._session, request, deadline_s=round(deadline_s, 2), clock=self._clock)
        except AnswerError as error:
            if error.kind is FailureKind.TLS:
                self._trust.forget()
            raise

    async def close(self) -> None:
        """Release the shared session."""
        if not self._closed:
            self._closed = True
            await self._session.leave()
