"""Programs that tests run: ports for them, and their end in any case."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

STOP_S = 15.0


def free_port() -> int:
    """Return a port of loopback that nothing listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@contextmanager
def logged(command: Sequence[str], log_file: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program until the block ends; what it says is in `log_file`."""
    with log_file.open("wb") as log:
        # The kernel ends it, should we be killed before we can.
        process = subprocess.Popen(  # noqa: S603 - fixed commands of Debian's packages
            ["setpriv", "--pdeathsig", "TERM", *command],  # noqa: S607 - as above
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
