"""What single pictures of a sweep say: curves, topologies, timelines, differences, the history."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from sparktop.model.sweep import (
    CurveLine,
    CurvePlot,
    CurvePoint,
    Difference,
    DifferenceRow,
    HistoryRow,
    LevelKey,
    LimitLine,
    RequestBar,
    Timeline,
    Value,
)
from sparktop.panels.parts.figures import part_role
from sparktop.panels.parts.text import Row, row_text
from sparktop.panels.sweep.curves import curve_rows, legend_rows
from sparktop.panels.sweep.history import history_screen
from sparktop.panels.sweep.live import MOST_ROWS, timeline_rows
from sparktop.panels.sweep.topology import difference_screen, topology_screen
from sparktop.sweep.compare.compare import compare
from sparktop.sweep.view.result import topologies
from tests.panels.sweep_views import published
from tests.sweep.made_results import made_series


def texts(rows: Sequence[Row]) -> list[str]:
    return [row_text(row) for row in rows]


def line(
    name: str, values: dict[int, float], *, reference: str | None = None, half: float = 0.0
) -> CurveLine:
    points = tuple(
        CurvePoint(c, Value(value, value - half or None, value + half) if half else Value(value))
        for c, value in values.items()
    )
    return CurveLine(name, points, reference)


def plot(*lines: CurveLine, limits: tuple[LimitLine, ...] = (), more_is_better: bool = True) -> CurvePlot:
    return CurvePlot("decode_tps", "Decode", "tok/s", "tokens", more_is_better, lines, limits)


def column_of(rows: Sequence[str], char: str) -> list[tuple[int, int]]:
    return [(index, row.index(char)) for index, row in enumerate(rows) if char in row]


def test_targets_have_letters_and_references_figures() -> None:
    """Letters identify targets without colour; the source of a reference is shown."""
    drawn = plot(line("x", {1: 10.0, 2: 90.0}), line("y", {1: 50.0, 2: 20.0}, reference="ref:table"))
    shown = "".join(texts(curve_rows(drawn, 80, 20)))
    assert "A" in shown
    assert "1" in shown
    legend = "".join(texts(legend_rows([drawn], 100)))
    assert "A ⠶⠶⠶ x" in legend
    assert "1 ⠄ ⠄ y (ref:table)" in legend


def test_an_interval_is_a_bar_over_its_point() -> None:
    """Both ends stand in the column of the letter, above and below it."""
    rows = texts(curve_rows(plot(line("x", {1: 50.0, 2: 60.0}, half=20.0)), 60, 24))[1:-1]
    (top, column), *_ = column_of(rows, "┬")
    letters = [row for row, _ in column_of(rows, "A")]
    ends = [row for row, row_text_ in enumerate(rows) if row_text_[column] == "┴"]
    assert any(top < row < max(ends) for row in letters)


def test_a_line_is_solid_and_has_its_name_at_its_end() -> None:
    """The name stands in the line's colour behind its last point, after its letter."""
    drawn = plot(line("simple-shuffle", {1: 10.0, 16: 50.0}), line("least-busy", {1: 10.0, 16: 90.0}))
    rows = curve_rows(drawn, 80, 20)
    assert [name for name in ("simple-shuffle", "least-busy") if name in "".join(texts(rows))]
    assert ("B least-busy", part_role(1)) in [(text.strip(), role) for row in rows for text, role in row]


def test_a_limit_is_a_dotted_line_with_its_words() -> None:
    """What the memory allows lies across the plot and is named below it."""
    drawn = plot(line("x", {1: 50.0, 8: 90.0}), limits=(LimitLine("decode_tps", "allows 70", 70.0),))
    assert any(row.count("┄") > 20 for row in texts(curve_rows(drawn, 80, 20)))
    assert any("┄ allows 70" in row for row in texts(legend_rows([drawn], 80)))


def test_latencies_over_more_than_tenfold_have_a_logarithmic_scale() -> None:
    """Else the low concurrencies would all lie on the floor."""
    drawn = plot(line("x", {1: 100.0, 2: 1000.0, 4: 10_000.0}), more_is_better=False)
    rows = texts(curve_rows(drawn, 80, 23))
    assert "logarithmic" in rows[0]
    (high, _), (middle, _), (low, _) = column_of(rows[1:-1], "A")
    assert abs((low - middle) - (middle - high)) <= 1


def test_topologies_mark_the_winner_with_its_percentage() -> None:
    """At 32 the cluster has the diamond and +48 %; untested differences have a star."""
    rows = texts(topology_screen(published(), 120, 60))
    (row,) = [one for one in rows if "471.7" in one]
    assert "◆471.7" in row
    assert "+48 %* cluster-tp2" in row
    narrow = texts(topology_screen(published(), 80, 60))
    joined = " ".join(" ".join(one.strip("│ ") for one in narrow).split())
    assert "simple-shuffle best at c64 (+20 % against cluster-tp2)" in joined


def bars(*told: RequestBar, backends: tuple[str, ...] = ()) -> list[str]:
    timeline = Timeline(LevelKey("x", len(told)), 0, told, 10.0, backends)
    return texts(timeline_rows(timeline, 100))[3:-1]


def test_a_bar_has_its_parts_in_order() -> None:
    """Waiting, prefill, decode: each as long as it took."""
    (row,) = bars(RequestBar(0.0, 4.0, 10.0, queue_s=2.0, backend="p"), backends=("p",))
    assert abs(row.count("┄") - row.count("─")) <= 1
    assert abs(row.count("━") - 3 * row.count("┄")) <= 2
    assert row.index("┄") < row.index("─") < row.index("━")
    assert row.startswith("    1  │")


def test_the_legend_of_requests_names_the_phases_and_the_servers() -> None:
    """The last column says what its times are; a server has the colour of its lines."""
    two = (RequestBar(0.0, 2.0, 5.0, queue_s=1.0, backend="p"), RequestBar(0.0, 2.0, 5.0, backend="q"))
    timeline = Timeline(LevelKey("x", 2), 0, two, 10.0, ("p", "q"))
    drawn = timeline_rows(timeline, 100)
    _, legend, heads, first, *_ = texts(drawn)
    said = ["┄┄┄ waiting", "─── prefill", "━━━ decode on p", "━━━ decode on q"]
    assert [part.strip() for part in legend.split("·")] == said
    assert heads.split() == ["request", "first", "token", "after"]
    assert first.startswith("    1 p │")
    assert first.endswith("2.00 s")
    assert part_role(0) in {role for text, role in drawn[3] if "━" in text}


def test_very_many_requests_are_thinned_and_counted() -> None:
    """A thousand requests do not have a row each, and the picture says so."""
    many = tuple(RequestBar(0.0, 1.0, 2.0) for _ in range(1000))
    rows = texts(timeline_rows(Timeline(LevelKey("x", 1000), 0, many, 2.0), 100))
    assert len(rows) <= MOST_ROWS + 5
    assert "1000 requests, 1 of 3 shown" in rows[0]


def test_a_change_has_a_word_and_its_interval() -> None:
    """Better and worse are words; the interval is drawn around no change."""
    hundred, more = Value(100), Value(150)
    change = DifferenceRow(
        "Decode",
        "tok/s",
        more_is_better=True,
        concurrency=4,
        before=hundred,
        after=more,
        percent=50.0,
        low_percent=40.0,
        high_percent=60.0,
        significant=True,
    )
    slower = replace(change, title="TTFT", more_is_better=False)
    same = replace(slower, title="ITL", percent=-6.0, low_percent=-9.0, high_percent=3.0, significant=False)
    alone = DifferenceRow("E2E", "ms", more_is_better=False, concurrency=4, before=hundred, after=None)
    rows = (change, slower, same, alone)
    shown = texts(difference_screen(Difference("x", "y", rows, "faster"), 130, 20))
    decode, ttft, itl, e2e = (row for row in shown if " c4 " in row)
    assert "▲ better" in decode
    assert "▼ worse" in ttft
    assert "no clear difference" in itl
    assert "┿" in itl
    assert "–" in e2e
    assert "━" not in e2e


def test_the_history_keeps_the_cursor_in_sight_and_shows_broken_files() -> None:
    """Of a hundred rows the chosen one is drawn; a file that cannot be read has its reason."""
    rows = [HistoryRow(f"{index}.json", None, f"n{index}", "done") for index in range(100)]
    rows[70] = HistoryRow("70.json", None, "n70", "unreadable", problem="70.json: is no result")
    shown = texts(history_screen(rows, 80, 24, chosen="70.json"))
    (row,) = [one for one in shown if "▶" in one]
    assert "70.json: is no result" in row


def test_an_empty_history_says_what_to_do() -> None:
    """Nothing stored and nothing found are two different answers."""
    assert any("s starts one" in row for row in texts(history_screen([], 80, 24)))
    assert any("nothing found for “x”" in row for row in texts(history_screen([], 80, 24, query="x")))


def undecided(width: int) -> list[str]:
    """Draw three targets, of which two lead by far and do not differ; both lead at 80 columns and wider."""
    speeds = {"cluster-tp2": 60.0, "simple-shuffle": 100.0, "least-busy": 100.4}
    series = [
        made_series(name, {4: (speed, speed * 1.01, speed * 0.99), 8: (speed, speed * 1.01, speed * 0.99)})
        for name, speed in speeds.items()
    ]
    return texts(topology_screen(topologies(compare(series), series), width, 24))


def test_a_row_without_a_winner_names_the_lead_that_is_not_clear() -> None:
    """The words shrink before they are cut; both targets that are not clearly worse have the sign."""
    for width, words in ((80, "no clear winner"), (120, "no clear winner: least-busy ±0 % against simple")):
        rows = [row for row in undecided(width) if "◇" in row]
        assert len(rows) == 2
        assert all(words in row and row.count("◇") == 2 for row in rows)


def test_a_percentage_against_another_than_the_title_says_whom() -> None:
    """Where the baseline itself wins, its percentage is against the next best."""
    fast, slow = (100.0, 101.0, 102.0), (50.0, 50.5, 51.0)
    series = [made_series("base", {1: fast, 2: slow}), made_series("x", {1: slow, 2: fast})]
    compared = topologies(compare(series, baseline="base"), series)
    rows = texts(topology_screen(compared, 80, 24))
    assert any("winner, against base" in row for row in rows)
    assert any("c1" in row and "base against x" in row for row in rows)
    assert any("c2" in row and row.rstrip("│ ").endswith("%  x") for row in rows)
