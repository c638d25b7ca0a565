"""A group's balance as it is drawn: picture, verdict, evidence, and the band on the overview."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from sparktop.model.balance import Arrivals, Balance, BalanceWord
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.series import HistoryTable
from sparktop.model.snapshot import BackendView, Snapshot
from sparktop.panels.group.graphs import balance_axis, group_lines
from sparktop.panels.group.panel import (
    answers,
    balance_band,
    balance_screen,
    edge_verdict,
    evidence_screen,
    limit_text,
    value_text,
)
from sparktop.panels.group.verdict import reason_rows, verdict_line, verdict_pieces, word_run
from sparktop.panels.parts.graph import TimeWindow
from sparktop.panels.parts.text import row_text
from tests.analysis.balance.balance_traces import LIFE_S
from tests.panels.balance_scenes import herd, traced
from tests.panels.drawn import SIZES, fitted, text_of, texts

SCENES = ["leastbusy-c16", "cooldown-c64", "shuffle-c64", "leastbusy-c2", "herd4", "herd8"]


def scene(name: str) -> Snapshot:
    return herd(int(name[4:])) if name.startswith("herd") else traced(name)


def picture(shown: Snapshot, width: int, height: int) -> list[str]:
    return texts(balance_screen(shown.balance[0], shown, width, height))


def part(rows: list[str], title: str) -> list[str]:
    """Return the rows below the rule with this title, up to the next rule."""
    first = next(index for index, row in enumerate(rows) if f"─ {title}" in row)
    rest = rows[first + 1 :]
    return rest[: next(index for index, row in enumerate(rest) if row[2] == "─" or row[0] == "╰")]


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("name", ["leastbusy-c16", "cooldown-c64", "shuffle-c64", "herd4"])
def test_the_picture_needs_no_scrolling(name: str, width: int, height: int) -> None:
    """Two backends at every size, and four from 80 columns on, are seen whole."""
    if name == "herd4" and width < 80:
        return
    shown = scene(name)
    rows = picture(shown, width, height)
    assert len(rows) == height or name == "herd4"
    assert name != "herd4" or any("tok/s of the group" in row for row in rows[: height - 2])


def test_the_verdict_names_word_period_flips_hunger_loss_and_who_routes() -> None:
    """What matters most stands above the picture, with the verdict's begin and the time between polls."""
    text = "\n".join(picture(traced("cooldown-c64"), 120, 34))
    assert re.search(r"▲ oscillating since \d\d:\d\d:\d\d · every 39 s · spark-a starves ", text)
    assert "lead changes 3.2/min" in text
    assert "spark-a starves 35 % of the time" in text
    assert "about 30 ± 4 % of throughput lost" in text
    assert "last 152 s · judged on polls every 0.25 s" in text
    assert "spark-a and spark-b swap the lead (" in text


def test_two_backends_mirror_each_other_on_one_scale() -> None:
    """One stands above the line and the other below it, each with name, figures and the same edge."""
    rows = part(picture(traced("cooldown-c64"), 120, 34), "requests")
    line = next(index for index, row in enumerate(rows) if "leads" in row)
    assert line == len(rows) // 2
    assert (rows[0][2:11], rows[-1][2:11]) == ("▲ spark-a", "▼ spark-b")
    assert "⡪ waiting ▲▼ has clearly more ─" in "\n".join(picture(traced("cooldown-c64"), 120, 34))
    edges = [re.search(r"(\S+)┤", rows[index]) for index in (0, line, -1)]
    assert [edge[1] if edge else None for edge in edges] == ["80", "0", "80"]
    # At the end all 64 are with one of them: it has dots all the way, the other only its zero.
    columns = [row[-4] for row in rows]
    above, below = columns[:line], columns[line + 1 :]
    assert above == [" "] * (line - 1) + ["⣀"]
    assert " " not in below[:-1]
    assert rows[line][-4] == "▼"


def with_history(view: BackendView, points: Iterable[tuple[float, Mapping[str, float]]]) -> BackendView:
    """Return a backend with another history of running and waiting requests and of tokens per second."""
    table = HistoryTable(("running", "waiting", "generation_tps"), 5000)
    for time, values in points:
        table.append(time, values)
    return replace(view, load=None, history=replace(view.history, **table.series()))


