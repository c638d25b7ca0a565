"""The questions behind a verdict: figures, limits and plots."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sparktop.model.balance import Balance, BalanceWord
from sparktop.panels.group.panel import answers, evidence_screen, limit_text, plots, value_text
from sparktop.panels.parts.text import row_text, row_width
from tests.analysis.balance.balance_traces import LIFE_S
from tests.panels.balance_scenes import herd, traced

NAMES = [*LIFE_S, "herd4", "herd8"]


def found(name: str) -> Balance:
    return (herd(int(name[4:])) if name.startswith("herd") else traced(name)).balance[0]


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
    """Every check has a question of its own and a sentence; an unknown figure is a dash and no evidence."""
    asked = answers(found(name))
    assert len(asked) <= 12
    assert len({check.question for check, _ in asked}) == len(asked)
    for check, _ in asked:
        assert check.question.endswith("?")
        assert len(check.rule.split()) >= 4
        assert (value_text(check) == "–") == (check.value is None)
        assert check.value is not None or not check.holds


def test_without_any_figure_nothing_is_answered() -> None:
    """A group of which nothing is known yet has dashes everywhere and no answer."""
    asked = answers(Balance("g", ("a", "b"), needed_s=45.0, reasons=("needs 45 s more",)))
    assert {answer for check, answer in asked if check.code == "enough"} == {False}
    others = [(check.value, answer) for check, answer in asked if check.code != "enough"]
    assert {*others} == {(None, None)}


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
    assert (by_code(counted)["ahead"], by_code(counted)["requests"]) == ([False], [True])
    check = answers(counted)[-1][0]
    assert (check.name, value_text(check), limit_text(check)) == ("largest share", "94 %", "≥ 75 %")
    assert check.rule == "by the backends' counts; of 400 requests: spark-a; failed: spark-b 3"
    assert by_code(replace(counted, requests_chance=0.01))["requests"] == [False]


def test_a_rhythm_must_be_clearer_where_nobody_knows_how_long_a_request_lives() -> None:
    """The limit of the score rises without a lifetime, and for more than two backends."""

    def limit(balance: Balance) -> str:
        return next(limit_text(check) for check, _ in answers(balance) if check.name == "rhythm score")

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
    """At every width the evidence has verdict, both plots, and all questions, those with a yes first."""
    shown = traced("cooldown-c64")
    rows = evidence_screen(shown.balance[0], shown, width, 34)
    assert {row_width(row) for row in rows} == {width}
    text = "\n".join(row_text(row) for row in rows)
    assert "oscillating" in text
    asked = [one for one in answers(shown.balance[0]) if one[0].code != "enough"]
    for check, _ in asked:
        assert check.question in text
        assert f"{check.name} {value_text(check)}" in text
    deciding = [text.index(check.question) for check, answer in asked if answer]
    assert max(deciding) < min(text.index(check.question) for check, answer in asked if not answer)
    assert "autocorrelation" in text
    assert "variance by period" in text


def test_a_limit_that_is_not_met_says_from_where_the_answer_is_yes() -> None:
    """No row states an inequality that is false, as "0, ≥ 3" would; what else is missing follows a "but"."""
    shown = traced("shuffle-c64")
    text = "\n".join(row_text(row) for row in evidence_screen(shown.balance[0], shown, 200, 60))
    for check, _ in answers(shown.balance[0]):
        words = limit_text(check)
        if not check.within:
            words = f"needs {words}" if check.code == "enough" else words.replace("≥", "yes from")
        assert f"{value_text(check)}, {words}" in text
        assert not check.within or check.holds or f"but {check.but}" in text


@pytest.mark.parametrize("name", NAMES)
def test_each_answer_is_that_of_its_own_figure(name: str) -> None:
    """A figure beyond its limit is a yes whatever the verdict is, or the missing condition is named."""
    for check, answer in answers(found(name)):
        if check.value is None:
            assert answer in ({None, False} if check.code == "enough" else {None})
        elif answer is not None and not check.but and not check.instead:
            assert answer is check.within
