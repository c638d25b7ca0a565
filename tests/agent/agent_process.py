"""Commands that serve, each as a process of its own for the duration of a test."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.known import known
from tests.programs import killed

ROOT = Path(__file__).parent.parent.parent
COMMAND = [sys.executable, "-m", "sparktop", "agent"]
END_S = 120.0


@dataclass(slots=True)
class ListeningProcess:
    """A running server and its output at the start."""

    process: subprocess.Popen[str]
    said: list[str]
    """Lines on standard error up to the one that tells where it listens."""

    @property
    def url(self) -> str:
        """Its URL, without the path of a page."""
        return self.said[-1].split(" on ")[1].split(": ")[0].removesuffix("/metrics")

    @property
    def address(self) -> tuple[str, int]:
        """Host and port on which it listens."""
        host, _, port = self.url.rpartition("/")[2].partition(":")
        return host, int(port)

    def end(self, signum: int) -> tuple[int, str]:
        """Send a signal; return the exit code and the lines on standard error since the start."""
        self.process.send_signal(signum)
        _, err = self.process.communicate(timeout=END_S)
        return self.process.returncode, err


def environment(home: Path, **more: str) -> dict[str, str]:
    """Return an environment with a home of the test's own and without the user's settings."""
    kept: Mapping[str, str] = {
        key: value for key, value in os.environ.items() if not key.startswith(("XDG_", "SPARKTOP_"))
    }
    return {**kept, "HOME": str(home), "PYTHONPATH": str(ROOT), **more}


@contextlib.contextmanager
def listening(command: str, home: Path, *words: str, **more: str) -> Iterator[ListeningProcess]:
    """Start a command that serves on a free port of loopback; kill it at the latest when the context ends."""
    process = subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-m", "sparktop", command, "--listen", "127.0.0.1:0", *words],
        env=environment(home, **more),
        cwd=home,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    with killed(process):
        said: list[str] = []
        while not said or f": {command} on http" not in said[-1]:
            line = known(process.stderr).readline()
            assert line, said
            said.append(line)
        yield ListeningProcess(process, said)


def ran(home: Path, *words: str, stdin: str = "", **more: str) -> tuple[int, str, str]:
    """Run `sparktop agent` to its end; return (exit code, standard output, standard error)."""
    done = subprocess.run(  # noqa: S603 - as above
        [*COMMAND, *words],
        env=environment(home, **more),
        cwd=home,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=END_S,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr
