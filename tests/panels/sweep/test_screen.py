"""Screens of a sweep at every size: whole rows, signs beside every colour, no large empty area."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import cycle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sparktop.colors.palette import shipped_palettes
from sparktop.model.instant import Countdown
from sparktop.model.load import concurrency_point
from sparktop.model.sweep import (
    Activities,
    ColumnRank,
    ConditionBar,
    LevelState,
    Mark,
    MarkKind,
    SearchView,
    SweepStatus,
    SweepView,
    TriedLoad,
)
from sparktop.panels.board.layout import SWEEP_HEIGHT
from sparktop.panels.parts.text import Row, row_text
from sparktop.panels.sweep.evidence import evidence_screen
from sparktop.panels.sweep.history import history_screen
from sparktop.panels.sweep.live import conversations_rows, live_rows
from sparktop.panels.sweep.screen import (
    countdown_band,
    curves_screen,
    notices_screen,
    sweep_band,
    sweep_screen,
)
from sparktop.panels.sweep.table import capacity_rows, marks_key, table_rows
from sparktop.panels.sweep.topology import difference_screen, topology_screen
from sparktop.sweep.compare.series import series_of
from sparktop.sweep.history import stored_row
from sparktop.sweep.result.results import Validity
from sparktop.sweep.view.difference import difference
from sparktop.sweep.view.result import result_view
from tests.known import known
from tests.panels.drawn import fitted, largest_blank, text_of, texts
from tests.panels.sweep_views import (
    done,
    evidence,
    finished,
    renamed,
    result,
    running,
    starting,
    with_servers,
)
from tests.sweep.made_results import made_level, made_sweep

Draw = Callable[[int, int], list[Row]]
WIDTHS, HEIGHTS = st.integers(60, 200), st.integers(16, 50)


def history(count: int, preview: SweepView | None) -> Draw:
    row = stored_row(result(), "1.json")
    rows = [replace(row, key=f"{index}.json") for index in range(count)]
    return lambda width, height: history_screen(rows, width, height, chosen="0.json", preview=preview)


def _difference(scroll: int | None) -> Draw:
    before, after = series_of(result())
    return lambda width, height: difference_screen(difference(before, after), width, height, scroll=scroll)


def sweep(view: Callable[[], SweepView], *, curves: bool = True) -> Draw:
    return lambda width, height: sweep_screen(view(), width, height, curves=curves)


def topologies(width: int, height: int) -> list[Row]:
    found = known(done().topologies)
    return topology_screen(found, width, height, plots=done().plots)


WHOLE: dict[str, Draw] = {
    "running": sweep(running),
    "done": sweep(done),
    "one target": sweep(lambda: replace(done(), rows=done().rows[:3], levels=done().levels[:3])),
    "finished": sweep(finished),
    "tracks after the end": sweep(finished, curves=False),
    "history": history(60, done()),
    "history of 1": history(1, done()),
    "four servers": sweep(lambda: with_servers(running(), 4)),
    "wide name": sweep(lambda: renamed(running(), "東京の計算機・とても長い名前です")),
    "searching": sweep(lambda: replace(running(), searches=(SEARCH,))),
    "searched": sweep(lambda: replace(finished(), searches=(SEARCH,))),
    "changes": _difference(0),
    **{one.value: sweep(lambda one=one: view_of(one)) for one in SweepStatus if one.over},  # type: ignore[misc] # a default binds the loop's value
}
LOW: dict[str, Draw] = {
    "band": lambda w, h: sweep_band(running(), w, h),
    "band of a file": lambda w, h: sweep_band(done(), w, h),
    "history without preview": history(60, None),
    "before anything": sweep(starting),
    "band before anything": lambda w, h: sweep_band(starting(), w, h),
}
"""Pictures that may have large empty areas."""
LONG: dict[str, Draw] = {
    "curves": lambda w, h: curves_screen(done(), w, h),
    "topologies": topologies,
    "evidence": lambda w, h: evidence_screen(evidence(), w, h),
    "difference": _difference(None),
}


@pytest.mark.parametrize("name", [*WHOLE, *LOW])
@given(width=WIDTHS, height=HEIGHTS)
@settings(max_examples=6, deadline=None)
def test_a_screen_fills_its_place_exactly(name: str, width: int, height: int) -> None:
    """Whatever the terminal's size, there are `height` rows of `width` cells."""
    fitted((WHOLE | LOW)[name](width, height), width, height)


