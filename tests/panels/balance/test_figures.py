"""The questions behind a verdict: figures, limits and plots."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from sparktop.analysis.balance.check import Check, Rule
from sparktop.model.balance import Balance, BalanceWord
from sparktop.panels.balance.checks import limit_text, value_text
from sparktop.panels.balance.figures import questions
from sparktop.panels.balance.panel import evidence_screen
from sparktop.panels.balance.plots import plots
from sparktop.panels.parts.rows import row_text, row_width
from tests.analysis.balance.balance_traces import LIFE_S
from tests.panels.balance_scenes import herd, traced

NAMES = [*LIFE_S, "herd4", "herd8"]


def found(name: str) -> Balance:
    return (herd(int(name[4:])) if name.startswith("herd") else traced(name)).balance[0]


@pytest.mark.parametrize("name", NAMES)
def test_the_answers_agree_with_the_word(name: str) -> None:
    """The verdict is oscillating if and only if one of its five questions has a yes; so for the others."""
    balance = found(name)
    said = {balance.word_now, *balance.also}
    enough, lead, rhythm, turns, convoys, herds, starved, uneven, _ = questions(balance)
    judged = balance.word_now is not BalanceWord.UNKNOWN
    assert enough.answer is judged
    if not judged:
        assert {one.answer for one in (lead, rhythm, turns, convoys, herds, starved, uneven)} == {None}
        return
    ways = (lead.answer, rhythm.answer, turns.answer, convoys.answer, herds.answer)
    assert any(ways) == (BalanceWord.OSCILLATING in said)
    assert starved.answer == (BalanceWord.STARVED in said)
    assert uneven.answer == (BalanceWord.UNEVEN in said)


@pytest.mark.parametrize("name", ["leastbusy-c16", "leastbusy-c16-busy", "cooldown-c64", "herd4"])
def test_a_yes_has_no_figure_that_misses_its_limit(name: str) -> None:
    """If the answer to a question is yes, each of its figures that has a limit is within it."""
    for question in questions(found(name))[1:]:
        if question.answer:
            assert question.rule.holds, question.title


@pytest.mark.parametrize("name", NAMES)
def test_each_figure_has_a_sentence_and_never_a_made_up_number(name: str) -> None:
    """Every figure has a sentence; an unknown figure is a dash and meets no limit."""
    for question in questions(found(name)):
        for check in question.rule.checks:
            assert len(check.meaning.split()) >= 2
            assert (value_text(check) == "–") == (check.value is None)


def test_without_any_figure_nothing_is_answered() -> None:
    """A group of which nothing is known yet has dashes everywhere and no answer."""
    asked = questions(Balance("g", ("a", "b"), needed_s=45.0, reasons=("needs 45 s more",)))
    assert [question.answer for question in asked] == [False, *[None] * 8]
    values = {check.value for question in asked[1:] for check in question.rule.checks}
    assert values == {None}


def test_who_got_most_is_a_question_of_its_own() -> None:
    """If one backend gets nine of ten requests, it is uneven by the counters, though not by the loads."""
    calm = found("shuffle-c64")
    counted = replace(
        calm,
        word_now=BalanceWord.UNEVEN,
        requests=400,
        requests_share={"spark-a": 0.94, "spark-b": 0.06},
        requests_chance=1e-20,
        errors={"spark-a": 0.0, "spark-b": 3.0},
    )
    *_, ahead, most = questions(counted)
    assert (ahead.answer, most.answer) == (False, True)
    assert [(check.name, value_text(check), limit_text(check)) for check in most.rule.checks] == [
        ("requests counted", "400", "≥ 40"),
        ("largest share", "94 %", "≥ 75 %"),
        ("by chance", "<0.001", "≤ 1e-6"),
        ("failed", "3", ""),
    ]
    assert questions(replace(counted, requests_chance=0.01))[-1].answer is False


def test_a_rhythm_must_be_clearer_where_nobody_knows_how_long_a_request_lives() -> None:
    """The limit of the score rises without a lifetime, and for more than two backends."""

    def limit(balance: Balance) -> str:
        checks = questions(balance)[2].rule.checks
        return next(limit_text(check) for check in checks if check.name == "rhythm score")

    assert limit(found("leastbusy-c16")) == "≥ 1"
    assert limit(replace(found("leastbusy-c16"), e2e_s=None)) == "≥ 2.5"
    assert limit(found("herd4")) == "≥ 2.5"


@pytest.mark.parametrize(("width", "height"), [(30, 8), (37, 10), (64, 16), (100, 10)])
@pytest.mark.parametrize("name", NAMES)
def test_plots_have_their_size_and_mark_the_period(name: str, width: int, height: int) -> None:
    """Both plots have exactly their rows and cells, and where a period is known it is marked below."""
    balance = found(name)
    for plot in plots(balance, width, height):
        assert len(plot) == height
        assert max(row_width(row) for row in plot) <= width
        text = "\n".join(row_text(row) for row in plot)
        swing = balance.swing
        if swing is not None and swing.period_s is not None:
            assert "▲" in text
        else:
            assert "▲" not in text


def test_the_mark_stands_under_the_return() -> None:
    """The pointer is below the top of the autocorrelation's first return; the verdict names one period."""
    balance = found("cooldown-c64")
    rows = [row_text(row) for row in plots(balance, 64, 16)[0]]
    pointer = rows[-2].index("▲")
    assert rows[-2][pointer:].rstrip() == "▲"  # the verdict's period is that of the turns
    alone = [row_text(row) for row in plots(replace(balance, period_s=None), 64, 16)[0]]
    assert alone[-2][pointer:].startswith("▲ 38 s")
    high = [index for index, char in enumerate(rows[2]) if index > 10 and char not in " ┄"]
    assert min(high) - 2 <= pointer <= max(high) + 2


