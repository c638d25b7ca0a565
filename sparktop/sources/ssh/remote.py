"""What ssh is asked to run on the other machine: an installed sparktop, or the reader that is sent to it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence

from msgspec import Struct

from sparktop.sources.ssh.bundle import Bundle

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
