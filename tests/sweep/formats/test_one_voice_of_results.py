"""No two texts of one result of a sweep give a thing two figures, or one figure two forms.

Screens at three widths, Markdown, HTML, the post, the lines of the command and the list of results are drawn
of made results: of one target and of several, with ties, failures, refused lengths, missing figures, of rates
and agents, simulated. They are read as a reader reads them: leads ("a +20 % against b"), the level called the
best, and the signs in tables; what they say is held against the values of the levels.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterator

import pytest

from sparktop.commands.sweep.run import level_line
from sparktop.model.load import LoadKind
from sparktop.model.sweep import ColumnRank, ComparedLevel, level_name
from sparktop.panels.parts.text import row_text
from sparktop.panels.sweep.table import ALIKE, BEST, table_rows
from sparktop.sweep.formats.report import doubts_of, warning_letters
from sparktop.sweep.formats.tables import load_words
from sparktop.sweep.history import stored_row
from sparktop.sweep.result.results import (
    AgentsResult,
    Latency,
    LevelResult,
    OpenLoopResult,
    Quantiles,
    Rate,
    Requests,
    SweepResult,
    Validity,
    level_of,
)
from sparktop.sweep.terms.definitions import ALL_LATENCIES, METRICS, RATES
from sparktop.sweep.view.marks import ttft_error_words
from sparktop.sweep.view.result import result_view
from sparktop.sweep.view.words import choices
from tests.known import known
from tests.sweep.formats.full_results import texts_of
from tests.sweep.made_results import made_level, made_sweep

NAMES = ("alpha", "beta", "gamma")
LEVELS = (1, 4, 16, 64)
KINDS = (
    "one target",
    "several targets",
    "ties",
    "failures",
    "refused length",
    "cut prompt",
    "missing figures",
    "one level",
    "simulated",
    "long waits",
    "rates",
    "agents",
    "late generator",
    "lone lengths",
    "scattered",
)


def latency(rng: random.Random, middle_ms: float) -> Latency:
    """Return a latency of 400 requests around `middle_ms`, with all of its quantiles."""
    return known(Latency.of_values([middle_ms * rng.lognormvariate(0, 0.4) for _ in range(400)]))


def runs_of(rng: random.Random, mean: float, spread: float) -> Rate:
    """Return a rate of three runs."""
    return known(Rate.of_runs([mean * (1 + spread * rng.uniform(-1, 1)) for _ in range(3)]))


def a_level(rng: random.Random, concurrency: int, *, kind: str, tie: float | None = None) -> LevelResult:
    """Return a level whose figures are drawn."""
    decode = tie or concurrency**0.7 * rng.uniform(40, 70)
    spread = 0.0 if tie else 0.5 if kind == "scattered" else rng.choice((0.002, 0.02, 0.2))
    wait_ms = rng.uniform(60, 900) * (20 if kind == "long waits" else 1) * concurrency**0.3
    figures = {
        "decode_tps": runs_of(rng, decode, spread),
        "prefill_tps": runs_of(rng, rng.uniform(900, 9000), 0.03),
        "peak_tps": runs_of(rng, 1.2 * decode, 0.02),
        "output_tps": runs_of(rng, 0.8 * decode, spread),
        "total_tps": runs_of(rng, 2.4 * decode, spread),
        "pure_decode_tps": None,
        "ttft_ms": latency(rng, wait_ms),
        "itl_ms": latency(rng, rng.uniform(8, 90)),
        "tpot_ms": latency(rng, rng.uniform(8, 90)),
        "e2e_ms": latency(rng, 10 * wait_ms),
        "ttfr_ms": None,
        "stream_tps": Quantiles(p10=decode / concurrency * 0.9, p50=decode / concurrency),
        "requests": Requests(ok=400),
        "validity": (),
        "each": None,
    }
    level = made_level(min(concurrency, 4)).model_copy(update={"concurrency": concurrency} | figures)
    if kind == "late generator":
        share = round(rng.uniform(0.04, 2.9), 2)
        message = f"up to {share} % of a TTFT is the load generator's own delay"
        note = Validity(code="client_lag", message=message, ttft_percent=share)
        return level.model_copy(update={"notes": (note,)})
    if kind == "missing figures":
        gone = rng.sample(["prefill_tps", "peak_tps", "ttft_ms", "itl_ms", "tpot_ms", "stream_tps"], 3)
        return level.model_copy(update=dict.fromkeys(gone))
    if kind == "rates":
        more = {
            "load": LoadKind.RATE,
            "value": float(concurrency),
            "concurrency": 512,
            "open_loop": OpenLoopResult(offered_per_s=float(concurrency), completed_per_s=0.98 * concurrency),
            "ttft_due_ms": latency(rng, wait_ms),
            "e2e_due_ms": latency(rng, 10 * wait_ms),
            "decode_tps": None,
        }
        return level.model_copy(update=more)
    if kind == "agents":
        agents = AgentsResult(
            calls=400, conversations=9, prompt_tokens=100_000, cached_tokens=91_000, new_tokens=9000
        ).model_copy(
            update={
                "after_tool_ms": latency(rng, wait_ms),
                "after_human_ms": latency(rng, 2 * wait_ms),
                "request_ms": latency(rng, 20 * wait_ms),
            }
        )
        return level.model_copy(
            update={
                "load": LoadKind.AGENTS,
                "value": float(concurrency),
                "agents": agents,
                "decode_tps": None,
            }
        )
    return level


def a_result(kind: str) -> SweepResult:
    """Return a finished sweep of a kind."""
    rng = random.Random(11)  # noqa: S311 - a test's figures
    names = (
        NAMES[: rng.randint(2, 3)]
        if kind in {"several targets", "ties", "failures", "simulated", "late generator", "lone lengths"}
        else NAMES[:1]
    )
    names = names[:2] if kind == "lone lengths" else names
    points = LEVELS[:1] if kind == "one level" else LEVELS
    ties = {at: at**0.7 * rng.uniform(40, 70) for at in points} if kind == "ties" else {}
    targets = [(name, [a_level(rng, at, kind=kind, tie=ties.get(at)) for at in points]) for name in names]
    _, first = targets[0]
    if kind == "failures":
        failed = Requests(ok=360, failed=40, errors={"timeout": 40})
        doubt = Validity(code="errors", message="40 of 400 requests failed: timeout")
        first[2] = first[2].model_copy(update={"requests": failed, "validity": (doubt,)})
    if kind == "refused length":
        first[3] = LevelResult(concurrency=64, pp=100, tg=4, error="too long: 4,096 tokens at most")
    if kind == "cut prompt":
        doubt = Validity(code="short_prompt", message="prompt of 50 tokens, not 100")
        best = runs_of(rng, 9000.0, 0.001)
        first[1] = first[1].model_copy(
            update={
                "decode_tps": best,
                "validity": (doubt,),
                "asked_prompt_tokens": 100,
                "counted_prompt_tokens": 50,
            }
        )
    if kind == "lone lengths":  # the last target takes the shortest prompts only; a level has one run or two
        for name, levels in targets:
            for at, (level, length) in enumerate(zip(levels, (5000, 20_000, 39_000, 80_000), strict=True)):
                few = Validity(code="few_runs", message="too few")
                decode = Rate.of_runs([50.0 + at] * (2 - bool(at)))
                changes = {"concurrency": 1, "pp": length, "validity": (few,), "decode_tps": decode}
                levels[at] = level.model_copy(update=changes)
                if at and name == names[-1]:
                    levels[at] = LevelResult(
                        concurrency=1, pp=length, tg=4, error="too long: 4,096 tokens at most"
                    )
    return made_sweep(*targets, preset="quick", simulated=kind == "simulated")


Texts = list[tuple[str, str]]


def _numbers(level: LevelResult, name: str) -> Iterator[float | None]:
    """Yield every number that the result has of a metric at a level."""
    figure = level.latency(name) if name in ALL_LATENCIES else level.rate(name)
    if isinstance(figure, Latency):
        yield from (figure.mean, figure.p50, figure.p90, figure.p95, figure.p99, figure.max)
        yield from figure.run_means
    elif figure is not None:
        yield from (figure.mean, *figure.values, *(figure.ci95 or ()))


def written(result: SweepResult, unit: str) -> set[str]:
    """Return each number with a unit as its metric writes it; there is no other form."""
    levels = [level for target in result.targets for level in target.levels]
    found = {
        METRICS[name].text(number)
        for level in levels
        for name in (*RATES, *ALL_LATENCIES)
        if METRICS[name].unit == unit
        for number in _numbers(level, name)
    }
    if unit == "tok/s":
        each = [level.stream_tps for level in levels if level.stream_tps is not None]
        found |= {METRICS["decode_tps"].text(value) for one in each for value in (one.p10, one.p50)}
    return found


def tables(text: str) -> Iterator[list[list[str]]]:
    """Yield the tables of a Markdown text as rows of cells, the headings first."""
    for block in re.findall(r"(?:^\|.*\|$\n?)+", text, re.MULTILINE):
        rows = [[cell.strip(" *`") for cell in line.strip("|").split("|")] for line in block.splitlines()]
        yield [row for row in rows if not all(re.fullmatch(r":?-+:?", cell) for cell in row)]


def check_sentences(result: SweepResult, texts: Texts) -> None:
    """What stands before "ms" or "tok/s" is a number as its metric writes it; no TTFT is in s."""
    for unit in ("ms", "tok/s"):
        known = written(result, unit)
        for form, text in texts:
            said = set(re.findall(rf"(?<![\d.,–p])(\d[\d,]*(?:\.\d+)?) ?{unit}(?![\w/])", text))
            assert said <= known, (form, said - known)
    for form, text in texts:
        found = re.findall(r"(?:TTFT|ITL|TPOT|E2E)[^\n|;.(]{0,24}?(?<!over )\b(\d+\.\d+ s)\b", text)
        assert not found, (form, found)


def check_cells(result: SweepResult, texts: Texts) -> None:
    """Below a heading with a unit, tables of reports have the numbers in the same form."""
    known = written(result, "ms") | written(result, "tok/s") | written(result, "req/s")
    for form in ("md", "post"):
        for heads, *rows in tables(dict(texts)[form]):
            columns = [
                at for at, head in enumerate(heads) if re.search(r"tok/s|\bms\b|E2E|TTFT|ITL|TPOT", head)
            ]
            for row in rows:
                cells = [
                    re.match(r"[\d,]+(\.\d+)?(?=[ᵃᵇᶜᵈ]|$| \()", row[at]) for at in columns if at < len(row)
                ]
                assert {cell[0] for cell in cells if cell} <= known, (form, heads, row)


def check_best(result: SweepResult, texts: Texts) -> None:
    """The level that the headline calls the best has the sign in the table, and its rate in the list.

    One that it calls enough has the sign of those that may be as good, unless it is the best itself.
    """
    view = result_view(result)
    pattern = r"(best: )?c = (\d+)(?(1),| is enough:) ([\d,.]+) tok/s"
    said = {found for _, text in texts for found in re.findall(pattern, text)}
    best = re.search(pattern, view.headline or "")
    assert said <= ({best.groups()} if best else set())
    if best is not None:
        drawn = [row_text(row) for row in table_rows(view, 200, 30)]
        signs = (BEST,) if best[1] else (BEST, ALIKE)
        assert any(f"{sign}{best[3]} " in row and f" c{best[2]} " in row for row in drawn for sign in signs)
        alike = {
            str(level.concurrency)
            for level in result.targets[0].levels
            if level.decode_tps is not None
            and any(
                f" c{level.concurrency} " in row and f"{ALIKE}{level.decode_tps.mean:.1f}" in row
                for row in drawn
            )
        }
        words = (view.headline or "").partition("no clear gain at ")[2].partition(";")[0]
        others = set(re.findall(r"c = (\d+)", words))
        assert bool(others) is not bool(best[1])
        # Of the levels that may be as good, one has the sign of the best.
        assert alike <= others | {best[2]}
        listed = METRICS["decode_tps"].text(stored_row(result, "1.json").decode_tps)
        assert any(f"{BEST}{listed} " in row for row in drawn)


def mean_of(result: SweepResult, name: str, level: ComparedLevel, metric: str) -> float:
    """Return a target's figure at a level."""
    (found,) = [
        one
        for target in result.targets
        for one in target.levels
        if (target.name, one.concurrency) == (name, level.key.point.concurrency)
        and level.key.pp in {None, one.pp}
    ]
    if metric in ALL_LATENCIES:
        return known(found.latency(metric)).mean
    return known(found.rate(metric)).mean


