"""Diagnosis of an ssh process that failed: a one-line message from its exit status and stderr."""

from __future__ import annotations

import re

from msgspec import Struct

from sparktop.model.failure import FailureKind
from sparktop.model.text import clean
from sparktop.sources.ssh.remote import (
    CUT_INPUT,
    NO_LINUX,
    NO_PYTHON,
    START_S,
    STUCK_COMMAND,
    STUCK_PYTHON,
    WRONG_DIGEST,
)

_SSH_FAILED = 255
"""Exit status of ssh's own failures; any other is the remote program's (ssh(1), EXIT STATUS)."""
_NOT_EXECUTABLE = 126
_NOT_FOUND = 127
_USAGE = 2
_WORDS_LIMIT = 90
_GIVES_UP_S = 10.0
"""Seconds without any answer after which ssh has given up (ServerAliveInterval): it prints that only
at LogLevel INFO, at which it also prints banners."""
_INSTALL = "clone its repository there and run `make install`, or set command to where it is"

_REMEDY = re.compile(r"^\s*(ssh-keygen .*-R .*)$", re.MULTILINE)
"""Matches the command that ssh prints for removing an old host key, with file and port."""
_PERMISSION = re.compile(r"Permission denied \(([^)]*)\)")
_CONFIGURATION = re.compile(r"Bad configuration option|bad configuration options|Bad owner or permissions")
_LOST = "the ssh connection to {} failed "
_NETWORK = (
    ("Could not resolve hostname", FailureKind.DNS, "the host name of {} does not resolve: is it right?"),
    ("Connection refused", FailureKind.REFUSED, "no ssh server answers at {} (connection refused)"),
    ("timed out", FailureKind.TIMEOUT, "{} does not answer (ssh: connection timed out)"),
    ("not responding", FailureKind.TIMEOUT, "{} does not answer any more (ssh: not responding)"),
    ("No route to host", FailureKind.UNREACHABLE, f"{_LOST}(no route to host)"),
    ("Network is unreachable", FailureKind.UNREACHABLE, f"{_LOST}(network unreachable)"),
    ("Connection reset", FailureKind.UNREACHABLE, f"{_LOST}(connection reset)"),
    ("Connection closed", FailureKind.UNREACHABLE, f"{_LOST}(connection closed)"),
    ("closed by remote host", FailureKind.UNREACHABLE, f"{_LOST}(connection closed)"),
    ("Broken pipe", FailureKind.UNREACHABLE, f"{_LOST}(connection lost)"),
)
"""Text in ssh's stderr, its failure kind and our message; the first match counts."""


