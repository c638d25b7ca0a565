"""`sparktop --follow FILE`: which files are accepted, and what the viewer gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparktop.cli import main
from sparktop.commands import watch
from sparktop.errors import UsageError
from sparktop.model.targets import Watch


@pytest.mark.parametrize("text", ["", "-", "/dev/null", "/dev/tty"])
def test_what_is_no_file_is_refused_in_one_line(text: str) -> None:
    """Standard input and devices are refused in one line."""
    with pytest.raises(UsageError, match="a file or a named pipe"):
        watch.followed(text)


def test_a_folder_is_refused_and_a_file_may_be_missing(tmp_path: Path) -> None:
    """A folder is refused; a missing file is accepted and waited for."""
    with pytest.raises(UsageError, match="is none"):
        watch.followed(str(tmp_path))
    assert watch.followed(str(tmp_path / "later")) == tmp_path / "later"


def test_without_a_terminal_it_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal it ends with exit code 2 and one line; no report is printed instead."""
    assert main(["127.0.0.1:9", "--follow", str(tmp_path / "p")]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "needs a terminal" in told.err
    assert len(told.err.splitlines()) == 1


def test_the_viewer_gets_the_file_beside_what_it_watches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The viewer gets the followed file in addition to the targets of the arguments."""
    seen: list[tuple[Watch, Path | None]] = []

    def show(chosen: Watch, *, simulated: bool = False, follow: Path | None = None) -> int:
        assert not simulated
        seen.append((chosen, follow))
        return 0

    monkeypatch.setattr(watch, "show", show)
    assert main(["127.0.0.1:8000", "--follow", str(tmp_path / "p")]) == 0
    ((chosen, follow),) = seen
    assert [one.url for one in chosen.backends] == ["http://127.0.0.1:8000"]
    assert follow == tmp_path / "p"
