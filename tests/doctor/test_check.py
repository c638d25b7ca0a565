"""The last line of the doctor: the next command to run."""

from __future__ import annotations

import pytest

from sparktop.doctor.check import Check, Status, next_step, to_text

GOOD, BAD = Check("port", Status.OK, "open"), Check("port", Status.FAIL, "closed", "start it")


@pytest.mark.parametrize(
    ("checks", "targets", "known", "line"),
    [
        (
            [GOOD, BAD],
            ["a"],
            (True, True),
            "correct what says FAIL, from the top, then run sparktop doctor a again",
        ),
        ([GOOD], [], (True, True), "sparktop"),
        (
            [GOOD],
            ["a:8000", "b\x1b[2J"],
            (False, True),
            "sparktop a:8000 'b [2J' shows them; with --write-config it writes a configuration file of them",
        ),
        (
            [GOOD],
            [],
            (False, False),
            "sparktop shows this machine; sparktop HOST looks elsewhere; sparktop demo simulates servers",
        ),
    ],
)
def test_the_next_step_follows_from_what_was_found(
    checks: list[Check], targets: list[str], known: tuple[bool, bool], line: str
) -> None:
    """The last line names a suitable next command that can be run as printed."""
    then = next_step(checks, targets=targets, has_file=known[0], found=known[1])
    assert then == line
    assert to_text({"": checks}, then).splitlines()[-1] == f"next: {line}"


def test_the_next_step_keeps_the_configuration_file() -> None:
    """The printed commands read the same file as the doctor did."""
    file, known = "my file.toml", {"has_file": True, "found": True}
    assert next_step([GOOD], targets=[], config=file, **known) == "sparktop --config 'my file.toml'"
    again = next_step([BAD], targets=["a"], config=file, **known)
    assert again.endswith("then run sparktop doctor --config 'my file.toml' a again")