def check_leads(result: SweepResult, texts: Texts) -> None:
    """Each lead is that of two figures at one level; who is best or ahead there is the same in every text."""
    view = result_view(result).topologies
    leads, said = set(), defaultdict[str, set[tuple[str, str]]](set)
    for metric in () if view is None else view.metrics:
        for level in metric.levels:
            if level.ahead is None or level.against is None:
                continue
            ahead, other = (
                mean_of(result, name, level, metric.metric) for name in (level.ahead, level.against)
            )
            percent = round(100 * (ahead / other - 1))
            leads.add(
                (
                    level.ahead,
                    f"{'+' if percent > 0 else '−' if percent else '±'}{abs(percent)} %",
                    level.against,
                )
            )
            assert (ahead < other) is (metric.metric in ALL_LATENCIES) or percent == 0
    for form, text in texts:
        found = set(re.findall(r"(alpha|beta|gamma) ([+−±]\d+ %) against (alpha|beta|gamma)", text))
        assert found <= leads, (form, found - leads)
        for part in re.findall(r"Decode: ([^.\n]*? at c.*?)(?:Peak|Total|Output|Pure|TTFT|ITL|E2E|$)", text):
            for name, word, first, last in re.findall(r"(\w+) (best|ahead) at (c\d+)(?:–(c\d+))?", part):
                for at in (one for one in LEVELS if int(first[1:]) <= one <= int((last or first)[1:])):
                    said[f"c{at}"].add((name, word))
    assert all(len(verdicts) == 1 for verdicts in said.values()), said


