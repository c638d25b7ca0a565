"""What ssh says when it fails, and what is made of it; how it is called, and how often."""

from __future__ import annotations

import asyncio
import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sparktop.model.failure import Failure, FailureKind
from sparktop.model.targets import NodeTarget
from sparktop.sources.ssh import BACKOFF_S, SshSource
from sparktop.sources.ssh_remote import Ending, Remote, command_line, explain, quiet_environment
from tests.sources.conftest import FakeClock

CHANGED = """\
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
  remove with:
  ssh-keygen -f "/home/me/.ssh/known_hosts" -R "spark-a"
Host key verification failed.
"""


KIND = FailureKind


@pytest.mark.parametrize(
    ("status", "written", "kind", "words"),
    [
        (255, CHANGED, KIND.HOST_KEY, '`ssh-keygen -f "/home/me/.ssh/known_hosts" -R "spark-a"`'),
        (255, "me@spark-a: Permission denied (publickey,password).", KIND.UNAUTHORIZED, "needs ssh-agent"),
        (255, "ssh: Could not resolve hostname spark-a: Name or", KIND.DNS, "does not resolve"),
        (255, "ssh: connect to host x port 22: Connection refused", KIND.REFUSED, "no ssh server answers"),
        (255, "ssh: connect to host x port 22: Connection timed out", KIND.TIMEOUT, "does not answer"),
        (255, "", KIND.UNREACHABLE, "it gave no reason"),
        (
            127,
            "sh: 1: exec: not found",
            KIND.COMMAND_NOT_FOUND,
            "run `make install`, or set command",
        ),
        (2, "sparktop: no 'agent' yet", KIND.VERSION, "no `agent --stdio`: update it there: spark"),
        (1, "boom", KIND.ENDED, "ended with status 1: boom"),
        (None, "", KIND.ENDED, "ended its answers"),
    ],
)
def test_each_ending_has_its_words(status: int | None, written: str, kind: FailureKind, words: str) -> None:
    """Exit status and ssh's own words give a kind and one line that says what to do."""
    failure = explain(Ending("me@spark-a", "sparktop", status, written))
    assert failure.kind is kind
    assert words in failure.message


@pytest.mark.parametrize(
    ("status", "written", "kind", "words"),
    [
        (76, "", KIND.MALFORMED, "arrived changed (another SHA-256), so it was not run"),
        (
            77,
            "Python 3.9.18\n",
            KIND.COMMAND_NOT_FOUND,
            "no Python 3.10 or newer on me@spark-a (Python 3.9.18): ",
        ),
        (79, "", KIND.TIMEOUT, "the Python on me@spark-a does not start within 15 s"),
        (127, "exec: sh: not found", KIND.COMMAND_NOT_FOUND, "where ssh looks for them: exec: sh: not found"),
        (None, "", KIND.ENDED, "ended its answers"),
    ],
)
def test_each_ending_of_a_sent_reader_has_its_words(
    status: int | None, written: str, kind: FailureKind, words: str
) -> None:
    """If the reader is sent, the message names neither a command of the user's nor an installation."""
    found = explain(Ending("me@spark-a", None, status, written, sent=True))
    assert found.kind is kind
    assert words in found.message
    assert "None" not in found.message


def test_an_end_after_long_silence_is_of_the_machine() -> None:
    """A long silence before means that ssh gave up; without one, the program there has ended."""
    silent = explain(Ending("a", None, 255, "", answered=True, sent=True, unanswered_s=15.2))
    assert (silent.kind, silent.message) == (
        KIND.TIMEOUT,
        "a does not answer any more (ssh: no answer for 15 s)",
    )
    ended = explain(Ending("a", None, 255, "", answered=True, sent=True, unanswered_s=0.4))
    assert ended.message == "the sparktop on a was ended by a signal, or its connection"


@settings(max_examples=20, deadline=None)
@given(st.text(st.characters(codec="ascii", exclude_characters="\0"), max_size=30))
@example("'; touch x; '")
@example('$(id) `id` \\ " !')
def test_the_command_reaches_the_shell_as_one_word(command: str) -> None:
    """The login shell over there runs `sh`, and that gets the command whole, whatever is in it."""
    line = command_line("ssh", (), Remote("spark", command))[-1]
    exec_sh = shlex.split(line)
    assert exec_sh[:3] == ["exec", "sh", "-c"]
    assert exec_sh[4:] == [command]


@pytest.mark.outside
def test_the_script_runs_what_it_is_given(tmp_path: Path) -> None:
    """A path with blanks and quotes is started with the agent's arguments, and nothing else is."""
    folder = tmp_path / "a 'b' $(touch bad)"
    folder.mkdir()
    program = folder / "spark top"
    program.write_text('#!/bin/sh\necho "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    line = command_line("ssh", (), Remote("spark", str(program)))[-1]
    done = subprocess.run(  # noqa: S603 - what is tested
        ["/bin/sh", "-c", line], cwd=tmp_path, capture_output=True, check=True, timeout=300
    )
    assert done.stdout == b"agent --stdio\n"
    assert sorted(one.name for one in tmp_path.iterdir()) == [folder.name]


def test_a_destination_is_no_option() -> None:
    """A host that begins with a dash follows the end of the options; ssh never prompts."""
    line = command_line("ssh", ("-F", "x"), Remote("-oProxyCommand=touch bad", "sparktop"))
    assert line[line.index("--") + 1] == "-oProxyCommand=touch bad"
    assert line[:3] == ["ssh", "-F", "x"]
    assert "BatchMode=yes" in line
    assert not [one for one in line if "StrictHostKeyChecking" in one or "UserKnownHosts" in one]
    assert quiet_environment()["SSH_ASKPASS_REQUIRE"] == "never"


class Pauses:
    """A sleep that takes no time, except for the one after `most` calls, which never ends."""

    def __init__(self, most: int) -> None:
        self.seconds: list[float] = []
        self.enough = asyncio.Event()
        self._most = most

    async def __call__(self, seconds: float) -> None:
        """Store the duration; the last call does not return."""
        self.seconds.append(seconds)
        if len(self.seconds) == self._most:
            self.enough.set()
            await asyncio.Event().wait()


async def failed(source: SshSource) -> Failure:
    reading = await source.poll(10.0)
    assert isinstance(reading, Failure)
    return reading


@pytest.mark.outside
async def test_attempts_become_seldom_and_are_told(tmp_path: Path) -> None:
    """Pauses grow to 30 s and stay there; the line says how much of the present one is left."""
    pauses = Pauses(len(BACKOFF_S) + 2)
    clock = FakeClock()
    source = SshSource(
        NodeTarget("n", "ssh", ssh="spark"), ssh=str(tmp_path / "ssh"), clock=clock, sleep=pauses
    )
    await failed(source)
    await pauses.enough.wait()
    messages = []
    for step_s in (0.0, 12.0, 18.0):
        clock.now += step_s
        messages.append((await failed(source)).message)
    await source.close()
    assert pauses.seconds == [1.0, 2.0, 5.0, 10.0, 30.0, 30.0, 30.0]
    why = "there is no ssh on this machine: install an OpenSSH client"
    assert messages == [f"{why} · reconnecting{when}" for when in (" in 30 s", " in 18 s", "")]
