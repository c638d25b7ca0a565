"""How graphs and lists are drawn: saved from the options in the configuration file, and read from there."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from sparktop.config.options import VIEW
from sparktop.config.schema import check, load
from sparktop.config.toml_text import with_values
from sparktop.model.targets import ViewSettings
from sparktop.panels.board.view import WINDOWS_S, GraphStyle, View
from sparktop.panels.server.table import ColumnOrder
from sparktop.ui.remembered import as_configured, settings_of
from tests.ui.screens.test_menu import about, choose, make_app, press


async def test_how_graphs_are_drawn_is_saved_and_holds_at_the_next_start(tmp_path: Path) -> None:
    """What is not in the file is as it was last; what is set there holds, whatever was last."""
    path = tmp_path / "mine.toml"
    path.write_text("interval_s = 1.0\n", encoding="utf-8")
    app = make_app(home=tmp_path, source=str(path))
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await press(pilot, "m")
        await choose(pilot, app, "graphs", "right")
        await choose(pilot, app, "seconds of the graphs", "right")
        assert "file: view.window_s" in about(app)
        await press(pilot, "s")
        assert [note.message for note in app._notifications] == [
            "saved in ~/mine.toml: view.graphs, view.window_s"
        ]
    assert path.read_text(encoding="utf-8").endswith('[view]\ngraphs = "blocks"\nwindow_s = 120\n')
    watch = load(path).watch({})
    shown = as_configured(replace(View(), columns=ColumnOrder.CACHE, window_s=900), watch.view)
    assert (shown.graphs, shown.window_s, shown.columns) == (GraphStyle.BLOCKS, 120, ColumnOrder.CACHE)
    assert settings_of(View(), watch.view) == ViewSettings("braille dots", 60)


def test_the_file_takes_what_the_board_offers() -> None:
    """The words of the file are those of the menu."""
    graphs, window, columns = (option.choices for option in VIEW)
    assert graphs == tuple(one.value for one in GraphStyle)
    assert window == WINDOWS_S
    assert columns == tuple(one.value for one in ColumnOrder)
    for option in VIEW:
        for value in option.choices:
            check(Path("x.toml"), with_values("", {option.place: value}))