@pytest.mark.parametrize("name", LONG)
@given(width=WIDTHS, height=HEIGHTS)
@settings(max_examples=4, deadline=None)
def test_a_long_screen_has_whole_rows_and_at_least_the_height(name: str, width: int, height: int) -> None:
    """More than fits becomes more rows, never wider or broken ones."""
    assert len(fitted(LONG[name](width, height), width)) >= height


@pytest.mark.parametrize("name", [*WHOLE, *LOW, *LONG])
def test_every_role_is_one_that_themes_have(name: str) -> None:
    """No panel asks a theme for a colour that it does not know."""
    palette = shipped_palettes()["spark-dark"]
    rows = (WHOLE | LOW | LONG)[name](120, 40)
    for role in {role for row in rows for _, role in row}:
        assert palette.color(role)


@pytest.mark.parametrize("name", ["running", "done", "band", "curves"])
def test_simulated_figures_are_called_so(name: str) -> None:
    """A picture of the simulation cannot be mistaken for a measurement."""
    assert "simulated" in text_of((WHOLE | LOW | LONG)[name](80, 24))


def test_a_live_screen_shows_servers_and_machines() -> None:
    """Load, cache, power, temperature and clock of each have a row where there is room."""
    live = known(running().live)
    shown = text_of(live_rows(live, {}, 120, 40))
    for word in ("tok/s", "in flight", "TTFT", "60 W", "61 °C", "2400 MHz", "25 % KV"):
        assert word in shown


def swept(*concurrency: int) -> SweepView:
    """Return a finished sweep of one server; the level before the last is the best, the last is in doubt."""
    levels = [made_level(one, step=1 / one) for one in concurrency]
    doubt = Validity(code="throttled", message="…")
    levels[-1] = levels[-1].model_copy(update={"validity": (doubt,)})
    return result_view(made_sweep(("spark-a", levels)))


@pytest.mark.parametrize("size", [(60, 6), (80, 8), (120, 13), (200, 18)])
@pytest.mark.parametrize("most", [3, 6, 8])
def test_the_board_shows_all_levels_of_a_finished_sweep(size: tuple[int, int], most: int) -> None:
    """Columns go before levels; where some do not fit, their number says so, and the best one is there."""
    view = swept(*(2**power for power in range(most)))
    rows = fitted(sweep_band(view, *size), size[0])
    text = "\n".join(rows)
    shown = [level for level in view.levels if re.search(rf"\b{level.key.point.short}\b", text)]
    assert len(shown) == most or size == (60, 6) or (size, most) == ((80, 8), 8)
    assert len(shown) >= 4 or most < 4
    assert bool(re.search(rf"\b{len(shown)}(( of |/){most})? shown", text)) == (len(shown) < most)
    assert "◆" in "\n".join(rows[2:])
    assert not any("…" in row for row in rows[1:-1])
    assert "! warning" in rows[-1]


LEVELS = tuple(concurrency_point(one) for one in (1, 4, 16))
COUNTDOWN = Countdown("quick", "128 → 64 tokens", ("proxy (router)",), LEVELS, 63, 21, 3.0, 3.0)


@given(
    st.integers(60, 220),
    st.integers(SWEEP_HEIGHT, 20),
    st.floats(-1.0, 3.0),
    st.lists(st.text("ab-界", min_size=1, max_size=40), max_size=6),
)
def test_the_countdown_has_its_size_and_says_how_to_stop_it(
    width: int, height: int, left_s: float, names: list[str]
) -> None:
    """Whatever is about to start, the band is as large as asked, and its keys are never cut off below."""
    countdown = replace(COUNTDOWN, left_s=left_s, targets=tuple(names))
    rows = fitted(countdown_band(countdown, width, height), width, height)
    assert any("esc stops it" in row for row in rows)


def test_the_notices_hold_verdict_and_what_was_said() -> None:
    """The page has the verdict of a finished sweep, and all notices; without any it says so."""
    view = replace(running(), notices=("one thing", "another thing"))
    text = text_of(notices_screen(view, 80, 24))
    assert text.index("another thing") < text.index("one thing")
    found = " ".join(row.strip("│ ") for row in texts(notices_screen(done(), 200, 24)))
    assert all(sentence in found for sentence in done().verdict)
    assert done().headline not in done().verdict
    answered = replace(done(), headline="at least 48 hold; left out 64, which fails as measured")
    first = [row.strip("│ ") for row in texts(notices_screen(answered, 200, 24)[1:5])]
    assert (first[0][:6], first[1]) == ("─ load", f"· {answered.plan_words}")
    assert (first[2][:8], first[3]) == ("─ answer", f"· {answered.headline}")
    failed = replace(answered, status=SweepStatus.FAILED, words="failed: spark-a stopped answering")
    assert "· failed: spark-a stopped answering" in row_text(notices_screen(failed, 200, 24)[4])
    assert "spark-a stopped answering" in text_of(sweep_screen(failed, 80, 23))
    assert "guard: " not in text_of(sweep_screen(answered, 200, 49))  # it stops nothing any more
    assert "no notices" in row_text(notices_screen(starting(), 80, 24)[1])


