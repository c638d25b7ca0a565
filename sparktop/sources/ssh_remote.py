"""What ssh runs on the other machine, the reader that is sent there, and how its failures are explained."""

from __future__ import annotations

import hashlib
import io
import os
import re
import shlex
import zipfile
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from importlib.util import find_spec

from msgspec import Struct

from sparktop.model.failure import FailureError, FailureKind
from sparktop.model.text import clean, lines_of

_PACKAGES = ("hardware",)
"""Packages that are sent whole."""
_MODULES = (
    "__init__",
    "agent/__init__",
    "agent/reader",
    "ending",
    "model/__init__",
    "model/failure",
    "model/instant",
    "model/node",
    "model/ranks",
    "model/text",
    "sources/__init__",
    "sources/local",
    "sources/replies",
    "stopping",
)
"""The other modules that these and `sparktop.agent.reader` import, as paths below the package."""
_MAIN = '''"""Read this machine for the viewer that sent this file: `python3 -I -S reader.pyz`."""

import sys

from sparktop.agent.reader import run

sys.exit(run())
'''
_STAND_IN = "sources/reader_structs.py"
"""Sent as `msgspec`, which makes the records of this package's modules and is not installed there."""
_TIME = (1980, 1, 1, 0, 0, 0)
"""The time of every file in the zip file: the oldest that the format can express."""
_UNIX, _MODE = 3, 0o644
_LEVEL = 6
"""Of compression: 9 takes twice as long for 1 kB less."""


class Bundle(Struct, frozen=True):
    """The reader as a zip file of source, of which one installation always makes the same bytes."""

    data: bytes
    sha256: str
    """In hexadecimal digits."""


