"""Whatever was measured: no two texts of one result name other figures, rivals or verdicts for one thing.

The texts are read as a reader reads them: leads ("a +20 % against b"), the level called the best, and
the signs in tables. What they say is held against the values of the levels, computed here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.panels.parts.text import row_text
from sparktop.panels.sweep.table import ALIKE, BEST, table_rows
from sparktop.panels.sweep.topology import topology_screen
from sparktop.sweep.formats.written import sweep_report
from sparktop.sweep.result.results import LevelResult, Rate, Requests, SweepResult, Validity
from sparktop.sweep.view.result import result_view
from tests.sweep.made_results import made_level, made_sweep

NAMES = ("alpha", "beta", "gamma")
LEVELS = (1, 4, 16)
_LEAD = re.compile(r"(alpha|beta|gamma) ([+−±]\d+ %) against (alpha|beta|gamma)")
_BEST = re.compile(r"(?:best: |best of what was measured: |most decode at )c ?=? ?(\d+)[,:] ([\d.,]+) tok/s")
_VERDICTS = re.compile(r"(alpha|beta|gamma) (best|ahead) at (c\d+)(?:–(c\d+))?")

_MEANS = st.sampled_from((50.0, 51.0, 63.0, 100.0, 101.0, 104.0, 118.0, 127.0))
_SPREADS = st.sampled_from((0.0, 0.01, 0.2))
_WARNINGS = st.sampled_from(("", "", "throttled", "cache_hits", "errors", "few_runs"))
_RUNS = st.integers(1, 3)
_LEVEL = st.tuples(_MEANS, _SPREADS, _WARNINGS, _RUNS)
_TARGET = st.lists(_LEVEL, min_size=3, max_size=3)


def level(concurrency: int, mean: float, spread: float, warning: str, runs: int) -> LevelResult:
    """Return a level that decodes at `mean` tok/s, its runs `spread` apart, maybe with a warning."""
    values = [mean * (1 + spread * (run - (runs - 1) / 2)) for run in range(runs)]
    return made_level(concurrency).model_copy(
        update={
            "decode_tps": Rate.of_runs(values),
            "prefill_tps": None,
            "ttft_ms": None,
            "runs": runs,
            "requests": Requests(ok=30),
            "validity": (Validity(code=warning, message="x"),) if warning else (),
        }
    )


def swept(targets: Sequence[Sequence[tuple[float, float, str, int]]]) -> SweepResult:
    """Return a finished sweep of as many targets."""
    named = [
        (name, [level(at, *values) for at, values in zip(LEVELS, levels, strict=True)])
        for name, levels in zip(NAMES, targets, strict=False)
    ]
    return made_sweep(*named)


def texts_of(result: SweepResult) -> Iterator[str]:
    """Yield every text that a user gets of a result: screens, reports, the post, JSON's headline."""
    view = result_view(result)
    yield view.headline or ""
    yield from view.verdict
    if view.topologies is not None:
        yield from (row_text(row) for row in topology_screen(view.topologies, 200, 40))
        yield from view.topologies.sentences
    for form in ("md", "post", "html"):
        # HTML's tags and Markdown's signs are no words.
        yield re.sub(r"<[^>]+>|[`*]", "", sweep_report(result, form)).replace("\n", " ")
    yield str(json.loads(sweep_report(result, "json"))["headline"])


def mean_of(result: SweepResult, name: str, concurrency: int) -> float:
    """Return the decode rate of a target's level."""
    target = result.target(name)
    assert target is not None
    (found,) = (one for one in target.levels if one.concurrency == concurrency)
    assert found.decode_tps is not None
    return found.decode_tps.mean


def signed(percent: float) -> str:
    """Return a percentage as it is written."""
    whole = round(percent)
    return f"{'+' if whole > 0 else '−' if whole < 0 else '±'}{abs(whole)} %"


@settings(max_examples=5, deadline=None)
@given(st.lists(_TARGET, min_size=2, max_size=3))
def test_a_lead_has_one_figure_and_a_level_one_verdict(
    targets: list[list[tuple[float, float, str, int]]],
) -> None:
    """Each lead is that of two values at one level, the same in every text; so is who is best or ahead."""
    result = swept(targets)
    rows = {}
    found = result_view(result).topologies
    assert found is not None
    (metric,) = [one for one in found.metrics if one.metric == "decode_tps"]
    for row in metric.levels:
        rows[row.point.concurrency] = row
    true_leads = {
        (
            row.ahead,
            signed(100 * (mean_of(result, row.ahead, at) / mean_of(result, row.against, at) - 1)),
            row.against,
        )
        for at, row in rows.items()
        if row.ahead is not None and row.against is not None
    }
    for at, row in rows.items():
        means = {name: mean_of(result, name, at) for name in NAMES[: len(targets)]}
        if row.ahead is not None:
            assert means[row.ahead] == max(means.values())
        if row.winner is not None:
            rest = {name: mean for name, mean in means.items() if name != row.winner}
            assert means[row.against or ""] == max(rest.values())
    said: dict[str, set[tuple[str, str]]] = {}
    for text in texts_of(result):
        assert true_leads.issuperset(_LEAD.findall(text)), text
        for part in re.findall(r"Decode: ([^.\n]*? at c.*?)(?:Peak|Total|Output|Pure|TTFT|ITL|E2E|$)", text):
            for name, word, first, last in _VERDICTS.findall(part):
                for at in (one for one in LEVELS if int(first[1:]) <= one <= int((last or first)[1:])):
                    said.setdefault(f"c{at}", set()).add((name, word))
    assert all(len(verdicts) == 1 for verdicts in said.values()), said


@settings(max_examples=5, deadline=None)
@given(_TARGET)
def test_the_best_level_is_the_best_in_every_text(levels: list[tuple[float, float, str, int]]) -> None:
    """The highest rate has the sign and is named by every text; its warning stands beside it."""
    result = swept([levels])
    view = result_view(result)
    highest = max(levels, key=lambda one: one[0])
    at = LEVELS[levels.index(highest)]
    named = {
        (int(concurrency), float(rate.replace(",", "")))
        for text in texts_of(result)
        for concurrency, rate in _BEST.findall(text)
    }
    assert named == {(at, highest[0])}
    drawn = [row_text(row) for row in table_rows(view, 150, 12)]
    (best,) = [row for row in drawn if f"{BEST}{highest[0]:.1f}" in row or f"{BEST}{highest[0]:.0f}" in row]
    assert f" c{at} " in best
    if highest[2]:
        assert "(warning: " in (view.headline or "")
    alike = {
        at
        for at in LEVELS
        if any(f" c{at} " in row and f"{ALIKE}{mean_of(result, 'alpha', at):.3g}" in row for row in drawn)
    }
    words = (view.headline or "").partition("no clear difference from ")[2].partition(";")[0]
    assert {int(one) for one in re.findall(r"c = (\d+)", words)} == alike