class LinkError(Exception):
    """Raised where an ssh connection failed; has the failure kind and a one-line message."""

    def __init__(self, kind: FailureKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = clean(message)


class Ending(Struct, frozen=True):
    """How an ssh process ended, as input of `explain`."""

    where: str
    """Destination as the user wrote it: user@host."""
    command: str | None
    """The installed sparktop that ssh was asked to run; None if the reader is sent."""
    status: int | None
    """Exit status of ssh. A negative value is the negated number of a signal; None means that ssh still
    runs."""
    written: str
    """The last part of stderr."""
    answered: bool = False
    """Whether the remote agent had answered before."""
    sent: bool = False
    """Whether the reader had been sent."""
    unanswered_s: float = 0.0
    """Seconds since the oldest request without an answer; 0 if there is none."""


def explain(ending: Ending) -> LinkError:
    """Return, without raising it, the error that explains to the user why ssh ended."""
    if ending.status == _SSH_FAILED:
        return _of_ssh(ending)
    where, command, words = ending.where, ending.command, _last_words(ending.written)
    quoted = f": {words}" if words else ""
    kind = FailureKind.ENDED
    if (found := _of_receiver(ending)) is not None:
        return found
    if command is None and ending.status in {_NOT_FOUND, _NOT_EXECUTABLE}:
        kind = FailureKind.COMMAND_NOT_FOUND
        message = f"{where} runs no `sh`, `nice` or Python where ssh looks for them{quoted}"
    elif command is None and ending.status is not None and ending.status >= 0:
        what = "the reader sent to" if ending.sent else "the login shell on"
        message = f"{what} {where} ended with status {ending.status}{quoted}"
    elif ending.status == _NOT_FOUND:
        kind = FailureKind.COMMAND_NOT_FOUND
        message = f"no `{command}` on {where}: without ssh_bundle, ssh needs sparktop there: {_INSTALL}"
    elif ending.status == _NOT_EXECUTABLE:
        kind = FailureKind.COMMAND_NOT_FOUND
        message = f"`{command}` on {where} cannot be run{quoted}"
    elif ending.status == _USAGE and not ending.answered:
        kind = FailureKind.VERSION
        message = f"the sparktop on {where} has no `agent --stdio`: update it there{quoted}"
    elif ending.status is None:
        message = f"the sparktop on {where} ended its answers{quoted}"
    elif ending.status < 0:
        message = f"ssh to {where} was ended by signal {-ending.status}{quoted}"
    else:
        message = f"`{command} agent --stdio` on {where} ended with status {ending.status}{quoted}"
    return LinkError(kind, message)


def _of_receiver(ending: Ending) -> LinkError | None:
    """Return the error for an exit status of the shell there, or of what receives the reader; else None."""
    where, words = ending.where, _last_words(ending.written)
    if ending.status == CUT_INPUT:
        message = f"the reader sent to {where} did not arrive whole: the connection ended before"
        return LinkError(FailureKind.ENDED, message)
    if ending.status == WRONG_DIGEST:
        message = f"the reader sent to {where} arrived changed (another SHA-256), so it was not run"
        return LinkError(FailureKind.MALFORMED, message)
    if ending.status == NO_LINUX:
        message = f"{where} is no Linux machine: the reader needs its /proc and /sys"
        return LinkError(FailureKind.UNSUPPORTED, message)
    if ending.status in {STUCK_PYTHON, STUCK_COMMAND}:
        what = "the Python" if ending.status == STUCK_PYTHON else f"`{ending.command}`"
        message = f"{what} on {where} does not start within {START_S} s: is a disk or a network folder stuck?"
        return LinkError(FailureKind.TIMEOUT, message)
    if ending.status == NO_PYTHON:
        seen = f" ({words})" if words else ""
        message = f"no Python 3.10 or newer on {where}{seen}: install one there, or sparktop itself"
        return LinkError(FailureKind.COMMAND_NOT_FOUND, message)
    return None


def _of_ssh(ending: Ending) -> LinkError:
    """Return the error for a failure of ssh itself (status 255), by its messages on stderr.

    ssh never translates these messages.
    """
    where, text = ending.where, ending.written
    host = where.rpartition("@")[2]
    if "HOST IDENTIFICATION HAS CHANGED" in text:
        remedy = clean(found[1], 100) if (found := _REMEDY.search(text)) else f"ssh-keygen -R {host}"
        message = f"{where} has another host key than before: if that is right, run `{remedy}`, then ssh once"
        return LinkError(FailureKind.HOST_KEY, message)
    if "Host key verification failed" in text or "host key is known for" in text:
        message = f"the host key of {where} is not known here: run `ssh {where}` once and check it"
        return LinkError(FailureKind.HOST_KEY, message)
    if found := _PERMISSION.search(text):
        message = (
            f"{where} accepts no key of ours ({clean(found[1], 40)}): "
            "put one into its authorized_keys; one with a passphrase needs ssh-agent"
        )
        return LinkError(FailureKind.UNAUTHORIZED, message)
    if "Too many authentication failures" in text:
        message = f"{where} refuses after too many keys: set IdentityFile and IdentitiesOnly for it"
        return LinkError(FailureKind.UNAUTHORIZED, message)
    return _of_network(ending)


def _of_network(ending: Ending) -> LinkError:
    where, text = ending.where, ending.written
    if _CONFIGURATION.search(text):
        message = f"ssh cannot use its configuration here: {_last_words(text)}"
        return LinkError(FailureKind.UNSUPPORTED, message)
    for seen, kind, message in _NETWORK:
        if seen in text:
            return LinkError(kind, message.format(where))
    words = _last_words(text)
    if ending.answered and not words and ending.unanswered_s >= _GIVES_UP_S:
        message = f"{where} does not answer any more (ssh: no answer for {ending.unanswered_s:.0f} s)"
        return LinkError(FailureKind.TIMEOUT, message)
    if ending.answered and not words:  # what ssh prints when a signal ended the remote program
        message = f"the sparktop on {where} was ended by a signal, or its connection"
        return LinkError(FailureKind.ENDED, message)
    return LinkError(FailureKind.UNREACHABLE, f"ssh to {where} failed: {words or 'it gave no reason'}")


def _last_words(text: str) -> str:
    """Return the last line of `text` that is not empty, cleaned; "" if all lines are empty."""
    lines = (clean(line, _WORDS_LIMIT) for line in reversed(text.splitlines()))
    return next((line for line in lines if line), "")