def check_failures(result: SweepResult, texts: Texts) -> None:
    """Screens, the line of the command and reports count the same failures of the same requests."""
    levels = [level for target in result.targets for level in target.levels if level.requests.failed]
    counts = {(str(one.requests.failed), str(one.requests.failed + one.requests.ok)) for one in levels}
    for form, text in texts:
        found = set(re.findall(r"(\d+)(?:/| of )(\d+)(?= failed| requests failed)", text))
        assert found <= counts, (form, found)


def check_notes(result: SweepResult, texts: Texts) -> None:
    """A small error is said with its own percent, and is no warning; 95 % is a confidence interval."""
    levels = [level for target in result.targets for level in target.levels]
    known = {
        ttft_error_words(note.ttft_percent) for level in levels for note in level.notes if note.ttft_percent
    }
    for form, text in texts:
        said = set(re.findall(r"measured TTFT up to [\d.]+ % too high", " ".join(text.split())))
        assert said <= known, form
        assert not re.search(r"(?<![\d.+−])95 %(?! CI| sure| of)", text), form
        if not any(level.validity or level.error for level in levels):
            assert "warning" not in text.lower().replace("**warnings:** none", "").replace(
                "warnings: none", ""
            ), form
    if known:
        said = {form for form, text in texts if re.search(r"TTFT\s+up\s+to\s+[\d.]+\s+%\s+too\s+high", text)}
        assert {"md", "post", "html", "lines"} <= said


