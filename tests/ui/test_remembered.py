"""What is remembered from one run to the next, whatever stands in the file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sparktop.panels.board.layout import Boxes
from sparktop.panels.board.view import WINDOWS_S, GraphStyle, Preset, Sort, View
from sparktop.panels.server.table import ColumnOrder
from sparktop.ui.remembered import recall, remember

NO_BOXES = Boxes(nodes=False, backends=False, events=False, self_cost=False)
VIEWS = st.fixed_dictionaries(
    {
        "preset": st.sampled_from(Preset),
        "sort": st.sampled_from(Sort),
        "boxes": st.builds(Boxes, *[st.booleans()] * 4).map(
            lambda boxes: Boxes() if boxes == NO_BOXES else boxes
        ),
        "filter": st.text(max_size=5),
        "graphs": st.sampled_from(GraphStyle),
        "window_s": st.sampled_from(WINDOWS_S),
        "columns": st.sampled_from(ColumnOrder),
    }
).map(lambda fields: View(**fields))
NAMES = st.sampled_from(
    [
        "boxes",
        "preset",
        "sort",
        "graphs",
        "window_s",
        "columns",
        "nodes",
        "backends",
        "filter",
        "x",
        "__class__",
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.sampled_from(Preset),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of a file in folders that do not exist yet."""
    return tmp_path_factory.mktemp("state") / "a" / "b" / "view.json"


@given(VIEWS)
def test_a_view_comes_back_without_its_filter(place: Path, view: View) -> None:
    """Preset, order and boxes are the same after a round trip; a filter belongs to one run only."""
    assert remember(place, view) is None
    assert recall(place) == replace(view, filter="")
    assert [one.name for one in place.parent.iterdir()] == ["view.json"]


@given(JSON)
def test_whatever_stands_in_the_file_gives_a_view(place: Path, data: object) -> None:
    """JSON of any shape gives a view that can be drawn: known words, at least one box, no filter."""
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps(data), encoding="utf-8")
    view = recall(place)
    assert isinstance(view.preset, Preset)
    assert isinstance(view.sort, Sort)
    assert view.window_s in WINDOWS_S
    assert view.boxes != NO_BOXES
    assert view.filter == ""


def test_what_cannot_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A place where nothing can be written gives a reason in words, and leaves nothing behind."""
    (tmp_path / "file").touch()
    assert remember(tmp_path / "file" / "view.json", View()) in {"Not a directory", "File exists"}

    def refuse(_: Path, target: Path) -> Path:
        raise PermissionError(13, "Permission denied", str(target))

    monkeypatch.setattr(Path, "replace", refuse)
    assert remember(tmp_path / "new" / "view.json", View()) == "Permission denied"
    assert list((tmp_path / "new").iterdir()) == []