def two_agents() -> Activities:
    """Return two agents over 8 slots: one decodes and then runs a tool, the other waits and is computed."""
    each = ("ddddtttt", "wwwwpppd")
    counts = ((1, 0, 1, 0, 0),) * 4 + ((0, 1, 0, 1, 0),) * 3 + ((1, 0, 0, 1, 0),)
    return Activities(0.25, counts, each, queue_known=True)


def agents(number: int) -> Activities:
    """Return as many agents over 2000 slots: half of them think, the others are decoded."""
    return Activities(0.25, ((number // 2, 0, 0, 0, number - number // 2),) * 2000)


def test_every_size_is_filled_exactly() -> None:
    """No size breaks the picture, and its rows are as wide as asked."""
    for activities in (two_agents(), agents(100), Activities(0.25, ())):
        for width in (10, 24, 60, 80, 200):
            for height in range(1, 8):
                fitted(conversations_rows(activities, width, height), width, height)


def test_a_finished_sweep_on_the_board_explains_its_signs() -> None:
    """What is best and what is alike stands at the edge, where marks of doubt are explained, too."""
    view = done()
    assert {ColumnRank.BEST, ColumnRank.TIED} <= {rank for row in view.rows for rank in row.ranks.values()}
    for size in ((80, 9), (120, 13), (200, 18)):
        edge = row_text(sweep_band(view, *size)[-1])
        assert "◆ best" in edge
        assert "◇ no clear difference" in edge
    marks = tuple(Mark("code", "a long word of a mark" * 2, "", kind) for kind in MarkKind)
    every_rank = zip(view.rows, cycle(ColumnRank), strict=False)
    rows = [replace(row, ranks={"decode_tps": rank}, marks=marks) for row, rank in every_rank]
    full = replace(view, rows=tuple(rows))
    edges = [row_text(sweep_band(full, 80, 9, selected=selected)[-1]) for selected in (False, True)]
    assert all("◆ best  ◇ unclear  ◌ may be as good  ! warning" in edge for edge in edges)
    assert ("▾ why slow" in edges[0], "enter whole sweep" in edges[1]) == (True, True)
    assert "✓ done" in row_text(sweep_band(full, 120, 13)[-1])
    plain = replace(view, rows=tuple(replace(row, ranks={}, marks=()) for row in view.rows))
    assert not set("◆◇!▾") & set(row_text(table_rows(plain, 120, 12)[-1]))
    few_runs = {"decode_tps": ColumnRank.SCATTERED}
    scattered = replace(view, rows=tuple(replace(row, ranks=few_runs) for row in view.rows))
    assert "◌ may be as good: its runs are few or differ much" in row_text(table_rows(scattered, 120, 12)[-1])
    assert all("◌" in row_text(row) for row in table_rows(scattered, 120, 12)[1:2])
    assert "◌ may be as good" in row_text(marks_key(scattered, 60, table_rows(scattered, 120, 12)))
    peak = {"peak_tps": ColumnRank.SCATTERED}
    hidden = replace(view, rows=tuple(replace(row, ranks={**row.ranks, **peak}) for row in view.rows))
    edge = row_text(sweep_band(hidden, 80, 9, selected=True)[-1])
    assert "◆ best" in edge
    assert "◌" not in edge, "a sign that is not on the panel"
    assert "◌ may be as good" in row_text(marks_key(hidden, 100, table_rows(hidden, 120, 12)))
    narrow = row_text(marks_key(view, 50, table_rows(view, 120, 12)))
    assert "◇ unclear" in narrow  # where it is not shown that values are alike


def test_a_server_with_a_queue_keeps_its_name_beside_its_graph() -> None:
    """What waits beside what runs takes no more cells than leave the name."""
    live = known(with_servers(running(), 2).live)
    queues = tuple(replace(one, running=(0.0,) * 8, waiting=(6.0,) * 8) for one in live.backends)
    rows = texts(live_rows(replace(live, backends=queues), {}, 80, 40))
    beside = [row[:17].split() for row in rows if "wait" in row]
    assert beside == [["spark-0", "0+6", "wait"], ["spark-1", "0+6", "wait"]]


def test_a_level_in_which_the_sweep_ended_is_not_done() -> None:
    """The heading above the levels counts those that their signs call done."""
    view = done()
    cut = (replace(view.levels[0], state=LevelState.CUT_SHORT), *view.levels[1:])
    text = text_of(sweep_screen(replace(view, levels=cut), 120, 35))
    assert f"{len(cut) - 1} of {len(cut)} levels done" in text
    assert "◆ best value of ✓ " in text


TRIED = (
    TriedLoad("1", holds=True, certain=True),
    TriedLoad("2", holds=True, certain=True),
    TriedLoad("4", holds=True),
    TriedLoad("5", now=True),
    TriedLoad("6", holds=False),
    TriedLoad("8", holds=False, certain=True),
)
TTFT = ConditionBar("p90 TTFT", "463 ms", "2 s", 0.23, met_percent=100.0, needed_percent=90.0)
SPEED = ConditionBar("p10 speed", "14.1 tok/s", "at least 15 tok/s", 1.06, at_least=True)
BARS = (
    TTFT,
    replace(SPEED, met_percent=56.0, needed_percent=90.0),
    ConditionBar("p90 E2E", "–", "9 s"),
)
SEARCH: SearchView = SearchView("spark", TRIED, "between 4 and 5", BARS, "5 agents, 17 requests so far")


def test_tried_loads_have_their_verdicts() -> None:
    """✓ and ✗ where it is certain, ? where it is not, ▸ where a run is being made."""
    tried, *_ = texts(capacity_rows([SEARCH], 76, 20, named=False))
    assert tried.rstrip() == "tried   1✓  2✓  4?  ▸5   6?  8✗"


def test_conditions_are_bars_against_their_limits() -> None:
    """The limit is at two thirds; the colour says how near it is; unknown values have no bar."""
    rows = capacity_rows([SEARCH], 100, 20, named=False)
    text = fitted(rows, 100)
    assert text[1].startswith("5 agents, 17 requests so far:")
    assert "463 ms of 2 s" in text[2]
    assert "met by 56 %, needs 90 %" in text[3]
    filled = [{role for cells, role in row if "█" in cells} for row in rows[2:5]]
    assert filled == [{"good"}, {"bad"}, set()]
    assert len({row.index("┃") for row in text[2:5]}) == 1
    assert text[5].startswith("next    between 4 and 5")


SIZES = ((60, 16), (80, 24), (200, 50))
MOST_EMPTY = 0.25
"""Largest empty rectangle, as a share of the screen."""
SENTENCES = (
    "c4: simple-shuffle is best: +26 % decode and −23 % TTFT, both against proxy, +28 % prefill over spark-a",
    "Decode: simple-shuffle best at c48 (+5 % against solo)",
    "3 of 12 levels have a warning: see why before you trust them",
)
HEADLINE = "best: c = 32, 333 tok/s, still rising: try c = 64; TTFT p90 stays under 2 s up to c = 16"


def view_of(status: SweepStatus) -> SweepView:
    words = f"{status.value} after 40 s"
    return replace(finished(), status=status, verdict=SENTENCES, headline=HEADLINE, words=words)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("state", [*WHOLE, "topologies", "evidence"])
def test_no_large_area_is_empty(state: str, size: tuple[int, int]) -> None:
    """A screen that has something to show uses its room: at most a quarter of it in one place is empty."""
    width, height = size[0], size[1] - 1
    rows = texts((WHOLE | LONG)[state](width, height))[:height]
    assert largest_blank(rows) <= MOST_EMPTY * size[0] * size[1], "\n".join(rows)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("status", [one for one in SweepStatus if one.over])
def test_a_sentence_is_whole_or_not_there(status: SweepStatus, size: tuple[int, int]) -> None:
    """The answer always is; findings that have no room are counted, and never cut in the middle."""
    rows = texts(sweep_screen(view_of(status), size[0], size[1] - 1))
    said = " ".join(" ".join(row.strip("│ ") for row in rows).split())
    assert HEADLINE in said
    for sentence in SENTENCES:
        assert sentence in said or sentence[:30] not in said, "\n".join(rows)
    if not all(sentence in said for sentence in SENTENCES):
        assert "more sentences: n shows all" in said


def test_a_level_without_figures_or_verdict_says_so() -> None:
    """A running level says when figures come; a balance without a verdict is no mere "unknown"."""
    shown = evidence()
    row = replace(shown.row, figures={}, marks=())
    late = replace(shown, row=row, balance_word="unknown", balance_reasons=("polls of a are missing",))
    text = text_of(evidence_screen(late, 120, 36))
    assert "no figures yet: they come once the level is done" in text
    assert "not judged" in text
    assert "unknown" not in text
