"""The hook: a program that the user configures, run once for each event, with the event as JSON on stdin."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress

from sparktop.model.text import clean
from sparktop.python310.timeouts import timeout

LIMIT_S = 10.0
"""Seconds that the program may run; then it is killed with all that it started."""
PASSED_ON = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "HOSTNAME"),
        *("DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"),
    }
)
"""Environment variables that the program gets, beside LC_*: others may hold secrets."""
_REAP_S = 2.0
_READ_BYTES = 65_536
"""Bytes of a read: all that a pipe holds."""
_TAIL_BYTES = 1024
_LONGEST = 120


class Hook:
    """A program that is run for events."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], *, limit_s: float = LIMIT_S) -> None:
        """Prepare to run `command`, a program and its arguments, for each event.

        The program gets only the variables of `env` that hold no secrets (see `hook_environment`).
        """
        self._command = tuple(command)
        self._env = hook_environment(env)
        self._limit_s = limit_s

    async def send(self, document: bytes) -> str | None:
        """Run the program with `document` on its standard input; return why it failed, None for success."""
        errors = _ErrorOutput()
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=PIPE,
                stdout=DEVNULL,
                stderr=errors.write_end,
                env=self._env,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            errors.close()
            reason = error.strerror if isinstance(error, OSError) else error
            return f"it cannot be started: {clean(reason)}"
        try:
            async with asyncio.timeout(self._limit_s):
                code = await _run(process, document)
        except TimeoutError:
            return f"it ran longer than {self._limit_s:g} s and was killed"
        finally:
            if process.returncode is None:
                await _kill(process)
            words = errors.close()
        if code == 0:
            return None
        how = f"signal {-code} ended it" if code < 0 else f"it ended with exit code {code}"
        return f"{how}: {words}" if words else how


class _ErrorOutput:
    """A pipe for a program's standard error; only the last bytes written to it are kept.

    The pipe is read while the program runs, so that the program never blocks on a full pipe. `close` does not
    wait for the end of the output, because a background process of the program may hold the pipe open.
    """

    def __init__(self) -> None:
        """Open the pipe and begin to read."""
        self._read_end, self.write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        self._tail = b""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._read_end, self._read)

    def close(self) -> str:
        """Close both ends of the pipe; return the end of what the program wrote, as one clean line."""
        self._read()
        self._loop.remove_reader(self._read_end)
        for end in (self._read_end, self.write_end):
            os.close(end)
        return clean(self._tail.decode(errors="replace"), _LONGEST)

    def _read(self) -> None:
        with suppress(BlockingIOError):
            self._tail = (self._tail + os.read(self._read_end, _READ_BYTES))[-_TAIL_BYTES:]


def hook_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of `env` that are passed to the hook program: `PASSED_ON` and LC_*."""
    return {name: value for name, value in env.items() if name in PASSED_ON or name.startswith("LC_")}


async def _run(process: Process, document: bytes) -> int:
    """Write the document to the program's standard input and wait for the program; return its exit code."""
    if process.stdin is not None:
        with suppress(OSError):  # it ended or closed its input: a program need not read it
            process.stdin.write(document)
            await process.stdin.drain()
        process.stdin.close()
    return await process.wait()


async def _kill(process: Process) -> None:
    """Kill a program and its process group; wait at most `_REAP_S` seconds for its end."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(TimeoutError):
        async with timeout(_REAP_S):
            await process.wait()
