"""Source of a remote machine's samples through ssh, which runs a reader there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from sparktop.hardware.ras import Found
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import NodeIdentity, NodeSample
from sparktop.model.targets import NodeTarget
from sparktop.model.text import clean
from sparktop.sources.node_replies import NodeReplies
from sparktop.sources.ssh.connector import Connector
from sparktop.sources.ssh.failure import LinkError
from sparktop.sources.ssh.link import SshLink
from sparktop.sources.wire.decode import WireError
from sparktop.sources.wire.reply import Reply

BACKOFF_S = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds before each further connection attempt; the last value repeats."""
SILENT_S = 15.0
"""Seconds without an answer after which a connection is dropped."""
_NEVER_CLOSED = "a source that is closed cannot be polled"


class SshSource:
    """Polls one machine through a persistent ssh connection, and reconnects when the connection ends."""

    def __init__(
        self,
        target: NodeTarget,
        *,
        ssh: str = "ssh",
        ssh_options: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Watch `target` with the program `ssh`.

        `ssh_options` come before sparktop's own options on the command line, because ssh uses the first value
        given.
        """
        self.name = target.name
        self.show_processes = False
        """Whether to request the process table too."""
        self.interval_s: float | None = None
        """Requested seconds between the node's samples; None leaves the interval to the node."""
        self._connector = Connector(target, ssh, ssh_options)
        self._where = self._connector.where
        self._clock = clock
        self._sleep = sleep
        self._replies = NodeReplies()
        self._keeper: asyncio.Task[None] | None = None
        self._link: SshLink | None = None
        self._settled = asyncio.Event()
        """Set while a connection exists or the next attempt is being waited for; cleared while connecting."""
        self._lost = asyncio.Event()
        """Set when the current connection is no longer usable."""
        self._problem: LinkError | None = None
        self._attempts = 0
        """Consecutive attempts without an answer."""
        self._retry_at: float | None = None
        self._began_at = 0.0
        self._silent_since: float | None = None
        self._closed = False

    @property
    def identity(self) -> NodeIdentity | None:
        """Identity of the machine; None before the first answer."""
        return self._replies.identity

    async def poll(self, deadline_s: float) -> NodeSample | Failure:
        """Return the newest sample; its `missed` has the older samples that no poll has returned yet.

        Return a `Failure` if no new sample arrives within `deadline_s` seconds.
        """
        if self._closed:
            raise RuntimeError(_NEVER_CLOSED)
        self._watch_keeper()
        end = asyncio.get_running_loop().time() + deadline_s
        try:
            async with asyncio.timeout_at(end):
                await self._settled.wait()
                if self._link is not None:
                    return await self._read(self._link, end)
        except TimeoutError:
            return self._late(deadline_s)
        except WireError as error:
            return self._failure(error.kind, f"{self._where}: {error}")
        except LinkError as error:
            self._lose(error)
        return self._waiting()

    async def ask_ranks(self, deadline_s: float) -> Found | Failure:
        """Return what NCCL on the machine answers about the ranks of a job, within `deadline_s` seconds.

        A connection of its own is opened for it: an answer takes seconds, and samples must not wait for it.
        """
        link: SshLink | None = None
        try:
            async with asyncio.timeout(deadline_s):
                link = await self._connector.connect()
                return await link.ask_ranks()
        except TimeoutError:
            message = f"no answer from sparktop on {self._where} about NCCL within {deadline_s:g} s"
            return self._failure(FailureKind.TIMEOUT, message)
        except (LinkError, WireError) as error:
            return self._failure(error.kind, f"{self._where}: {error}")
        finally:
            if link is not None:
                await link.close()

    async def close(self) -> None:
        """Close the connection; the remote agent ends with it."""
        self._closed = True
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
            self._keeper = None

    def _watch_keeper(self) -> None:
        """Start the task that keeps the connection open, if it does not run.

        A programming error that ended the task is re-raised here, where callers of `poll` catch it.
        """
        if self._keeper is not None and self._keeper.done():
            ended, self._keeper = self._keeper, None
            ended.result()
        if self._keeper is None:
            self._settled.clear()
            self._began_at = self._clock()
            self._keeper = asyncio.get_running_loop().create_task(self._keep())

    async def _keep(self) -> None:
        """Keep a connection open until cancelled; pause before each reconnect (`BACKOFF_S`)."""
        try:
            while True:
                await self._have_link()
                pause_s = BACKOFF_S[min(self._attempts, len(BACKOFF_S) - 1)]
                self._attempts += 1
                self._retry_at = self._clock() + pause_s
                self._settled.set()
                await self._sleep(pause_s)
        finally:
            self._settled.set()

    async def _have_link(self) -> None:
        """Connect, and wait until the connection is lost; return at once if it could not be made.

        Afterwards `_problem` is the error that ended or prevented the connection.
        """
        self._settled.clear()
        self._lost.clear()
        self._began_at, self._retry_at, self._silent_since = self._clock(), None, None
        link: SshLink | None = None
        try:
            link = await self._connector.connect()
            self._replies.reader_sha256 = link.sha256
            self._link = link
            self._settled.set()
            await self._lost.wait()
        except LinkError as error:
            self._problem = error
        finally:
            self._link = None
            self._settled.clear()
            if link is not None:
                await link.close()

    async def _read(self, link: SshLink, end: float) -> NodeSample:
        async def ask() -> tuple[Reply, float]:
            answer = await link.ask(
                self._replies.since,
                processes=self.show_processes,
                interval_s=self.interval_s,
                clock=self._clock,
            )
            self._silent_since, self._attempts, self._problem = None, 0, None
            return answer

        return await self._replies.poll(ask, end, self._sleep)

    def _lose(self, problem: LinkError) -> None:
        """Mark the connection as lost because of `problem`; the connection task closes it and reconnects."""
        self._problem = problem
        self._link = None
        self._retry_at = self._clock() + BACKOFF_S[min(self._attempts, len(BACKOFF_S) - 1)]
        self._settled.clear()
        self._lost.set()

    def _late(self, deadline_s: float) -> Failure:
        """Return the failure of a poll that missed its deadline.

        Drop a connection that was silent for `SILENT_S`.
        """
        if self._link is None:
            return self._waiting()
        if self._replies.nothing_new is not None:
            return self._failure(FailureKind.TIMEOUT, f"{self._where}: {self._replies.nothing_new}")
        now = self._clock()
        if self._silent_since is None:
            self._silent_since = now - deadline_s
        silent_s = now - self._silent_since
        message = f"no answer from sparktop on {self._where} for {silent_s:.0f} s: is the machine stuck?"
        if silent_s >= SILENT_S:
            self._lose(LinkError(FailureKind.TIMEOUT, message))
            return self._waiting()
        return self._failure(FailureKind.TIMEOUT, message)

    def _waiting(self) -> Failure:
        """Return a failure that states why there is no connection and when the next attempt begins."""
        now, problem = self._clock(), self._problem
        if problem is None:
            message = f"connecting to {self._where} for {now - self._began_at:.0f} s"
            return self._failure(FailureKind.TIMEOUT, message)
        left_s = 0.0 if self._retry_at is None else self._retry_at - now
        soon = f"reconnecting in {left_s:.0f} s" if round(left_s) > 0 else "reconnecting"
        return self._failure(problem.kind, f"{problem.message} · {soon}")

    def _failure(self, kind: FailureKind, message: str) -> Failure:
        return Failure(kind, clean(message), self._clock())