def test_a_gap_is_a_gap_on_both_sides_and_in_the_sum() -> None:
    """While one backend did not answer, its half, the row of leaders and the group's tokens are empty."""
    shown = traced("cooldown-c64")
    first, gone = shown.backends
    end = shown.at - 30
    known = {"running": 32.0, "waiting": 0.0, "generation_tps": 100.0}
    points = [(time, {} if end - 20 < time < end else known) for time, _ in gone.history.running]
    broken = replace(shown, backends=(first, with_history(gone, points)))
    rows = picture(broken, 120, 34)
    loads = part(rows, "requests")
    axis = balance_axis(broken.balance[0], group_lines(broken.balance[0], broken.backends), broken, 100)
    cell = len(rows[0]) - 3 - round((broken.at - (end - 10)) / axis.step / 2)
    column = [row[cell] for row in loads]
    line = len(loads) // 2
    assert column[line:] == [" "] * (line + 1)
    assert column[line - 1] != " "
    assert {row[cell] for row in part(rows, "tok/s of the group")} <= {" ", "┄"}


def test_a_picture_does_not_begin_minutes_before_it_was_watched() -> None:
    """However long a verdict takes, what was watched so far fills most of the graphs."""
    shown = traced("shuffle-c64")
    known = {"running": 8.0, "waiting": 0.0, "generation_tps": 100.0}
    points = [(shown.at - 80.0 + second, known) for second in range(81)]
    balance = replace(shown.balance[0], needed_s=360.0, window_s=80.0)
    backends = tuple(with_history(view, points) for view in shown.backends)
    axis = balance_axis(balance, group_lines(balance, backends), replace(shown, backends=backends), 80)
    assert 80.0 <= 2 * 80 * axis.step <= 120.0


def test_the_rate_of_an_even_split_needs_that_of_each_backend() -> None:
    """Without one there is no line, nor of all that is remembered: the window ends where the graphs do."""
    shown = traced("cooldown-c64")
    known = {"running": 32.0, "waiting": 0.0, "generation_tps": 100.0}
    points = [
        (shown.at - 1000 + time, {**known, "generation_tps": 9e3} if time < 700 else known)
        for time in range(999)
    ]
    backends = tuple(with_history(view, points) for view in shown.backends)
    balance = (replace(shown.balance[0], lost_percent=20.0),)
    for watched, words in ((backends, ["250 if even"]), (backends[1:], [])):
        rows = picture(replace(shown, balance=balance, backends=watched), 120, 34)
        assert re.findall(r"\d+ if even", "\n".join(rows)) == words


def test_the_last_rate_of_a_server_that_fails_is_not_in_the_sum() -> None:
    """The sum is then a lower bound, as in the header."""
    shown = traced("shuffle-c64")
    first, second = (replace(view, generation_tps=100.0) for view in shown.backends)
    dead = replace(second, failure=Failure(FailureKind.REFUSED, "connection refused", shown.at))
    for backends, words in (((first, second), "Σ 200"), ((first, dead), "Σ ≥100")):
        assert words in "\n".join(picture(replace(shown, backends=backends), 120, 34))


def test_a_spike_does_not_flatten_the_loads() -> None:
    """One second of many requests is marked and named on both halves; the scale is that of the rest."""
    shown = traced("shuffle-c64")
    calm = {"running": 8.0, "waiting": 0.0, "generation_tps": 100.0}
    spike = calm | {"running": 900.0}
    times = [time for time, _ in shown.backends[0].history.running]
    points = [(time, spike if abs(time - shown.at + 30) < 0.5 else calm) for time in times]
    spiked = replace(shown, backends=tuple(with_history(view, points) for view in shown.backends))
    rows = picture(spiked, 120, 34)
    assert any("peak 900" in row for row in rows)
    loads = part(rows, "requests")
    assert ("↑" in loads[0], "↓" in loads[-1]) == (True, True)
    assert sum("⣿" in row for row in loads) > len(loads) / 2
    band = balance_band(spiked.balance[0], spiked, 120, 9, TimeWindow(spiked.at, 120))
    assert any("peak" in row for row in texts(band))