def check_recommendation(result: SweepResult, texts: Texts) -> None:
    """The post's first table has the choices as they are; whom it picks wins somewhere."""
    view = result_view(result)
    picks = [] if view.topologies is None else choices(result, view.topologies)
    if not picks:
        return
    shown = next(rows for rows in tables(dict(texts)["post"]) if rows[0][0].startswith("Use"))
    assert [row[:3] for row in shown[1:]] == [[use, pick, leads or "–"] for use, pick, leads, *_ in picks]
    winners = {
        level.winner
        for metric in known(view.topologies).metrics
        if metric.metric in {"decode_tps", "prefill_tps", "ttft_ms"}
        for level in metric.levels
    }
    names = {target.name for target in result.targets}
    assert {name for _, pick, *_ in picks for name in names if re.match(rf"{name}\b", pick)} <= winners


def check_marks(result: SweepResult, texts: Texts) -> None:
    """A level with a warning has it in every form: in its row, its line, in a post in each of its cells."""
    forms, letters = dict(texts), warning_letters(result)
    drawn = [row_text(row) for row in table_rows(result_view(result), 200, 30)]
    lines = forms["lines"].splitlines()
    for target in result.targets:
        for level in target.levels:
            words = doubts_of(level)
            where = load_words(level_of(level), lengths=len({one.pp for one in target.levels}) > 1)
            if level.error is not None or not words:
                continue
            name = level_name(level_of(level, target.name), lengths=" in" in where)
            assert (
                any(target.name in row and f" {name} " in row and "!" in row for row in drawn)
                or len(result.targets) == 1
            )
            assert any(
                line.startswith(level_line(target.name, level)) and "warning" in line for line in lines
            )
            signs = "".join(sorted(letters[word] for word in words if word in letters))
            for heads, *rows in tables(forms["post"]):
                if target.name in heads and heads[-1] != "Not proven":
                    (cell,) = [row[heads.index(target.name)] for row in rows if row[0] == where]
                    assert cell.endswith(signs), (where, target.name, cell)


def check_scatter(result: SweepResult, texts: Texts) -> None:
    """What the table calls too scattered, no sentence calls alike or enough."""
    scattered = {
        f"c = {row.key.point.concurrency}"
        for row in result_view(result).rows
        if row.ranks.get("decode_tps") is ColumnRank.SCATTERED
    }
    for form, text in texts:
        said = re.search(r"no clear gain at ([^;.]*)|(c = \d+) is enough", text)
        assert said is None or not scattered & set(re.findall(r"c = \d+", said[0])), form


@pytest.mark.parametrize("kind", KINDS)
def test_texts_of_a_result_agree(kind: str) -> None:
    """Figures, forms, best level, leads, failures, notes and advice: in sentences, tables and lists alike."""
    result = a_result(kind)
    texts = list(texts_of(result))
    for check in (
        *(check_sentences, check_cells, check_best, check_leads),
        *(check_failures, check_notes, check_recommendation, check_marks, check_scatter),
    ):
        check(result, texts)
