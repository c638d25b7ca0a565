"""The truth server as a process, and the true figures of a load, from the server's own times.

The figures are computed here independently of `sparktop.sweep.result.measure`: a truth with the same
arithmetic would have the same mistakes.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from truth_delivery import Delivery, delivery_fields
from truth_schedule import Pace, Stream, pace_fields
from truth_server import heard

_SERVER = Path(__file__).parent / "truth_server.py"
_ASK_S = 30.0
_END_S = 10.0


def go_first(pid: int) -> None:
    """Set a process to real-time priority: it runs before all others that do not have it.

    Raises:
        PermissionError: the user is not root.
    """
    os.sched_setscheduler(pid, os.SCHED_RR, os.sched_param(1))


class TruthProcess:
    """A truth server in a separate process, which ends with the context."""

    def __init__(self, core: int | None = None, *, realtime: bool = False) -> None:
        """Start the server, on `core` if given, and at real-time priority with `realtime`."""
        where = [] if core is None else ["--core", str(core)]
        self._process = subprocess.Popen(
            [sys.executable, str(_SERVER), *where], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None  # noqa: S101 - for mypy: it is a pipe
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the truth server did not start: exit code {self._process.wait(_END_S)}")
        self.port = int(line)
        if realtime:
            go_first(self.pid)

    @property
    def url(self) -> str:
        """Base URL of the server."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Id of the server's process."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether the server's process has ended."""
        return self._process.poll() is not None

    def keep_to(self, pace: Pace, delivery: Delivery | None = None) -> None:
        """Set the server's pace and delivery, and make it forget all requests.

        Without a delivery, each token has its own chunk with its id.
        """
        shown = {} if delivery is None else {"delivery": delivery_fields(delivery)}
        self._ask("POST", json.dumps(pace_fields(pace) | shown))

    def streams(self) -> list[Stream]:
        """Return all requests since the pace was set, in the order of their arrival."""
        return [heard(fields) for fields in self._ask("GET", None)["requests"]]

    def __enter__(self) -> Self:
        """Return this object."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the server."""
        try:
            self._process.communicate(timeout=_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()

    def _ask(self, method: str, body: str | None) -> Any:  # noqa: ANN401 - whatever the JSON holds
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_ASK_S)
        try:
            connection.request(method, "/truth", body)
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()


def ttft_s(stream: Stream) -> float:
    """Return the seconds from the request's arrival to its first token."""
    return stream.stamps[0] - stream.arrived_at


def tpot_s(stream: Stream) -> float:
    """Return the mean seconds from one token to the next."""
    return (stream.stamps[-1] - stream.stamps[0]) / (len(stream.stamps) - 1)


def itl_s(streams: Iterable[Stream]) -> float:
    """Return the mean of all gaps between consecutive tokens in seconds."""
    gaps = [later - earlier for one in streams for earlier, later in pairwise(one.stamps)]
    return sum(gaps) / len(gaps)


def decode_tps(streams: Iterable[Stream]) -> float:
    """Return the tokens after each request's first / (latest last token - earliest first token)."""
    stamped = [stream.stamps for stream in streams if stream.stamps]
    window_s = max(stamps[-1] for stamps in stamped) - min(stamps[0] for stamps in stamped)
    return sum(len(stamps) - 1 for stamps in stamped) / window_s


def pure_decode_tps(streams: Sequence[Stream]) -> float:
    """Return the rate from the last of all first tokens to the first of all last tokens."""
    begin = max(stream.stamps[0] for stream in streams)
    end = min(stream.stamps[-1] for stream in streams)
    return _tokens_within(streams, begin, end) / (end - begin)


def sustained_tps(streams: Sequence[Stream], concurrency: int) -> float:
    """Return the rate of a closed loop while `concurrency` requests run.

    That is from the arrival that completes the load to the first end without a following request.
    """
    arrivals = sorted(stream.arrived_at for stream in streams)
    begin = arrivals[concurrency - 1]
    end = min(stream.stamps[-1] for stream in streams if stream.stamps[-1] > arrivals[-1])
    return _tokens_within(streams, begin, end) / (end - begin)


def output_tps(streams: Sequence[Stream]) -> float:
    """Return all tokens / (latest last token - earliest arrival)."""
    end = max(stream.stamps[-1] for stream in streams)
    return sum(len(one.stamps) for one in streams) / (end - min(one.arrived_at for one in streams))


def _tokens_within(streams: Iterable[Stream], begin: float, end: float) -> int:
    return sum(begin < at <= end for stream in streams for at in stream.stamps)
