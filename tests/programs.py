"""Programs and servers that tests run: ports for them, and their end in any case."""

from __future__ import annotations

import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import AnyStr

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


@contextmanager
def killed(process: subprocess.Popen[AnyStr]) -> Iterator[subprocess.Popen[AnyStr]]:
    """Kill a process at the latest when the block ends, and wait for it."""
    with process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def served(handler: Callable[..., BaseHTTPRequestHandler]) -> Iterator[int]:
    """Answer HTTP on loopback until the block ends; yield the port."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()
