"""The agent behind an ssh connection: a line for each request and each answer, and nothing left behind."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sparktop import __version__
from sparktop.agent.reader import LONGEST_LINE, Sampler, serve
from sparktop.model.failure import FailureKind
from sparktop.sources.decode import WireError, decode
from sparktop.sources.replies import Reply
from tests.agent.agent_process import COMMAND, END_S, environment
from tests.agent.fake_machine import BOOT_ID, TABLE, FakeMachine, hung
from tests.known import known
from tests.programs import killed

MOST_RSS_MB = 35.0
"""Of --stdio: Python with asyncio and no package."""


class Talk:
    """The other ends of an agent's standard input and output."""

    def __init__(self, machine: FakeMachine, idle_s: float) -> None:
        self.machine = machine
        self._source, self._to_agent = os.pipe()
        self._from_agent, self._sink = os.pipe()
        self._answers = os.fdopen(self._from_agent, "rb")
        sampler = Sampler(machine, clock=asyncio.get_running_loop().time)
        self.ended = asyncio.ensure_future(serve(sampler, self._source, self._sink, idle_s=idle_s))
        self._open = {self._source, self._to_agent, self._sink}

    async def say(self, data: bytes) -> None:
        """Send bytes; in a thread, because the agent may not be reading."""
        await asyncio.to_thread(os.write, self._to_agent, data)

    async def line(self) -> bytes:
        """Read one line."""
        return await asyncio.to_thread(self._answers.readline)

    async def reply(self) -> Reply:
        """Read one answer."""
        return decode(await self.line())

    async def ask(self, request: object) -> Reply:
        """Send a request and read the answer."""
        await self.say(json.dumps(request).encode() + b"\n")
        return await self.reply()

    def hang_up(self) -> None:
        """Close the agent's input."""
        self._close(self._to_agent)

    async def close(self) -> None:
        """Close what the test left open."""
        if self._to_agent in self._open:
            self.hang_up()
        async with asyncio.timeout(END_S):
            await asyncio.wait({self.ended})
        if not self._answers.closed:
            self._answers.close()
        for descriptor in list(self._open):
            self._close(descriptor)

    def _close(self, descriptor: int) -> None:
        self._open.remove(descriptor)
        os.close(descriptor)


@pytest.fixture
async def talk() -> AsyncIterator[Talk]:
    made = Talk(FakeMachine(asyncio.get_running_loop().time), 60.0)
    yield made
    await made.close()


async def test_it_says_hello_before_it_is_asked(talk: Talk) -> None:
    """The first line is an answer without samples that has the version; nothing is read for it."""
    hello = await talk.reply()
    assert (hello.sparktop, hello.samples, hello.schema) == (__version__, (), "sparktop.node/1")
    assert talk.machine.taken == []


async def test_each_line_is_answered_by_one(talk: Talk) -> None:
    """`since`, `processes` and `interval_s` mean the same as over HTTP; unknown keys are ignored."""
    await talk.reply()
    first = await talk.ask({})
    assert (first.boot_id, [one.processes for one in first.samples]) == (BOOT_ID, [None])
    wishes = {"processes": True, "interval_s": 0.25, "colour": {"red": 1}}
    second = await talk.ask({"since": first.samples[0].at, **wishes})
    assert [one.processes for one in second.samples] == [TABLE]
    assert second.interval_s == 0.25
    assert (await talk.ask({"since": second.samples[0].at, "interval_s": 0.25})).samples == ()


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (b"no json\n", FailureKind.MALFORMED),
        (b"\xff\x1b[31m\n", FailureKind.MALFORMED),
        (b"x" * LONGEST_LINE + b"y\n", FailureKind.TOO_LARGE),
    ],
    ids=lambda one: repr(one)[:20],
)
async def test_a_bad_line_is_answered_with_what_is_wrong(talk: Talk, line: bytes, kind: FailureKind) -> None:
    """An invalid line gets an answer that `decode` raises as an error; the next line is answered normally."""
    await talk.reply()
    await talk.say(line)
    answer = await talk.line()
    assert json.loads(answer)["schema"] == "sparktop.node/1"
    with pytest.raises(WireError) as refused:
        decode(answer)
    assert refused.value.kind is kind
    assert str(refused.value).isprintable()
    assert len((await talk.ask({})).samples) == 1


async def test_a_machine_that_hangs_is_told(talk: Talk) -> None:
    """A reading that hangs is answered with an error of the kind "timeout"."""
    await talk.reply()
    talk.machine.failure = hung()
    with pytest.raises(WireError, match="hung for 12 s") as refused:
        await talk.ask({})
    assert refused.value.kind is FailureKind.TIMEOUT


async def test_it_ends_with_its_input(talk: Talk) -> None:
    """At the end of its input it answers the last request, closes the machine and ends with exit code 0."""
    await talk.reply()
    await talk.say(b"{}")
    talk.hang_up()
    assert len((await talk.reply()).samples) == 1
    assert await talk.ended == 0
    assert talk.machine.closed


@pytest.mark.outside
async def test_it_ends_when_its_answers_are_not_read() -> None:
    """A client that does not read, so that the pipe is full, does not keep the agent running forever."""
    talk = Talk(FakeMachine(asyncio.get_running_loop().time), 0.2)
    await talk.say(b"{}\n" * 1000)
    assert await talk.ended == 0
    await talk.close()


@pytest.mark.process
def test_a_process_answers_and_ends_with_the_connection(tmp_path: Path) -> None:
    """The process reports on this machine, takes little memory, leaves no file and ends with its input."""
    process = subprocess.Popen(  # noqa: S603 - our own program
        [*COMMAND, "--stdio"],
        env=environment(tmp_path),
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    with killed(process):
        known(process.stdin).write(b'{"processes": true}\n')
        known(process.stdin).flush()
        hello, reply = (decode(known(process.stdout).readline()) for _ in range(2))
        text = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
        rss_kb = next(int(line.split()[1]) for line in text.splitlines() if line.startswith("VmRSS:"))
        assert process.communicate(timeout=END_S)[0] == b""
    assert hello.samples == ()
    assert reply.samples[-1].cpu.cores == os.cpu_count()
    assert reply.samples[-1].processes is not None
    assert (process.returncode, list(tmp_path.iterdir())) == (0, [])
    assert rss_kb * 1024 / 1e6 < MOST_RSS_MB
