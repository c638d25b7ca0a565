"""What ssh says when it fails, and what is made of it; how it is called, and how often."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sparktop.model.failure import FailureKind
from sparktop.sources.ssh_remote import Remote, SshEnding, command_line, explain, quiet_environment

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
    failure = explain(SshEnding("me@spark-a", "sparktop", status, written))
    assert failure.kind is kind
    assert words in failure.message


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


def test_a_destination_is_no_option() -> None:
    """A host that begins with a dash follows the end of the options; ssh never prompts."""
    line = command_line("ssh", ("-F", "x"), Remote("-oProxyCommand=touch bad", "sparktop"))
    assert line[line.index("--") + 1] == "-oProxyCommand=touch bad"
    assert line[:3] == ["ssh", "-F", "x"]
    assert "BatchMode=yes" in line
    assert not [one for one in line if "StrictHostKeyChecking" in one or "UserKnownHosts" in one]
    assert quiet_environment()["SSH_ASKPASS_REQUIRE"] == "never"
