"""The agent at the remote end of an ssh connection: JSON lines in, JSON lines out.

Its first output line is a greeting: a reply without samples. Each input line is a request, `{"since": 5120.0,
"processes": false, "interval_s": 1.0}`, and gets one output line: a `Reply` of `sparktop.sources.wire` or an
error. The request `{"ranks": true}` makes the agent ask NCCL; the reply is of `sparktop.sources.wire.ranks`.
The program ends at the end of the input, when the output is closed, on a signal, or after a while without a
request, so that no process is left when the connection is gone.
"""

from __future__ import annotations

import asyncio
from typing import Any

from sparktop.agent.ask import AskError, from_line
from sparktop.agent.pipes import LONGEST_LINE, Lines, Output
from sparktop.agent.sampler import Sampler
from sparktop.agent.stopping import stopped_by_signals
from sparktop.hardware.ras import RasReader
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import NodeSample
from sparktop.python310.timeouts import timeout
from sparktop.sources.wire.ranks import encode_ranks
from sparktop.sources.wire.reply import encode, encode_error, make_reply

IDLE_S = 180.0
"""The program ends after this many seconds without a request, or without the viewer reading a response."""


async def serve(
    sampler: Sampler, source: int, sink: int, *, idle_s: float = IDLE_S, ranks: RasReader | None = None
) -> int:
    """Read requests from the file descriptor `source` and write replies to `sink`; return the exit code.

    Ends when the input ends, when a signal arrives, or after `idle_s` seconds without a request. `ranks` asks
    NCCL (None: a reader of this machine).
    """
    ranks = ranks or RasReader()
    with stopped_by_signals() as stop:
        talk = asyncio.get_running_loop().create_task(_talk(sampler, ranks, source, sink, idle_s))
        try:
            ends: set[asyncio.Future[Any]] = {talk, stop}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            code = stop.result() if stop.done() else 0
        finally:
            talk.cancel()
            await asyncio.wait({talk})
            await ranks.close()
            await sampler.close()
        if not talk.cancelled():
            talk.result()  # re-raise a programming error
        return code


async def _talk(sampler: Sampler, ranks: RasReader, source: int, sink: int, idle_s: float) -> None:
    """Write the greeting, then reply to requests until the input ends.

    Ends also after `idle_s` seconds without a request, if a write fails, or if a write takes longer than
    `idle_s`.
    """
    lines, output = Lines(source), Output(sink)
    try:
        async with timeout(idle_s):
            await output.write(_reply(sampler, ()))
        while True:
            async with timeout(idle_s):
                line = await lines.next()
            if line is None:
                return
            if line.strip():
                answer = await _answer(sampler, ranks, line)
                async with timeout(idle_s):
                    await output.write(answer)
    except (OSError, TimeoutError):
        return  # the reader is gone, or no requests come
    finally:
        output.close()


async def _answer(sampler: Sampler, ranks: RasReader, line: bytes) -> bytes:
    if len(line) > LONGEST_LINE:
        return encode_error(FailureKind.TOO_LARGE, f"a request of over {LONGEST_LINE} bytes")
    try:
        ask = from_line(line)
    except AskError as error:
        return encode_error(FailureKind.MALFORMED, str(error))
    if ask.ranks:
        return encode_ranks(await ranks.ask())
    found = await sampler.ask(ask)
    if isinstance(found, Failure):
        return encode_error(found.kind, found.message)
    return _reply(sampler, found)


def _reply(sampler: Sampler, samples: tuple[NodeSample, ...]) -> bytes:
    return encode(make_reply(sampler.identity, samples, sampler.now(), interval_s=sampler.interval_s))
