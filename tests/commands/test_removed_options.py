"""Options of earlier versions that were removed: each is refused with what remains for its purpose."""

from __future__ import annotations

import pytest

from sparktop.cli import main


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        ("--follow FILE", "--follow was removed: watch the servers while it runs"),
        ("sweep http://127.0.0.1:1 --preset prefix-cache", "prefix-cache was removed: --depth 0,4k"),
        ("sweep --users 4", "--users was removed: --agents N --workload chat"),
        ("capacity a --users", "--users was removed: --agents --workload chat"),
        ("snapshot --from A --compare B C", "--compare was removed: sparktop report FILE"),
    ],
)
def test_a_removed_option_names_what_remains(
    words: str, instead: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line with the option and its replacement, exit code 2."""
    assert main(words.split()) == 2
    error = capsys.readouterr().err
    assert instead in error
    assert error.count("\n") == 1
