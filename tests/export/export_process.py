"""`sparktop export` as a process of its own, for the duration of a test."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.agent.agent_process import END_S, listening

COMMAND = [sys.executable, "-m", "sparktop", "export"]


@dataclass(frozen=True)
class ExportProcess:
    """A running export and what it printed at its start."""

    process: subprocess.Popen[str]
    line: str
    """The line that it printed at its start."""

    @property
    def url(self) -> str:
        """The server's URL, without the path of the page."""
        return self.line.split(" on ")[1].split(": ")[0].removesuffix("/metrics")

    def page(self, accept: str = "text/plain") -> str:
        """Fetch the page."""
        asked = urllib.request.Request(f"{self.url}/metrics", headers={"Accept": accept})  # noqa: S310 - our own
        with urllib.request.urlopen(asked, timeout=END_S) as answer:  # noqa: S310 - as above
            content: bytes = answer.read()
        return content.decode()

    def end(self, signum: int) -> tuple[int, str]:
        """Send a signal; return the exit code and the output since the start."""
        self.process.send_signal(signum)
        _, err = self.process.communicate(timeout=END_S)
        return self.process.returncode, err


@contextmanager
def exporting(home: Path, *words: str, **more: str) -> Iterator[ExportProcess]:
    """Start an export on a free port of loopback; kill it at the latest when the context ends."""
    with listening(COMMAND, home, *words, **more) as (process, said):
        yield ExportProcess(process, said[-1])