def test_what_is_missing_is_said_while_nothing_is_known() -> None:
    """Too early for a verdict, it says how many seconds are needed, and how many are covered."""
    text = " ".join(picture(traced("cooldown-c64", 30.0), 80, 22))
    assert "unknown" in text
    assert "a verdict takes" in text
    assert "30 of 152 s" in text
    assert "lost" not in text
    assert "if even" not in text


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize(("width", "height"), [(60, 3), (76, 5), (200, 9)])
def test_the_band_is_exactly_as_large_as_its_place(name: str, width: int, height: int) -> None:
    """The band has exactly its rows and cells, with the verdict in its frame, at every size."""
    shown = scene(name)
    band = balance_band(shown.balance[0], shown, width, height, TimeWindow(shown.at, 76.0))
    rows = fitted(band, width, height)
    assert shown.balance[0].word.value in rows[0]
    assert rows[1].strip("│ ")


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_what_to_try_is_in_sight_at_every_size(width: int, height: int) -> None:
    """At least the first clause of a long hint is shown; evidence is left out before it."""
    shown = scene("leastbusy-c16")
    (balance,) = shown.balance
    hint = "try simple-shuffle (a router that sends at random), unless the log of the router shows cooldowns"
    argued = replace(shown, balance=(replace(balance, hint=hint, reasons=("much evidence " * 20,)),))
    assert any("→ try simple-shuffle" in row for row in picture(argued, width, height))


NAMES = [*LIFE_S, "herd4", "herd8"]


def found(name: str) -> Balance:
    return scene(name).balance[0]


def by_code(balance: Balance) -> dict[str, list[bool | None]]:
    """Return the answers of a group's checks by the code of their rule."""
    found: dict[str, list[bool | None]] = {}
    for check, answer in answers(balance):
        found.setdefault(check.code, []).append(answer)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_the_answers_agree_with_the_word(name: str) -> None:
    """The verdict is oscillating if and only if one of its rules has a yes; so for the others."""
    balance = found(name)
    said = {balance.word_now, *balance.also}
    rules = by_code(balance)
    del rules["requests"]
    enough, starved, ahead = rules.pop("enough"), rules.pop("starved"), rules.pop("ahead")
    if balance.word_now is BalanceWord.UNKNOWN:
        assert not all(enough) or balance.too_few
        assert {*starved, *ahead, *(one for rule in rules.values() for one in rule)} == {None}
        return
    assert all(enough)
    assert any(all(rule) for rule in rules.values()) == (BalanceWord.OSCILLATING in said)
    assert all(starved) == (BalanceWord.STARVED in said)
    assert all(ahead) == (BalanceWord.UNEVEN in said)


@pytest.mark.parametrize("name", NAMES)
def test_there_are_at_most_twelve_and_each_has_a_question_and_a_rule(name: str) -> None:
    """Every check has a question of its own and a sentence; an unknown figure is said and no evidence."""
    asked = answers(found(name))
    assert len(asked) <= 12
    assert len({check.question for check, _ in asked}) == len(asked)
    for check, _ in asked:
        assert check.question.endswith("?")
        assert len(check.rule.split()) >= 4
        assert (value_text(check) == "not known") == (check.value is None)
        assert check.value is not None or not check.holds


@pytest.mark.parametrize("width", [60, 80, 120, 160, 200])
def test_all_of_it_is_on_the_screen(width: int) -> None:
    """At every width the evidence has verdict, plot, and all questions, those with a yes first."""
    shown = traced("cooldown-c64")
    text = "\n".join(fitted(evidence_screen(shown.balance[0], shown, width, 34), width))
    assert "oscillating" in text
    asked = [one for one in answers(shown.balance[0]) if one[0].code != "enough"]
    for check, _ in asked:
        assert check.question in text
        assert f"{check.shown or check.name} {value_text(check)}" in text
    deciding = [text.index(check.question) for check, answer in asked if answer]
    assert max(deciding) < min(text.index(check.question) for check, answer in asked if not answer)
    assert "autocorrelation" in text


def test_a_limit_that_is_not_met_says_from_where_the_answer_is_yes() -> None:
    """No row states an inequality that is false, as "0, ≥ 3" would; what holds has its sign and reason."""
    shown = traced("shuffle-c64")
    light = replace(shown.balance[0], loaded_percent=0.0)
    unneeded = text_of(evidence_screen(light, replace(shown, balance=(light,)), 200, 60))
    assert "time with load 0 %, not needed here" in unneeded
    text = text_of(evidence_screen(shown.balance[0], shown, 200, 60))
    for check, _ in answers(shown.balance[0]):
        words = limit_text(check)
        words = f"needs {words}" if check.code == "enough" else words.replace("≥", "yes from")
        assert f"{value_text(check)}, {words}" in text
        sign = "✓" if check.holds else "?" if check.value is None else "✗"
        assert f"{sign} {check.question}" in text
        assert not check.but or check.within is False or check.but[1:] in " ".join(text.split())


