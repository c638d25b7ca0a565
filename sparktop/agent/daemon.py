"""The agent as an HTTP server: preparation, operation and shutdown."""

from __future__ import annotations

import gc
import socket
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from msgspec import Struct

from sparktop.agent.access import HOW_TO_MAKE_ONE, TOKEN_VARIABLE, address, bind, is_local, open_tls
from sparktop.errors import UsageError

if TYPE_CHECKING:
    import ssl


class Service(Struct, frozen=True):
    """What an agent needs to serve requests: sockets, token and TLS context.

    The sockets are already bound, so an address that is in use is reported before anything else starts.
    """

    listeners: list[socket.socket]
    token: str | None
    tls: ssl.SSLContext | None

    @property
    def urls(self) -> list[str]:
        """URLs at which viewers can reach the agent, one for each socket."""
        scheme = "http" if self.tls is None else "https"
        return [f"{scheme}://{address(*listener.getsockname()[:2])}" for listener in self.listeners]

    @property
    def is_reachable(self) -> bool:
        """Whether a socket is bound to an address that other machines may reach."""
        return not is_local(self.listeners)

    def about(self, name: str = "agent", page: str = "") -> str:
        """Return a line for the user: the name of the server, its URLs, and whether a token is required.

        `page` is the path that the URLs are to have.
        """
        who = "no token wanted" if self.token is None else "token wanted"
        urls = " and ".join(f"{url}{page}" for url in self.urls)
        return f"{name} on {urls}: {who}; Ctrl+C ends"

    def warning(self) -> str | None:
        """Return a warning for the user that TLS or a token is missing.

        None if the agent listens on loopback addresses only, or uses TLS.
        """
        if is_local(self.listeners) or self.tls is not None:
            return None
        if self.token is None:
            return "insecure: anyone who reaches this address can read what this machine does"
        return "no TLS: the token can be read on the way; --tls-cert and --tls-key give it"


def prepare(
    listen: tuple[str, int],
    token: str | None,
    *,
    cert: str | None,
    key: str | None,
    insecure: bool,
    variable: str = TOKEN_VARIABLE,
) -> Service:
    """Bind the sockets and load the certificate; return them as a `Service`.

    `variable` is the environment variable that the message about a missing token names.

    Raises:
        UsageError: a socket or a file cannot be used, or the agent would be reachable from outside without a
            token.
    """
    tls = None
    if cert is not None and key is not None:
        tls = open_tls(cert, key)
    elif cert is not None or key is not None:
        raise UsageError("--tls-cert and --tls-key go together")
    listeners = bind(*listen)
    if token is None and not insecure and not is_local(listeners):
        for listener in listeners:
            listener.close()
        raise UsageError(
            f"--listen {address(*listen)} is reachable from outside and wants a token: "
            f"--token-file FILE or {variable} ({HOW_TO_MAKE_ONE}), or --insecure to do without"
        )
    return Service(listeners, token, tls)


async def serve(service: Service, names: Collection[str] | None, *, ready: Callable[[], None]) -> int:
    """Serve this machine's samples until a signal arrives; return the exit code.

    `names` are those of the agent, as for `WebServer`. `ready` is called once it accepts connections.
    """
    # Imported late: sockets are bound and errors reported before half a second of imports.
    from sparktop.agent.sampler import Sampler
    from sparktop.agent.server import AgentServer
    from sparktop.agent.stopping import stopped_by_signals
    from sparktop.sources.local import LocalSource

    sampler = Sampler(LocalSource("agent"))
    server = AgentServer(sampler, token=service.token, names=names)
    with stopped_by_signals() as stop:
        server.start(service.listeners, tls=service.tls)
        ready()
        # The start-up objects live until the end: excluding them makes garbage collection cheaper.
        gc.collect()
        gc.freeze()
        try:
            return await stop
        finally:
            await server.close()
