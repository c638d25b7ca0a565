"""A group's balance as it is drawn: picture, verdict, and the band on the overview."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from sparktop.colors.palette import palettes
from sparktop.model.balance import BalanceWord
from sparktop.model.series import HistoryTable
from sparktop.model.snapshot import Snapshot
from sparktop.panels.board.layout import PanelKey
from sparktop.panels.board.scene import Scene, flatten
from sparktop.panels.group.graphs import balance_axis, group_lines
from sparktop.panels.group.panel import balance_band, balance_screen, evidence_screen
from sparktop.panels.parts.figures import flowed, wrapped
from sparktop.panels.parts.graph import TimeWindow
from sparktop.panels.parts.text import Row, row_text, row_width
from tests.panels.balance_scenes import few, herd, lanes_of, traced

SIZES = [(60, 14), (80, 22), (120, 34), (200, 48)]
SCENES = ["leastbusy-c16", "cooldown-c64", "shuffle-c64", "leastbusy-c2", "herd4", "herd8"]


def scene(name: str) -> Snapshot:
    return herd(int(name[4:])) if name.startswith("herd") else traced(name)


def picture(shown: Snapshot, width: int, height: int) -> list[str]:
    return [row_text(row) for row in balance_screen(shown.balance[0], shown, width, height)]


def part(rows: list[str], title: str) -> list[str]:
    """Return the rows below the rule with this title, up to the next rule."""
    first = next(index for index, row in enumerate(rows) if f"─ {title}" in row)
    rest = rows[first + 1 :]
    return rest[: next(index for index, row in enumerate(rest) if row[2] == "─" or row[0] == "╰")]


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("name", SCENES)
def test_every_row_is_as_wide_as_the_terminal(name: str, width: int, height: int) -> None:
    """At each size, a group's picture and evidence are framed, and fill the terminal or scroll."""
    shown = scene(name)
    for draw in (balance_screen, evidence_screen):
        rows = draw(shown.balance[0], shown, width, height)
        assert {row_width(row) for row in rows} == {width}
        assert len(rows) >= height
        assert (row_text(rows[0])[0], row_text(rows[-1])[-1]) == ("╭", "╯")


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("name", ["leastbusy-c16", "cooldown-c64", "shuffle-c64", "herd4"])
def test_the_picture_needs_no_scrolling(name: str, width: int, height: int) -> None:
    """Two backends at every size, and four from 80 columns on, are seen whole."""
    if name == "herd4" and width < 80:
        return
    shown = scene(name)
    rows = balance_screen(shown.balance[0], shown, width, height)
    assert len(rows) == height or name == "herd4"
    if name == "herd4":
        assert any("tok/s of the group" in row_text(row) for row in rows[: height - 2])


def test_the_verdict_names_word_period_flips_hunger_loss_and_who_routes() -> None:
    """What matters most stands above the picture, with the verdict's begin and the time between polls."""
    text = "\n".join(picture(traced("cooldown-c64"), 120, 34))
    assert re.search(r"▲ oscillating since \d\d:\d\d:\d\d · every 39 s · also starved: ", text)
    assert "the lead changes 3.2×/min" in text
    assert "also starved: spark-a nearly empty 35 % of the time" in text
    assert "about 31 % of tokens lost" in text
    assert "last 152 s · polled every 0.25 s · strategy least-busy" in text
    assert "spark-a and spark-b swap the lead every" in text


def test_two_backends_mirror_each_other_on_one_scale() -> None:
    """One stands above the line and the other below it, each with name, figures and the same edge."""
    rows = part(picture(traced("cooldown-c64"), 120, 34), "requests")
    line = next(index for index, row in enumerate(rows) if "leads" in row)
    assert line == len(rows) // 2
    assert (rows[0][2:11], rows[-1][2:11]) == ("▲ spark-a", "▼ spark-b")
    edges = [re.search(r"(\S+)┤", rows[index]) for index in (0, line, -1)]
    assert [edge[1] if edge else None for edge in edges] == ["80", "0", "80"]
    # At the end all 64 are with one of them: it has dots all the way, the other only its zero.
    columns = [row[-4] for row in rows]
    above, below = columns[:line], columns[line + 1 :]
    assert above == [" "] * (line - 1) + ["⣀"]
    assert " " not in below[:-1]
    assert rows[line][-4] == "▼"


