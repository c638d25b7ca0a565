"""Connects to one machine over ssh: to the sparktop installed there, or to the reader that is sent to it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence

from sparktop import __version__
from sparktop.model.failure import FailureKind
from sparktop.model.targets import NodeTarget
from sparktop.model.text import clean
from sparktop.sources.ssh.bundle import reader_bundle
from sparktop.sources.ssh.failure import LinkError
from sparktop.sources.ssh.link import SshLink
from sparktop.sources.ssh.remote import Remote

FIRST_ANSWER_S = 20.0
"""Seconds from the start of ssh to the reader's greeting: ssh's own connect limit is 10 s, and Python
starts slowly on a busy machine."""
DEFAULT_COMMAND = "sparktop"
"""The installed sparktop where no reader may be sent and no command is named."""


class Connector:
    """Makes the connections to one machine.

    The reader of this version is sent, unless `command` names an installed sparktop that is there and not
    older than this one. A machine on which ssh may run one sparktop only (a forced command) keeps this one.
    """

    def __init__(self, target: NodeTarget, ssh: str, ssh_options: Sequence[str]) -> None:
        """Connect to `target` with the program `ssh` and the options `ssh_options`."""
        self.where = clean(target.ssh or "", 80)
        """The destination, for messages."""
        self._destination = target.ssh or ""
        self._may_send = target.ssh_bundle
        self._command = target.command if target.ssh_bundle else target.command or DEFAULT_COMMAND
        """The installed sparktop to use; None: none, or the one there is too old."""
        self._ssh = ssh
        self._ssh_options = tuple(ssh_options)

    async def connect(self) -> SshLink:
        """Return a connection whose reader has greeted.

        Raises:
            LinkError: no connection could be made, or no reader answered within `FIRST_ANSWER_S` seconds.
        """
        if self._command is not None and self._may_send:
            link = await self._newer_installed()
            if link is not None:
                return link
            self._command = None
        return await self._greeted()

    async def _newer_installed(self) -> SshLink | None:
        """Return a connection that does not run an older installed sparktop; None where that is all there is.

        Raises:
            LinkError: as for `connect`.
        """
        try:
            link = await self._greeted()
        except LinkError as error:
            if error.kind is FailureKind.VERSION:
                return None
            raise
        if link.sent or not is_older(link.version, __version__):
            return link
        await link.close()
        return None

    async def _greeted(self) -> SshLink:
        """Start ssh and return the connection once its reader has greeted.

        Raises:
            LinkError: as for `connect`.
        """
        bundle = await asyncio.to_thread(reader_bundle) if self._may_send else None
        link = await SshLink.start(
            self._ssh, self._ssh_options, Remote(self._destination, self._command, bundle)
        )
        greeted = False
        try:
            async with asyncio.timeout(FIRST_ANSWER_S):
                await link.hello()
            greeted = True
        except TimeoutError:
            raise LinkError(FailureKind.TIMEOUT, self._silence(link)) from None
        finally:
            if not greeted:
                await link.close()
        return link

    def _silence(self, link: SshLink) -> str:
        within = f"within {FIRST_ANSWER_S:g} s"
        if link.sent:
            return f"the reader sent to {self.where} gave no answer {within}: is the machine stuck?"
        why = "does a start-up file of its shell read standard input?"
        return f"no answer from {self.where} {within} of connecting: {why}"


def is_older(version: str, than: str) -> bool:
    """Return whether `version` is an older release than `than`; False if either has no numbers."""
    first, second = _numbers(version), _numbers(than)
    return bool(first and second) and first < second


def _numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version, (0, 3, 1) for "0.3.1.dev2"; () if it begins with none."""
    found = re.match(r"\d{1,9}(?:\.\d{1,9}){0,5}", version)
    return tuple(int(part) for part in found[0].split(".")) if found else ()
