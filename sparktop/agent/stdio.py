"""The agent at the other end of an ssh connection: a line of JSON in, a line of JSON out.

First it says hello: an answer without samples. Then each line on standard input is a request,
`{"since": 5120.0, "processes": false, "interval_s": 1.0}`, and is answered by one line: a `Reply` of
`sparktop.wire`, or its refusal. It ends with its input, with its reader, with a signal, or when nothing was
asked for a while: nothing of it outlives the connection.
"""

from __future__ import annotations

import asyncio
from typing import Any

from sparktop.agent.ask import AskError, from_line
from sparktop.agent.pipes import LONGEST_LINE, Lines, Output
from sparktop.agent.sampler import Sampler
from sparktop.agent.stopping import stopped_by_signals
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import NodeSample
from sparktop.wire import encode, encode_error, make_reply

IDLE_S = 180.0
"""It ends after so long without a request, or with an answer that nobody reads."""


async def serve(sampler: Sampler, source: int, sink: int, *, idle_s: float = IDLE_S) -> int:
    """Answer the lines of the descriptor `source` on `sink` until there is a reason to end; the exit code."""
    with stopped_by_signals() as stop:
        talk = asyncio.get_running_loop().create_task(_talk(sampler, source, sink, idle_s))
        try:
            ends: set[asyncio.Future[Any]] = {talk, stop}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            code = stop.result() if stop.done() else 0
        finally:
            talk.cancel()
            await asyncio.wait({talk})
            await sampler.close()
        if not talk.cancelled():
            talk.result()  # an error of ours is raised here
        return code


async def _talk(sampler: Sampler, source: int, sink: int, idle_s: float) -> None:
    """Say hello and answer one line after the other."""
    lines, output = Lines(source), Output(sink)
    try:
        async with asyncio.timeout(idle_s):
            await output.write(_reply(sampler, ()))
        while True:
            async with asyncio.timeout(idle_s):
                line = await lines.next()
            if line is None:
                return
            if line.strip():
                answer = await _answer(sampler, line)
                async with asyncio.timeout(idle_s):
                    await output.write(answer)
    except (OSError, TimeoutError):
        return  # nobody reads any more, or nobody asks
    finally:
        output.close()


async def _answer(sampler: Sampler, line: bytes) -> bytes:
    if len(line) > LONGEST_LINE:
        return encode_error(FailureKind.TOO_LARGE, f"a request of over {LONGEST_LINE} bytes")
    try:
        ask = from_line(line)
    except AskError as error:
        return encode_error(FailureKind.MALFORMED, str(error))
    found = await sampler.ask(ask)
    if isinstance(found, Failure):
        return encode_error(found.kind, found.message)
    return _reply(sampler, found)


def _reply(sampler: Sampler, samples: tuple[NodeSample, ...]) -> bytes:
    return encode(make_reply(sampler.identity, samples, sampler.now(), interval_s=sampler.interval_s))