def test_the_row_of_leaders_shows_the_changes_that_are_counted() -> None:
    """The row has as many changes of sign as the verdict counts changes of the lead in its window."""
    shown = traced("cooldown-c64")
    balance = shown.balance[0]
    row = next(row for row in picture(shown, 200, 48) if "leads" in row)
    strip = row[18:-2]
    axis = balance_axis(balance, group_lines(balance, shown.backends), shown, len(strip))
    seen = strip[-round(balance.window_s / axis.step / 2) :]
    signs = re.sub(r"(.)\1*", r"\1", re.sub(r"[^▲▼]", "", seen))
    assert balance.lead_changes == len(signs) - 1 == 8


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_the_time_axis_fits_the_samples(width: int) -> None:
    """Samples are drawn wider until they fill the graph: at most a third of it is empty."""
    shown = traced("cooldown-c64")
    balance = shown.balance[0]
    lines = group_lines(balance, shown.backends)
    times, _ = lines[0].running.arrays()
    span = times[-1] - times[0]
    axis = balance_axis(balance, lines, shown, width)
    wanted = max(60.0, balance.needed_s, balance.window_s)
    assert 2 * width * axis.step >= wanted
    assert min(span, 2 * width * axis.step) >= min(0.66 * 2 * width * axis.step, wanted)


def test_running_and_waiting_differ_in_texture() -> None:
    """What waits is drawn in other dots and another role than what runs."""
    shown = traced("shuffle-c64")
    rows = balance_screen(shown.balance[0], shown, 120, 34)
    roles = {role.split("/")[0] for row in rows for text, role in row if "\u2800" <= text[:1] <= "\u28ff"}
    assert {"running", "waiting"} <= roles


def test_a_gap_is_a_gap_on_both_sides_and_in_the_sum() -> None:
    """While one backend did not answer, its half, the row of leaders and the group's tokens are empty."""
    shown = traced("cooldown-c64")
    gone = shown.backends[1]
    table = HistoryTable(("running", "waiting", "generation_tps"), 5000)
    end = shown.at - 30
    for (time, run), (_, wait), (_, tps) in zip(
        gone.history.running, gone.history.waiting, gone.history.generation_tps, strict=True
    ):
        missing = end - 20 < time < end
        values = {"running": run, "waiting": wait, "generation_tps": tps}
        table.append(time, {} if missing else values)
    history = replace(gone.history, **table.series())
    broken = replace(shown, backends=(shown.backends[0], replace(gone, history=history)))
    rows = picture(broken, 120, 34)
    loads = part(rows, "requests")
    axis = balance_axis(broken.balance[0], group_lines(broken.balance[0], broken.backends), broken, 100)
    cell = len(rows[0]) - 3 - round((broken.at - (end - 10)) / axis.step / 2)
    column = [row[cell] for row in loads]
    line = len(loads) // 2
    assert column[line:] == [" "] * (line + 1)
    assert column[line - 1] != " "
    assert {row[cell] for row in part(rows, "tok/s of the group")} <= {" ", "┄"}


def test_a_spike_does_not_flatten_the_loads() -> None:
    """One second of many requests is marked and named on both halves; the scale is that of the rest."""
    shown = traced("shuffle-c64")
    views = []
    for view in shown.backends:
        table = HistoryTable(("running", "waiting", "generation_tps"), 5000)
        for time, _ in view.history.running:
            load = 900.0 if abs(time - shown.at + 30) < 0.5 else 8.0
            table.append(time, {"running": load, "waiting": 0.0, "generation_tps": 100.0})
        views.append(replace(view, load=None, history=replace(view.history, **table.series())))
    spiked = replace(shown, backends=tuple(views))
    rows = picture(spiked, 120, 34)
    assert any("↑ 900" in row for row in rows)
    loads = part(rows, "requests")
    assert "↑" in loads[0]
    assert "↓" in loads[-1]
    assert sum("⣿" in row for row in loads) > len(loads) / 2
    window = TimeWindow(spiked.at, 120)
    band = [row_text(row) for row in balance_band(spiked.balance[0], spiked, 120, 9, window)]
    assert any("↑ " in row for row in band)


