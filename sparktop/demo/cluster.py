"""Starts the simulated engines' process and tells where they listen."""

from __future__ import annotations

import json
import os
import select
import string
import subprocess
import sys
from contextlib import suppress
from types import TracebackType
from typing import Self

from sparktop.demo.model import EngineSpec
from sparktop.errors import SparktopError
from sparktop.model.targets import BackendTarget

_START_S = 30.0
"""A cold start with aiohttp takes half a second; a busy machine many times that."""
_STOP_S = 3.0


class DemoCluster:
    """Simulated engines in a process of their own, for as long as the context lasts.

    The process has its own session, so that Ctrl+C in the terminal reaches the viewer alone, and ends when
    this one does, whichever way that is: its standard input ends, and the kernel sends it a signal.
    """

    def __init__(self, *, backends: int = 2, seed: int = 0) -> None:
        """Prepare; entering the context starts the process."""
        self._backends = backends
        self._seed = seed
        self._process: subprocess.Popen[bytes] | None = None
        self.targets: tuple[BackendTarget, ...] = ()
        """Where the engines listen, once started."""

    @property
    def pid(self) -> int:
        """The process of the engines."""
        if self._process is None:
            raise SparktopError("the simulated servers are not running")
        return self._process.pid

    def __enter__(self) -> Self:
        """Start the process and wait until it serves.

        Raises:
            SparktopError: it did not start.
        """
        command = [sys.executable, "-P", "-m", "sparktop.demo.server"]
        command += ["--backends", str(self._backends), "--seed", str(self._seed)]
        # Its words of failure come as JSON; anything else would spoil the viewer's screen.
        self._process = subprocess.Popen(  # noqa: S603 - our own module, no shell
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            ports = self._read_ports(self._process)
        except BaseException:
            self._stop()
            raise
        names = [backend_name(index) for index in range(len(ports))]
        self.targets = tuple(
            BackendTarget(name, f"http://127.0.0.1:{port}", engine="vllm", slots=EngineSpec().slots)
            for name, port in zip(names, ports, strict=True)
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the process."""
        self._stop()

    def _read_ports(self, process: subprocess.Popen[bytes]) -> list[int]:
        assert process.stdout is not None  # noqa: S101 - opened as a pipe above
        ready, _, _ = select.select([process.stdout], [], [], _START_S)
        line = process.stdout.readline() if ready else b""
        if not line:
            what = "their process ended" if ready else f"no word for {_START_S:.0f} s"
            raise SparktopError(f"the simulated servers did not start: {what}")
        answer = json.loads(line)
        if "error" in answer:
            raise SparktopError(f"the simulated servers did not start: {answer['error']}")
        return [int(port) for port in answer["ports"]]

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            process.wait()


def backend_name(index: int) -> str:
    """Name the simulated servers: spark-a, spark-b, …, spark-z, spark-27, …."""
    letters = string.ascii_lowercase
    return f"spark-{letters[index] if index < len(letters) else index + 1}"
