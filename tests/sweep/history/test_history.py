"""The results on disk: listed, deleted, brought in from other tools.

Rows of the history for sweeps of agents.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sparktop.errors import UsageError
from sparktop.model.load import concurrency_point
from sparktop.model.sweep import SweepStatus
from sparktop.sweep.history import History
from sparktop.sweep.result.store import new_file, save
from sparktop.watch.state_files import announced_load
from tests.known import known
from tests.sweep.made_results import BEGAN, made_level, made_sweep

RESULTS = Path(__file__).parent.parent.parent / "data" / "results"
NOW = datetime(2026, 11, 21, 18, 0, tzinfo=UTC)
LONG_AGO = NOW - timedelta(hours=5)


@dataclass
class Shelf:
    """A folder with results, and its history."""

    folder: Path
    history: History = field(init=False)

    def __post_init__(self) -> None:
        self.history = History(self.folder)

    def keep(self, name: str, *, days: int = 0, written: datetime = LONG_AGO, **changes: object) -> None:
        """Save a small result that began `days` after the first one, last written at `written`."""
        changes = {"started_at": BEGAN + timedelta(days=days), **changes}
        made = made_sweep(("a", [made_level(2)]), preset="quick")
        save(self.folder / name, made.model_copy(update=changes))
        os.utime(self.folder / name, (written.timestamp(),) * 2)

    def listed(self) -> list[str]:
        """Read all files; return the keys, newest first."""
        self.history.find_changes()
        while self.history.read():
            pass
        return [row.key for row in self.history.rows()]


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


def test_results_are_listed_by_their_start_whatever_their_names(shelf: Shelf) -> None:
    """The newest sweep comes first; files that are not results of ours are ignored."""
    shelf.keep("b.json", days=1)
    shelf.keep("c.json", days=0)
    shelf.keep("a.json", days=2)
    (shelf.folder / ".hidden.json").write_text("{")
    (shelf.folder / "notes.txt").write_text("x")
    assert shelf.listed() == ["a.json", "b.json", "c.json"]
    shelf.keep("c.json", days=9, written=NOW)
    assert shelf.listed() == ["c.json", "a.json", "b.json"], "a file that is written again is read again"


def test_a_sweep_that_its_process_announces_is_running(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long ago it wrote; before its first level is done, with its name and start."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    new = new_file(shelf.folder, NOW, "quick")
    shelf.keep("run.json", status=None, finished_at=None, written=NOW - timedelta(hours=9))
    for running, shown in (
        (new, ("running", None, "quick", NOW.replace(microsecond=0))),
        (shelf.folder / "run.json", ("running", None, "quick", BEGAN)),
    ):
        with announced_load(["http://a"], running):
            shelf.listed()
            row = next(row for row in shelf.history.rows() if row.key == running.name)
            assert (row.status, row.problem, row.name, row.started_at) == shown
    with announced_load(["http://a"], shelf.folder / "run.json"):
        view = shelf.history.source("run.json").view()
        assert (view.status, view.status.value) == (SweepStatus.UNDER_WAY, "still running")
        assert "broken off" not in view.words
        assert shelf.history.delete(["run.json"]) == "not deleted: its sweep is running"
    assert next(row for row in shelf.history.rows() if row.key == "run.json").status == "broken off"


@pytest.mark.parametrize(
    ("name", "tool", "start"),
    [
        ("llama-benchy-0.4.0-c16.json", "llama-benchy 0.4.0", datetime(2026, 11, 21, 10, 17, 54, tzinfo=UTC)),
        ("aiperf-0.13.0-c16.json", "aiperf 0.13.0", None),
    ],
)
def test_files_of_other_tools_are_brought_in(
    shelf: Shelf, name: str, tool: str, start: datetime | None
) -> None:
    """A copy of the file is listed with its tool, its time and its level, opened and compared as our own."""
    shelf.keep("a.json")
    key = shelf.history.import_file(RESULTS / name)
    assert key == f"imported/{name}"
    assert key in shelf.listed()
    other = shelf.folder / "elsewhere" / name
    other.parent.mkdir()
    other.write_bytes(b" " + (RESULTS / name).read_bytes())
    copies = [shelf.history.import_file(path) for path in (other, RESULTS / name)]
    assert copies == [key.replace(".json", "-2.json"), key], "another of the name gets a number"
    row = next(one for one in shelf.history.rows() if one.key == key)
    assert (row.name, row.status, row.levels, row.most) == (tool, "imported", 1, concurrency_point(16))
    assert start is None or abs(known(row.started_at) - start) < timedelta(seconds=1)
    source = shelf.history.source(key)
    assert source.result is None
    assert source.view().rows
    (series,) = shelf.history.series(key)
    assert series.tool == tool
    shelf.history.delete([key, *copies])
    assert shelf.listed() == ["a.json"]


def test_a_sweep_of_another_machine_is_brought_in_as_a_sweep(shelf: Shelf, tmp_path: Path) -> None:
    """A result of sparktop keeps its status, its evidence and its time."""
    save(tmp_path / "theirs.json", made_sweep(preset="theirs"))
    key = shelf.history.import_file(tmp_path / "theirs.json")
    (tmp_path / "theirs.json").unlink()
    shelf.listed()
    (row,) = shelf.history.rows()
    assert (row.key, row.name, row.status, row.started_at) == (key, "theirs", "done", BEGAN)
    source = shelf.history.source(key)
    assert source.result is not None
    assert source.evidence(source.view().rows[0].key) is not None


def test_a_wrong_file_is_not_brought_in(shelf: Shelf, tmp_path: Path) -> None:
    """The error is one line, and nothing is copied."""
    (tmp_path / "wrong.txt").touch()
    with pytest.raises(UsageError, match=r"^\S+: is empty[^\n]*$"):
        shelf.history.import_file(tmp_path / "wrong.txt")
    assert not (shelf.folder / "imported").exists()
    with pytest.raises(UsageError, match="cannot be read"):
        shelf.history.import_file(Path("~nobody-has-this-name/x.json"))