def test_a_flat_load_has_no_plot_and_says_why() -> None:
    """Where nothing moves, or too little was seen, the plots say so."""
    balance = found("cooldown-c64")
    nothing = plots(replace(balance, swing=None), 40, 10)[0]
    assert "too few samples yet" in "".join(row_text(row) for row in nothing)


@pytest.mark.parametrize("width", [60, 80, 120, 160, 200])
def test_all_of_it_is_on_the_screen(width: int) -> None:
    """At every width the evidence has verdict, both plots, all questions and their answers."""
    shown = traced("cooldown-c64")
    rows = evidence_screen(shown.balance[0], shown, width, 34, folded=False)
    text = "\n".join(row_text(row) for row in rows)
    assert "oscillating" in text
    for question in questions(shown.balance[0]):
        assert question.title in text
        for check in question.rule.checks:
            assert check.name in text
    asked = questions(shown.balance[0])
    deciding = [text.index(question.title) for question in asked[1:] if question.answer]
    assert max(deciding) < min(text.index(question.title) for question in asked[1:] if not question.answer)
    assert "autocorrelation" in text
    assert "variance by period" in text


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_folded_it_shows_the_deciding_check_of_each_question(name: str, width: int) -> None:
    """Each question is listed with its deciding value, in fewer rows than all checks take."""
    shown = herd(int(name[4:])) if name.startswith("herd") else traced(name)
    balance = shown.balance[0]
    screen = evidence_screen(balance, shown, width, 24)
    assert {row_width(row) for row in screen} == {width}
    text = "\n".join(row_text(row) for row in screen)
    for question in questions(balance):
        check = question.rule.deciding
        assert check is not None
        assert question.title in text
        assert value_text(check) in text
    assert "enter shows all" in text
    assert (
        len(screen) < 0.75 * len(evidence_screen(balance, shown, width, 24, folded=False))
        or len(screen) == 24
    )


def test_a_limit_that_is_not_met_is_written_as_what_is_needed() -> None:
    """No row states an inequality that is false, as "0 ≥ 3" would."""
    shown = traced("shuffle-c64")
    text = "\n".join(row_text(row) for row in evidence_screen(shown.balance[0], shown, 100, 60, folded=False))
    checks = [check for question in questions(shown.balance[0]) for check in question.rule.checks]
    for check in checks:
        if check.limit is not None:
            words = f"{'' if check.holds else 'needs '}{limit_text(check)}"
            assert re.search(rf"{re.escape(value_text(check))}\s+{words}", text), check


def test_the_deciding_check_is_the_first_that_fails_else_the_first() -> None:
    """An unknown value decides against a rule; a check without a limit never decides."""
    informative = Check("life", 3.0)
    good, bad, unknown = Check("a", 3.0, 1.0), Check("b", 0.5, 1.0), Check("c", None, 1.0)
    assert Rule("r", (informative, good, bad)).deciding is bad
    assert Rule("r", (good, unknown, bad)).deciding is unknown
    assert Rule("r", (informative, good)).deciding is good
    assert Rule("r", (informative,)).deciding is None