@cache
def reader_bundle() -> Bundle:
    """Return the reader of this version of sparktop; it is built at the first call, which takes 20 ms."""
    sources = {"__main__.py": _MAIN.encode(), **dict(_own_files()), **dict(_nvml_file())}
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for name in sorted(sources):
            entry = zipfile.ZipInfo(name, _TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system, entry.external_attr = _UNIX, _MODE << 16
            archive.writestr(entry, sources[name], compresslevel=_LEVEL)
    data = written.getvalue()
    return Bundle(data, hashlib.sha256(data).hexdigest())


def _own_files() -> Iterator[tuple[str, bytes]]:
    """Yield name in the zip file and source of each module of this package that is sent."""
    root = files("sparktop")
    yield "msgspec/__init__.py", root.joinpath(_STAND_IN).read_bytes()
    yield "msgspec/structs.py", b"from dataclasses import replace\n"
    for module in _MODULES:
        yield f"sparktop/{module}.py", root.joinpath(f"{module}.py").read_bytes()
    for package in _PACKAGES:
        yield from _python_files(root.joinpath(package), f"sparktop/{package}")


def _python_files(folder: Traversable, name: str) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each Python file in `folder` and the folders in it."""
    for entry in folder.iterdir():
        if entry.name.endswith(".py"):
            yield f"{name}/{entry.name}", entry.read_bytes()
        elif entry.is_dir() and entry.name != "__pycache__":
            yield from _python_files(entry, f"{name}/{entry.name}")


def _nvml_file() -> Iterator[tuple[str, bytes]]:
    """Yield name and source of pynvml, without loading it; nothing where it is not installed."""
    spec = find_spec("pynvml")
    read = None if spec is None else getattr(spec.loader, "get_data", None)  # it may be in a zip file itself
    if spec is not None and read is not None:
        yield "pynvml.py", read(spec.origin)


READY = b"sparktop.reader/1"
"""The line with which the other machine's Python asks for the reader."""
CUT_INPUT, WRONG_DIGEST, NO_PYTHON, NO_LINUX, STUCK_PYTHON, STUCK_COMMAND = 75, 76, 77, 78, 79, 80
"""Exit codes of the program that receives the reader, and of the shell that looks for what to run."""

_OPTIONS = {
    "BatchMode": "yes",  # never prompt: the screen belongs to the viewer
    "ConnectTimeout": "10",
    "ServerAliveInterval": "5",
    "ServerAliveCountMax": "3",
    # An existing master connection may be used; becoming master would end other sessions together with ours.
    "ControlMaster": "no",
    "ClearAllForwardings": "yes",
    "RemoteCommand": "none",
    "LogLevel": "ERROR",
}
"""Options for this use only; all else, including the host-key policy, is the user's configuration."""
_PATH = 'PATH="$PATH:$HOME/.local/bin:$HOME/bin"; export PATH; '
"""Folders in which pipx and uv install programs; a shell that ssh starts has them not in PATH."""
_NICE = "nice -n 10"
"""Reading a machine must not slow what it serves."""
_COMMAND = f'case "$c" in "~/"*) c="$HOME/${{c#??}}";; esac; {_PATH}'
"""Resolves the sparktop command in $c."""
_PYTHON_FLAGS = "-I -S -B"
"""No settings of the user, no packages, and no compiled copies of modules: nothing is written."""
START_S = 15
"""Seconds that a Python may take to start; ours end later, so that the message names this cause."""
_BOUND = f"timeout -k 1 {START_S}"
"""Ends a command that hangs, which no end of the connection would reach. Older busybox has other options."""
_HAVE_BOUND = f't="{_BOUND}"; $t true </dev/null >/dev/null 2>&1 || t=; '
"""Sets $t to what bounds a command; to nothing where there is no such program."""
_RUN = (
    f'{_HAVE_BOUND}$t "$c" --version </dev/null >/dev/null 2>&1; '
    f'case $? in 124|137|143) exit {STUCK_COMMAND};; esac; exec {_NICE} "$c" agent --stdio'
)
"""Runs the sparktop command in $c, if it starts at all."""
_NEWER = ("python3.14", "python3.13", "python3.12", "python3.11", "python3.10")
_FIND_PYTHON = (
    f"{_HAVE_BOUND}for p in python3 {' '.join(_NEWER)}; do "
    f'$t "$p" {_PYTHON_FLAGS} -c "import sys; sys.exit(sys.version_info < (3, 10))" '
    "</dev/null >/dev/null 2>&1; "
    f'case $? in 0) exec {_NICE} "$p" {_PYTHON_FLAGS} -c "$1" "$2" "$3";; '
    f"124|137|143) exit {STUCK_PYTHON};; esac; done; "
    f"command -v python3 >/dev/null 2>&1 && $t python3 -V </dev/null >&2; exit {NO_PYTHON}"
)
"""Runs the program $1 with the arguments $2 and $3 in the first Python that is new enough."""
_RECEIVE = (
    "import hashlib,os,signal,sys;"
    "n,d=int(sys.argv[1]),sys.argv[2];"
    f'hasattr(os,"memfd_create") or sys.exit({NO_LINUX});'
    "signal.alarm(60);"
    "print();"  # what a start-up file printed may lack its last end of line
    f'print("{READY.decode()}",flush=True);'
    "b=bytearray();"
    '[b.extend(c) for c in iter(lambda:os.read(0,n-len(b)),b"")];'
    "signal.alarm(0);"
    f"len(b)<n and sys.exit({CUT_INPUT});"
    f"hashlib.sha256(b).hexdigest()==d or sys.exit({WRONG_DIGEST});"
    'f=os.memfd_create("sparktop");'
    "os.write(f,b);"
    'sys.path.insert(0,"/proc/self/fd/%d"%f);'
    "from sparktop.agent.reader import run;"
    "sys.exit(run())"
)
"""Reads a zip file of argv[1] bytes and SHA-256 argv[2] from standard input into memory, and runs its reader.

Waits at most 60 s for the file. One line without single quotes, backslashes and exclamation marks, which no
login shell changes."""


class Remote(Struct, frozen=True):
    """A machine behind ssh, and what may read it there: an installed sparktop, the reader, or either."""

    destination: str
    """As ssh accepts it: a host of its configuration, or user@host."""
    command: str | None = None
    """The installed sparktop, which is used where it is; None: none is looked for."""
    bundle: Bundle | None = None
    """The reader to send where no installed one is used; None: none may be sent."""


def command_line(ssh: str, options: Sequence[str], remote: Remote) -> list[str]:
    """Return the command line, as a list, that starts ssh with a reader at its remote end.

    Neither destination nor command can be taken for an option or expanded by a shell. Any login shell works
    at the destination, because it gets only words in single quotes.
    """
    ours = [word for name, value in _OPTIONS.items() for word in ("-o", f"{name}={value}")]
    words = " ".join(shlex.quote(word) for word in _script_and_arguments(remote))
    return [ssh, *options, "-T", "-x", "-a", *ours, "--", remote.destination, f"exec sh -c {words}"]


def _script_and_arguments(remote: Remote) -> list[str]:
    """Return the script that `sh -c` runs at the destination, and its arguments from $0 on."""
    if remote.bundle is None:
        return [f'c="$0"; {_COMMAND}{_RUN}', remote.command or ""]
    received = ["sparktop", _RECEIVE, str(len(remote.bundle.data)), remote.bundle.sha256]
    if remote.command is None:
        return [_PATH + _FIND_PYTHON, *received]
    installed = f'c="$4"; {_COMMAND}if command -v "$c" >/dev/null 2>&1; then {_RUN}; fi; '
    return [installed + _FIND_PYTHON, *received, remote.command]


def quiet_environment() -> dict[str, str]:
    """Return the environment variables, changed so that ssh cannot open a window to ask for a password."""
    return {**os.environ, "SSH_ASKPASS": "/bin/false", "SSH_ASKPASS_REQUIRE": "never"}


# Diagnosis of an ssh process that failed: a one-line message from its exit status and stderr.


_SSH_FAILED = 255
"""Exit status of ssh's own failures; any other is the remote program's (ssh(1), EXIT STATUS)."""
_NOT_EXECUTABLE = 126
_NOT_FOUND = 127
_USAGE = 2
"""Exit statuses of a shell: a command that cannot be run, that is missing, and wrong arguments."""
_WORDS_LIMIT = 90
"""Most characters that are quoted of a message of ssh."""
_GIVES_UP_S = 10.0
"""Seconds without any answer after which ssh has given up (ServerAliveInterval): it prints that only
at LogLevel INFO, at which it also prints banners."""
_INSTALL = "clone its repository there and run `make install`, or set command to where it is"

_REMEDY = re.compile(r"^\s*(ssh-keygen .*-R .*)$", re.MULTILINE)
"""Matches the command that ssh prints for removing an old host key, with file and port."""
# As in "Permission denied (publickey,password).", the methods that the host takes.
_PERMISSION = re.compile(r"Permission denied \(([^)]*)\)")
# Messages about ssh's own configuration.
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


class LinkError(FailureError):
    """Raised where an ssh connection failed."""


class SshEnding(Struct, frozen=True):
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


def explain(ending: SshEnding) -> LinkError:
    """Return, without raising it, the error that explains to the user why ssh ended."""
    if ending.status == _SSH_FAILED:
        return _explain_ssh(ending)
    where, command, words = ending.where, ending.command, _last_line(ending.written)
    quoted = f": {words}" if words else ""
    kind = FailureKind.ENDED
    if (error := _explain_receiver(ending)) is not None:
        return error
    if command is None and ending.status in {_NOT_FOUND, _NOT_EXECUTABLE}:
        kind = FailureKind.COMMAND_NOT_FOUND
        message = f"{where} runs no `sh`, `nice` or Python where ssh looks for them{quoted}"
    elif command is None and ending.status is not None and ending.status >= 0:
        program_words = "the reader sent to" if ending.sent else "the login shell on"
        message = f"{program_words} {where} ended with status {ending.status}{quoted}"
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


def _explain_receiver(ending: SshEnding) -> LinkError | None:
    """Return the error for an exit status of the shell there, or of what receives the reader; else None."""
    where, words = ending.where, _last_line(ending.written)
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
        stderr_note = f" ({words})" if words else ""
        message = f"no Python 3.10 or newer on {where}{stderr_note}: install one there, or sparktop itself"
        return LinkError(FailureKind.COMMAND_NOT_FOUND, message)
    return None


def _explain_ssh(ending: SshEnding) -> LinkError:
    """Return the error for a failure of ssh itself (status 255), by its messages on stderr.

    ssh never translates these messages.
    """
    where, text = ending.where, ending.written
    host = where.rpartition("@")[2]
    if "HOST IDENTIFICATION HAS CHANGED" in text:
        match = _REMEDY.search(text)
        remedy = clean(match[1], 100) if match else f"ssh-keygen -R {host}"
        message = f"{where} has another host key than before: if that is right, run `{remedy}`, then ssh once"
        return LinkError(FailureKind.HOST_KEY, message)
    if "Host key verification failed" in text or "host key is known for" in text:
        message = f"the host key of {where} is not known here: run `ssh {where}` once and check it"
        return LinkError(FailureKind.HOST_KEY, message)
    if match := _PERMISSION.search(text):
        message = (
            f"{where} accepts no key of ours ({clean(match[1], 40)}): "
            "put one into its authorized_keys; one with a passphrase needs ssh-agent"
        )
        return LinkError(FailureKind.UNAUTHORIZED, message)
    if "Too many authentication failures" in text:
        message = f"{where} refuses after too many keys: set IdentityFile and IdentitiesOnly for it"
        return LinkError(FailureKind.UNAUTHORIZED, message)
    return _explain_network(ending)


def _explain_network(ending: SshEnding) -> LinkError:
    """Return the error for trouble with ssh's configuration or the network, or unknown trouble."""
    where, text = ending.where, ending.written
    if _CONFIGURATION.search(text):
        message = f"ssh cannot use its configuration here: {_last_line(text)}"
        return LinkError(FailureKind.UNSUPPORTED, message)
    for pattern, kind, message in _NETWORK:
        if pattern in text:
            return LinkError(kind, message.format(where))
    words = _last_line(text)
    if ending.answered and not words and ending.unanswered_s >= _GIVES_UP_S:
        message = f"{where} does not answer any more (ssh: no answer for {ending.unanswered_s:.0f} s)"
        return LinkError(FailureKind.TIMEOUT, message)
    if ending.answered and not words:  # what ssh prints when a signal ended the remote program
        message = f"the sparktop on {where} was ended by a signal, or its connection"
        return LinkError(FailureKind.ENDED, message)
    return LinkError(FailureKind.UNREACHABLE, f"ssh to {where} failed: {words or 'it gave no reason'}")


def _last_line(text: str) -> str:
    """Return the last line of `text` that is not empty, cleaned; "" if all lines are empty."""
    lines = (clean(line, _WORDS_LIMIT) for line in reversed(lines_of(text)))
    return next((line for line in lines if line), "")