@pytest.mark.parametrize("count", [4, 8])
def test_more_than_two_have_a_row_each_on_one_scale(count: int) -> None:
    """Each backend has the same number of rows with its name before them; the graph is all braille dots."""
    rows = picture(herd(count), 120, 34)
    loads = part(rows, "requests of each")
    names = [row[2:9] for row in loads if row[2:9].strip()]
    assert names == [f"spark-{one}" for one in "abcdefgh"[:count]]
    assert len(loads) % count == 0
    assert all(char == " " or "\u2800" <= char <= "\u28ff" for row in loads for char in row[18:-2])
    assert any("⣿ running ⡪ waiting" in row and "max " in row for row in rows)


def test_what_an_even_spread_would_make_is_a_line_over_the_tokens() -> None:
    """With a loss, a dotted line above the group's tokens marks the even rate; else there is none."""
    rows = picture(traced("cooldown-c64"), 120, 34)
    heading = next(row for row in rows if "tok/s of the group" in row)
    found = re.search(r"┄ (\d+) if even · max 600 tok/s", heading)
    assert found
    assert 500 < int(found[1]) < 600
    assert any("┄┄┄" in row for row in part(rows, "tok/s of the group"))
    assert "┄" not in "".join(picture(traced("shuffle-c64"), 120, 34))


def test_what_is_missing_is_said_while_nothing_is_known() -> None:
    """Too early for a verdict, it says how many more seconds are needed, and how many are covered."""
    text = " ".join(picture(traced("cooldown-c64", 30.0), 80, 22))
    assert "unknown" in text
    assert "needs 122 s more" in text
    assert "30 of 152 s" in text
    assert "lost" not in text
    assert "if even" not in text


def test_too_little_load_is_said() -> None:
    """With two clients there is no verdict; the reason has the number of requests."""
    shown = few()
    assert shown.balance[0].word is BalanceWord.UNKNOWN
    assert "too little load: 2.0 requests on average" in " ".join(picture(shown, 80, 22))


def test_lanes_of_one_server_are_drawn_as_backends_are() -> None:
    """The lanes' own histories make the picture, and the title says that they are lanes."""
    lanes = lanes_of(traced("cooldown-c64"), "big")
    rows = picture(lanes, 120, 34)
    assert "balance big lanes┌┐▲ oscillating┌─ 2 lanes " in rows[0]
    loads = part(rows, "requests")
    assert loads[0][2:10] == "▲ lane 0"
    assert [row[18:-2] for row in loads] == [
        row[18:-2] for row in part(picture(traced("cooldown-c64"), 120, 34), "requests")
    ]


def test_a_group_without_histories_says_so() -> None:
    """Unwatched backends leave empty graphs; a group of one backend says that there is nothing to draw."""
    shown = traced("cooldown-c64")
    assert any("▲ spark-a" in row for row in picture(replace(shown, backends=()), 80, 22))
    alone = replace(shown, balance=(replace(shown.balance[0], backends=("spark-a",)),))
    assert any("nothing to draw" in row for row in picture(alone, 80, 22))


@pytest.mark.parametrize("name", SCENES)
def test_every_role_has_a_colour_in_every_theme(name: str) -> None:
    """No theme lacks a role that a group is drawn in."""
    shown = scene(name)
    drawn: list[Row] = [*balance_screen(shown.balance[0], shown, 120, 34)]
    drawn += [*evidence_screen(shown.balance[0], shown, 160, 34)]
    drawn += balance_band(shown.balance[0], shown, 120, 9, TimeWindow(shown.at, 76.0))
    for palette in palettes().values():
        for role in {role for row in drawn for _, role in row}:
            assert palette.color(role)


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize(("width", "height"), [(60, 3), (80, 3), (76, 5), (120, 7), (200, 9)])
def test_the_band_is_exactly_as_large_as_its_place(name: str, width: int, height: int) -> None:
    """The band has exactly its rows and cells, with the verdict in its frame, at every size."""
    shown = scene(name)
    rows = balance_band(shown.balance[0], shown, width, height, TimeWindow(shown.at, 76.0))
    assert len(rows) == height
    assert {row_width(row) for row in rows} == {width}
    assert shown.balance[0].word.value in row_text(rows[0])
    assert row_text(rows[1]).strip("│ ")