PAIR = ("spark-a", "spark-b")


@pytest.mark.parametrize(
    ("spread", "e2e_s", "limit", "reasons"),
    [
        (1.3, 2.0, "3.5", "requests are split no more unevenly than by chance"),
        (1.3, None, "5", "requests are split no more unevenly than by chance and the E2E is not known"),
        (1.5, None, "1.5", "the E2E is not known"),
    ],
)
def test_a_raised_limit_names_each_reason(
    spread: float, e2e_s: float | None, limit: str, reasons: str
) -> None:
    """So that equal words never stand beside two limits."""
    arrivals = Arrivals(90, 30, 2.0, spread, herds=0, least_herds=0, chance=0.5)
    balance = group(BalanceWord.BALANCED, arrivals=arrivals, e2e_s=e2e_s)
    (rhythm,) = [check for check, _ in answers(balance) if check.code == "rhythm"]
    assert rhythm.rule.endswith(f"; {limit} is needed here, as {reasons}")


def group(
    word: BalanceWord, now: BalanceWord | None = None, router: str | None = "proxy", **more: object
) -> Balance:
    return Balance("proxy", PAIR, word, now or word, router=router, **more)  # type: ignore[arg-type]  # any field


def evidence(balance: Balance) -> list[str]:
    """Return the rows of a group's evidence on a large screen."""
    return texts(evidence_screen(balance, traced("shuffle-c64"), 160, 60))


def test_neither_a_sweep_s_load_nor_the_unknown_costs_anything() -> None:
    """A loss that the sweep's own load causes is not blamed on the router; of no verdict there is none."""
    swings = group(BalanceWord.OSCILLATING, lost_percent=35.0, starved_percent={PAIR[0]: 60.0})
    unknown = replace(swings, word=BalanceWord.UNKNOWN, word_now=BalanceWord.UNKNOWN)
    for balance, is_said in ((swings, True), (replace(swings, in_sweep=True), False), (unknown, False)):
        said = " ".join(row_text(piece) for piece in verdict_pieces(balance, ()))
        assert ("lost" in said, "nearly empty" in row_text(verdict_line(balance, 120))) == (is_said, is_said)


@pytest.mark.parametrize(
    ("word", "now", "router", "run"),
    [
        (BalanceWord.BALANCED, BalanceWord.BALANCED, "proxy", ("balanced", "good")),
        (BalanceWord.BALANCED, BalanceWord.UNEVEN, "proxy", ("balanced, now perhaps uneven", "warn")),
        (BalanceWord.BALANCED, BalanceWord.OSCILLATING, None, ("balanced, now perhaps oscillating", "text")),
        (BalanceWord.BALANCED, BalanceWord.IDLE, "proxy", ("balanced, now perhaps nothing to split", "text")),
        (BalanceWord.UNKNOWN, BalanceWord.BALANCED, "proxy", ("no verdict yet; so far balanced", "text")),
        (BalanceWord.STARVED, BalanceWord.BALANCED, "proxy", ("▲ starved, now perhaps balanced", "bad")),
    ],
)
def test_a_word_that_its_window_contradicts_is_not_green(
    word: BalanceWord, now: BalanceWord, router: str | None, run: tuple[str, str]
) -> None:
    """The verdict of the newest window follows the announced one as a possibility."""
    balance = group(word, now, router=router)
    assert word_run(balance) == run
    assert run in verdict_line(balance, 60)
    assert run in edge_verdict([balance], 60)


def test_unknown_says_why() -> None:
    """The reason is shown where no verdict is pending, beside the time watched while that is too short."""
    reason = "too few requests: 2.1 on average, it takes 4"
    balance = group(BalanceWord.UNKNOWN, window_s=60.0, needed_s=45.0, reasons=(reason,))
    assert row_text(verdict_line(balance, 76)).startswith(f"unknown · {reason}")
    early = replace(balance, window_s=14.0)
    assert row_text(verdict_line(early, 100)).startswith(f"unknown · {reason} · watched ")
    assert row_text(verdict_line(early, 100)).endswith("14 of 45 s")
    reasons = ("watched for 14 s: a verdict takes at least 45 s", "and so on")
    pending = replace(early, known_in_s=36.4, reasons=reasons)
    assert row_text(verdict_line(pending, 76)).endswith(" in 37 s")
    for needed_s, left_s, words in ((153.0, 97.2, "2 min"), (170.0, 111.0, "2 min"), (120.0, 41.0, "60 s")):
        moving = replace(pending, needed_s=needed_s, known_in_s=left_s)
        assert row_text(verdict_line(moving, 76)).endswith(f" in about {words}"), "it grows with the E2E"
    assert [row_text(row) for row in reason_rows(pending, 76)] == ["· and so on"]


