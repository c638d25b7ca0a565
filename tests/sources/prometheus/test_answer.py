"""Answers read series by series are those that are read whole, whatever stands in their labels."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktop.net.failure import AnswerError
from sparktop.sources.prometheus.client import TimeSeries, read_answer

TEXTS = st.text(st.one_of(st.sampled_from('"\\{}[],: \n\t\x00'), st.characters(codec="utf-8")), max_size=12)
SAMPLES = st.lists(st.tuples(st.floats(0, 2e9), TEXTS), min_size=1, max_size=3)
SERIES = st.builds(
    lambda labels, samples, kind: {
        "metric": labels,
        "values" if kind == "matrix" else "value": samples if kind == "matrix" else samples[0],
    },
    st.dictionaries(TEXTS, TEXTS, max_size=4),
    SAMPLES,
    st.shared(st.sampled_from(["vector", "matrix"]), key="kind"),
)
FAULTY: Any = st.sampled_from([None, 1, [], {}, {"metric": {"a": 1}}, {"metric": {}, "value": [1, 2]}])
RESULTS = st.lists(st.one_of(SERIES, SERIES, FAULTY), max_size=6)
FORMS = st.sampled_from(
    [
        {"separators": (",", ":")},
        {"indent": 1, "ensure_ascii": False},
        {"separators": (" , ", " : "), "ensure_ascii": False},
    ]
)
BEFORE: Any = st.sampled_from([{}, {"isPartial": False}, {"note": "a, [b]"}])
AFTER: Any = st.sampled_from([{}, {"warnings": ["a ]}", 2]}, {"stats": {"result": [1]}, "warnings": None}])


def answer_of(body: bytes) -> tuple[list[TimeSeries], tuple[str, ...]]:
    """Return the series and the warnings of an answer."""
    series: list[TimeSeries] = []
    return series, read_answer(body, series.append)


def expected(body: bytes) -> list[tuple[object, object]]:
    """Return (labels, samples) of the usable series in a whole answer."""
    data = json.loads(body)["data"]
    found: list[tuple[object, object]] = []
    for one in data["result"]:
        if not isinstance(one, dict) or not isinstance(labels := one.get("metric"), dict):
            continue
        sample = one.get("value")
        samples = one.get("values") if data["resultType"] == "matrix" else sample and [sample]
        if samples and all(
            isinstance(text, str) for text in [*labels.values(), *(end for _, end in samples)]
        ):
            found.append((labels, [*map(tuple, samples)]))
    return found


@given(RESULTS, st.shared(st.sampled_from(["vector", "matrix"]), key="kind"), FORMS, BEFORE, AFTER)
def test_series_by_series_is_as_the_whole(
    result: list[object], kind: str, form: dict[str, Any], before: dict[str, Any], after: dict[str, Any]
) -> None:
    """The same series and warnings for all spellings; and nothing of an answer that was cut anywhere."""
    answer = {"status": "success", **before, "data": {"resultType": kind, "result": result}, **after}
    body = json.dumps(answer, **form).encode()
    series, warnings = answer_of(body)
    assert [(one.labels, [*one.samples]) for one in series] == [
        (labels, samples) for labels, samples in expected(body)
    ]
    assert len(warnings) == len(after.get("warnings") or ())
    for end in range(0, len(body), 7):
        with pytest.raises(AnswerError, match="not one of the Prometheus HTTP API"):
            answer_of(body[:end])


@pytest.mark.parametrize(
    "text",
    [
        '{"status":"success","data":{"resultType":"vector","result":[1,]}}',
        '{"status":"success","data":{"resultType":"vector","result":[]}} x',
        '{"status":"success","data":{"resultType":"vector","result":[' + "[" * 100_000,
        '{"status":"success","data":{"resultType":"streams","result":[]}}',
        '{"status":"success","data":{"resultType":["vector"],"result":[]}}',
    ],
)
def test_what_is_no_answer_is_refused(text: str) -> None:
    """A fault within the list of series or around it, and an unknown type, in one line."""
    with pytest.raises(AnswerError, match="not one of the Prometheus HTTP API"):
        answer_of(text.encode())


@pytest.mark.parametrize("text", ["NaN", "+Inf", "-1e300", "1e308", "many"])
def test_a_value_that_cannot_be_is_unknown(text: str) -> None:
    """A newest value that is no number, infinite or absurd is None."""
    assert TimeSeries({}, [(1.0, "2"), (2.0, text)]).value is None