def test_the_overview_has_the_band_above_the_backends() -> None:
    """With room the overview shows the group between router and backends; the swing is in its graph."""
    drawn = Scene(traced("cooldown-c64"), 120, 34).draw()
    kinds = [panel.key.kind for panel in drawn]
    assert kinds == ["router", "balance", "backend", "backend"]
    band = "\n".join(row_text(row) for row in drawn[1].rows)
    assert "▲spark-a ▼spark-b" in band
    assert "oscillating" in band
    assert "every 39 s" in band


def test_even_one_row_shows_the_swing() -> None:
    """A band of words alone has the swing in one row at its right end: dots up and dots down."""
    shown = traced("cooldown-c64")
    window = TimeWindow(shown.at, 150.0)
    row = row_text(balance_band(shown.balance[0], shown, 80, 3, window)[1])
    graph = row[-20:-2]
    assert {"⠛", "⣤"} <= set(graph)
    assert len(re.findall("⠛+", graph)) >= 3


def test_the_selected_group_opens_alone_and_an_unknown_one_does_not() -> None:
    """Zoomed, a group has the board; one that is no longer there leaves the overview."""
    shown = traced("cooldown-c64")
    for kind in ("balance", "evidence"):
        alone = Scene(shown, 120, 34, zoomed=PanelKey(kind, "proxy"))
        assert alone.keys() == [PanelKey(kind, "proxy")]
        assert {row_width(row) for row in flatten(alone.draw(), 120, alone.layout.height)} == {120}
        gone = Scene(shown, 120, 34, zoomed=PanelKey(kind, "other"))
        assert gone.keys()[-1] == PanelKey("backend", "spark-b")


def test_the_axis_holds_the_window_and_ends_where_all_have_samples() -> None:
    """All that is judged is seen, no slot is shorter than the time between samples, and none stands empty."""
    for name in SCENES:
        shown = scene(name)
        balance = shown.balance[0]
        lines = group_lines(balance, shown.backends)
        for width in (20, 38, 60, 104, 180):
            axis = balance_axis(balance, lines, shown, width)
            assert axis.span_s(width) >= balance.window_s
            assert axis.step >= 0.99 / (balance.sample_hz or 1.0)
            assert axis.end == min(line.running.last_at or 0.0 for line in lines)


def test_sentences_and_figures_wrap_and_lose_nothing() -> None:
    """Words keep their order within the width, and a piece of the verdict is never cut in two."""
    text = "spark-a and spark-b swap the lead every 20 s (8 changes in 2.5 min; 京都 39 s ≈ 2 × E2E)"
    lines = wrapped(text, 24)
    assert " ".join(lines) == text
    assert all(row_width([(line, "text")]) <= 24 for line in lines)
    pieces: list[Row] = [[("a" * 10, "text")], [("b" * 10, "text")], [("c" * 3, "text")]]
    assert [row_text(row) for row in flowed(pieces, 16)] == ["a" * 10, "b" * 10 + " · ccc"]


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_what_to_try_is_in_sight_at_every_size(width: int, height: int) -> None:
    """At least the first clause of a long hint is shown; evidence is left out before it."""
    shown = scene("leastbusy-c16")
    (balance,) = shown.balance
    hint = "try simple-shuffle (a router that sends at random), unless the log of the router shows cooldowns"
    argued = replace(shown, balance=(replace(balance, hint=hint, reasons=("much evidence " * 20,)),))
    assert any("hint   try simple-shuffle" in row for row in picture(argued, width, height))
