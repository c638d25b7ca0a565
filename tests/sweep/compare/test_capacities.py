"""The answers of capacity searches beside one another: which target takes more, and how certain that is."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from sparktop.model.load import LoadKind
from sparktop.sweep.compare.compare import compare, compared_series, compared_targets
from sparktop.sweep.compare.series import Series
from sparktop.sweep.formats.report import comparison_json, comparison_markdown
from sparktop.sweep.result.results import CapacityAnswer, CapacityResult
from sparktop.sweep.view.capacity import capacity_title, compared_words
from sparktop.sweep.view.difference import difference

FEW = CapacityAnswer(holds=9, fails=10, complete=True, interval=(8, 11))
MANY = CapacityAnswer(holds=14, fails=15, complete=True, interval=(12, 16))
FOUND = CapacityResult(
    load=LoadKind.AGENTS, conditions=("ttft_p90_ms ≤ 2000",), answers={"A": FEW, "B": MANY}
)


def series(name: str, answer: CapacityAnswer, found: CapacityResult = FOUND) -> Series:
    """Return the series of a target with the answer of a search, without levels."""
    return Series(name, (), f"{name}.json", "sparktop", search=(found, answer))


def test_the_one_whose_interval_lies_above_the_others_takes_more() -> None:
    """With both intervals, as whole numbers that may be the answer."""
    compared = compared_targets(FOUND)
    assert compared is not None
    assert compared.takes_more == "B"
    assert compared_words(compared) == "A 9 agents (95 %: 8 to 10), B 14 (95 %: 12 to 15): B takes more"


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (MANY.model_copy(update={"interval": (10, 16)}), "B 14 (95 %: 10 to 15): no clear difference"),
        (MANY.model_copy(update={"interval": (14, 15)}), "B 14 (95 %: 14): B takes more"),
        (MANY.model_copy(update={"interval": (12, None)}), "B 14 (95 %: 12 or more): B takes more"),
        (CapacityAnswer(), "B unknown (95 %: 0 or more): no clear difference"),
    ],
)
def test_intervals_that_overlap_show_no_difference(other: CapacityAnswer, words: str) -> None:
    """Nor does an unknown answer; one without an upper end may take more."""
    compared = compared_series([series("A", FEW), series("B", other)])
    assert compared is not None
    assert compared_words(compared).endswith(words)


def test_searches_with_other_conditions_are_not_compared() -> None:
    """Their answers stand beside one another, without a verdict."""
    strict = FOUND.model_copy(update={"conditions": ("ttft_p90_ms ≤ 500",)})
    compared = compared_series([series("A", FEW), series("B", MANY, strict)])
    assert compared is not None
    assert compared.takes_more is None
    assert compared_words(compared).endswith("not comparable, since load or conditions differ")


def test_every_form_of_a_comparison_says_it() -> None:
    """Markdown first, JSON as values, and the verdict of two stored results; other sweeps have none."""
    both = [series("A", FEW), series("B", MANY)]
    compared = compare(both)
    sentence = "9 agents (95 %: 8 to 10), `B` 14 (95 %: 12 to 15): `B` takes more"
    assert sentence in comparison_markdown(compared, both)
    values = json.loads(comparison_json(compared, both))["capacity"]
    assert (values["holds"], values["takes_more"]) == ({"A": 9, "B": 14}, "B")
    assert difference(*both).verdict == sentence.replace("`", "").join(("A ", ""))
    assert compare([replace(one, search=None) for one in both]).capacity is None


def test_the_list_of_results_names_the_answer() -> None:
    """One target with its answer in words, several with their numbers."""

    def title(**answers: CapacityAnswer) -> str:
        return capacity_title(FOUND.model_copy(update={"answers": answers}))

    assert title(A=FEW) == "capacity: best estimate 9 agents"
    assert title(A=FEW, B=MANY) == "capacity: 9 and 14 agents"
    assert (
        title(A=CapacityAnswer(holds=64, at_least=True, complete=True)) == "capacity: at least 64 agents hold"
    )
    assert title(A=CapacityAnswer(holds=0, fails=1, complete=True)) == "capacity: none hold"
    assert title(A=CapacityAnswer(holds=4)) == "capacity: so far 4 agents hold"
    assert title(A=CapacityAnswer()) == "capacity"