@pytest.mark.parametrize(
    ("known", "code", "reason"),
    [
        ({"looks_apart_ms": None, "e2e_s": 9.0, "reasons": ("one is alone",)}, "rhythm", "one is alone"),
        ({"looks_apart_ms": None, "e2e_s": 9.0, "reasons": ("one is alone",)}, "convoys", "one is alone"),
        ({"mean_total": 0.0}, "starved", "there is no load"),
        ({"dispersion_z": 1.0}, "convoys", "no burst was seen, as the number of requests never fell to half"),
        ({"dispersion_z": 1.0}, "herds", "the E2E is not known"),
        ({"dispersion_z": 1.0, "e2e_s": 19.0}, "herds", "not every backend counts all its requests"),
        ({"dispersion_z": 1.0, "e2e_s": 19.0}, "requests", "not every backend counts all its requests"),
        (
            {"dispersion_z": 1.0, "e2e_s": 19.0, "requests": 168},
            "herds",
            "too few stretches of half of the median E2E had several requests",
        ),
    ],
)
def test_what_is_unknown_has_the_reason_that_holds(known: dict[str, Any], code: str, reason: str) -> None:
    """A figure that was not measured fails no condition; where none was, one reason stands."""
    given = {"looks_apart_ms": 5.0, "mean_total": 20.0, **known}
    balance = group(BalanceWord.UNKNOWN, **given)
    assert next(check.but for check, _ in answers(balance) if check.code == code) == reason
    rows = evidence(balance)
    assert "".join(rows).count("one is alone") == (reason == "one is alone")
    assert not any("– of the time" in row for row in rows)


def test_a_loss_that_became_unknown_keeps_its_last_value_age_and_reason() -> None:
    """The panel shows when it was known, and why it is not known now."""
    unknown, differ = "step times are not known yet", "the backends differ in speed"
    before: dict[str, Any] = {"lost_before_percent": 29.0, "lost_before_s": 40.0}
    for lost, words in (
        (
            {"lost_unknown": differ, **before},
            {"throughput lost: about 29 %, 40 s ago", f"not known now, because {differ}"},
        ),
        ({"lost_unknown": unknown}, {"throughput lost: not known", f"because {unknown}"}),
        ({"lost_percent": 0.4}, {"<1 % of throughput lost"}),
    ):
        assert words <= set(texts(verdict_pieces(group(BalanceWord.OSCILLATING, **lost), ())))
    text = "\n".join(evidence(group(BalanceWord.OSCILLATING, lost_unknown=unknown)))
    assert "? Do uneven loads cost throughput?" in text
    assert f"Not known: {unknown}" in text


def test_a_figure_above_its_limit_is_no_answer_before_the_verdict() -> None:
    """Beside the sign of what is not known yet no rule says "no"."""
    rows = evidence(group(BalanceWord.UNKNOWN, skew=0.42, skew_backend="spark-a"))
    (at,) = (number for number, row in enumerate(rows) if "? Is the same one always ahead?" in row)
    assert "above its share 42 %, yes from 20 %, not sure" in rows[at]
    assert "Not judged: its lead moves, as in a swing" in rows[at + 1]
    assert not any(" No: " in row for row in rows)
    (head,) = (row for row in rows if "✓ yes · ✗ no · ? not judged yet" in row)
    assert rows.index(head) < at, "the signs are explained above the first of them"


def test_a_loss_that_may_be_none_is_no_yes() -> None:
    """Its interval is shown; the sign is a question unless the verdict takes the estimate."""
    balance = group(BalanceWord.OSCILLATING, lost_estimate_percent=18.0, lost_error_points=29.0)
    for also, sign in (((), "?"), ((BalanceWord.STARVED,), "✓")):
        text = "\n".join(evidence(replace(balance, also=also)))
        assert f"{sign} Do uneven loads cost throughput?" in text
        assert "May be −11 to 47 %. Estimated against the same requests" in text
