"""Stored levels answer other limits: by the judgement of a search, unknown where they do not reach."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from sparktop.cli import main
from sparktop.commands.capacity import answer_of
from sparktop.errors import UsageError
from sparktop.model.failure import FailureKind, RequestFailure
from sparktop.model.load import (
    CallStart,
    ConversationCall,
    EndReason,
    Level,
    LoadKind,
    LoadMode,
    LoadPoint,
    RequestEnded,
)
from sparktop.sweep.formats.written import capacity_text
from sparktop.sweep.plan.capacity import parse_conditions
from sparktop.sweep.plan.plan import Capacity
from sparktop.sweep.result.level import level_result
from sparktop.sweep.result.measure import RequestTrace
from sparktop.sweep.result.results import LevelResult, PlanResult, SweepResult, TargetResult, Validity
from sparktop.sweep.result.store import save
from sparktop.sweep.run.again import answer_from_levels, stored_traces
from sparktop.sweep.run.judgement import judge
from sparktop.sweep.terms.definitions import CLIENT_LAG, FEW_RUNS
from tests.known import known
from tests.sweep.made_results import BEGAN, doubts

SLO = {
    LoadKind.CONCURRENCY: "ttft_p90_ms=900,tpot_p50_ms=60,e2e_p95_ms=2500,stream_tps=12,ttfr_p50_ms=400",
    LoadKind.RATE: "ttft_p90_ms=1200,e2e_p95_ms=2500,stream_tps=12",
    LoadKind.AGENTS: "ttft_tool_p90_ms=900,ttft_human_p50_ms=800,stream_tps=12",
}
MODES = {
    LoadKind.CONCURRENCY: LoadMode.STEADY,
    LoadKind.RATE: LoadMode.OPEN,
    LoadKind.AGENTS: LoadMode.AGENTS,
}


def played(seed: int, kind: LoadKind, count: int = 120, ttft_s: float = 0.5) -> list[RequestTrace]:
    """Return requests of two runs, most of them answered; some fail, some have no answer at the end."""
    random = Random(seed)  # noqa: S311 - no secret
    traces = []
    for number in range(count):
        run, start = number % 2, 100.0 * (number % 2) + 0.4 * number
        measured = random.random() > 0.1
        due = start - random.expovariate(8.0) if kind is LoadKind.RATE and measured else None
        call = None
        if kind is LoadKind.AGENTS:
            after = random.choice(list(CallStart))
            turn, compacted = random.randrange(3), random.random() < 0.1
            call = ConversationCall(0, 0, turn, 0, after, None, 0, 9, compacted=compacted, measured=measured)
        first = start + ttft_s * random.lognormvariate(0.0, 0.5)
        step_s = 0.05 * random.lognormvariate(0.0, 0.3)
        trace = RequestTrace(f"r{number}", start, run, 100, due, call, first_event=first - 0.1)
        trace.arrivals = [(first, 1), *((first + one * step_s, 1) for one in range(1, 21))]
        end, reason = trace.arrivals[-1][0], EndReason.LENGTH
        if (fate := random.random()) < 0.1:
            reason = EndReason.ERROR if fate < 0.02 else EndReason.ABORT
            trace.arrivals = trace.arrivals[: random.randrange(3)]
            end = start + random.uniform(0.1, 4.0)
            trace.arrivals = [one for one in trace.arrivals if one[0] <= end]
        error = RequestFailure(FailureKind.HTTP, "refused", end) if reason is EndReason.ERROR else None
        trace.ended = RequestEnded(trace.request_id, end, reason, error, 100)
        traces.append(trace)
    return traces


def level_of(kind: LoadKind, value: float, traces: list[RequestTrace]) -> LevelResult:
    """Return a level as a result file stores it and as it is read again."""
    level = Level("a", LoadPoint(kind, value), 100, 21)
    made = level_result(level, traces, {0: (0.0, 60.0), 1: (100.0, 160.0)}, mode=MODES[kind])
    return LevelResult.model_validate(json.loads(made.model_dump_json()))


def result_of(kind: LoadKind, *levels: LevelResult) -> SweepResult:
    """Return a stored sweep with these levels of one target."""
    plan = PlanResult(targets=("a",), load=kind, pp=100, tg=21)
    target = TargetResult(name="a", url="http://127.0.0.1:1", levels=levels)
    return SweepResult(started_at=BEGAN, sparktop="1.4.0", status="done", plan=plan, targets=(target,))


def sweep(*ttft_s: float) -> SweepResult:
    """Return a sweep of 1, 4, 16, … with these times to the first token."""
    kind = LoadKind.CONCURRENCY
    levels = [
        level_of(kind, 4.0**power, [one for one in played(1, kind, 120, seconds) if one.ok])
        for power, seconds in enumerate(ttft_s)
    ]
    return result_of(kind, *levels)


def asked(slo: str, kind: LoadKind = LoadKind.CONCURRENCY) -> Capacity:
    """Return a search under these conditions."""
    return Capacity(kind, parse_conditions(slo, kind))


def answer(slo: str, *levels: LevelResult, kind: LoadKind = LoadKind.CONCURRENCY) -> str:
    """Return what is said of a search under these conditions in stored levels of a kind."""
    return capacity_text(answer_from_levels(result_of(kind, *levels), asked(slo, kind)))


@pytest.mark.parametrize("kind", SLO)
def test_a_stored_level_is_judged_as_it_was_when_it_was_measured(kind: LoadKind) -> None:
    """The shares of every condition, and their intervals, are those that a search saw, whatever happened."""
    capacity = asked(SLO[kind], kind)
    for seed in range(5):
        traces = played(seed, kind)
        live = judge(capacity, traces, max_error_share=0.01)
        again = judge(capacity, stored_traces(level_of(kind, 4.0, traces)), max_error_share=0.01)
        assert (again.holds, again.trouble) == (live.holds, live.trouble)
        for before, after in zip(live.shares, again.shares, strict=True):
            assert (after.met, after.count) == (before.met, before.count), (seed, before.condition)
            assert (after.low, after.high) == pytest.approx((before.low, before.high))
            assert after.value == (None if before.value is None else pytest.approx(before.value, rel=1e-4))


def test_the_answer_is_a_stored_level_and_says_between_which_it_lies() -> None:
    """4 hold and 16 fail: what lies between is unknown, and no level there is made up."""
    found = answer_from_levels(sweep(0.3, 0.5, 2.0), asked("ttft_p90_ms=1500"))
    said = known(found.capacity).answers["a"]
    assert (said.holds, said.fails) == (4, 16)
    assert {one.value for one in said.probes} == {1, 4, 16}
    text = capacity_text(found)
    assert answer_of(found).startswith("4 requests at once hold"), "it is said beside a file"
    assert text.startswith("by the levels of 20")
    assert "nothing was sent: first token p90 ≤ 1.5 s\na: 4 requests at once hold; 16 fail: p90 TTFT " in text
    assert "unknown between 4 and 16: no stored level lies there" in text


@pytest.mark.parametrize(
    ("slo", "words"),
    [
        ("ttft_p90_ms=90000", "a: at least 16 requests at once hold"),
        ("ttft_p90_ms=90000", "more is unknown: no stored level fails"),
        ("ttft_p90_ms=50", "a: none hold: 1 request at once fails: p90 TTFT"),
    ],
)
def test_limits_that_nothing_or_everything_meets(slo: str, words: str) -> None:
    """The largest level is a lower bound; if one request at once fails, no number holds."""
    assert words in capacity_text(answer_from_levels(sweep(0.3, 0.5, 2.0), asked(slo)))


def test_below_the_smallest_level_nothing_is_known() -> None:
    """4 fail, and 1 was not measured: that is not 'none'."""
    _, *larger = sweep(0.3, 2.0, 4.0).targets[0].levels
    found = answer_from_levels(result_of(LoadKind.CONCURRENCY, *larger), asked("ttft_p90_ms=900"))
    assert "a: unknown below 4, the smallest level: 4 requests at once fail" in capacity_text(found)
    assert known(found.capacity).answers["a"].holds is None


def test_a_level_that_is_not_trustworthy_is_left_out_with_its_reason() -> None:
    """A late generator makes a level unknown where that decides; that it had few runs does not."""
    levels = list(sweep(0.3, 0.5, 2.0).targets[0].levels)
    for at, code in ((1, FEW_RUNS), (2, CLIENT_LAG)):
        levels[at] = levels[at].model_copy(update={"validity": doubts(code)})
    text = answer("ttft_p90_ms=1500", *levels)
    assert "a: at least 4 requests at once hold" in text
    assert "more is unknown: no level that can be judged fails" in text
    assert "left out c = 16: load generator late: what was seen" in text
    text = answer("ttft_p90_ms=1500", *(one.model_copy(update={"each": None}) for one in levels))
    assert "a: unknown: no level can be judged" in text
    assert "left out c = 1: its single requests are not stored" in text


def older(level: LevelResult) -> LevelResult:
    """Return a level as versions before 1.4 wrote it."""
    values = level.model_dump(mode="json")
    for name in ("missed", "wait_ms", "call"):
        (values["uncounted"] or {}).pop(name, None)
    (values["each"] or {}).pop("call", None)
    return LevelResult.model_validate(values)


def test_an_older_file_answers_what_it_holds() -> None:
    """TTFT of agents is there; what a call followed, and which requests of a rate failed, is not."""
    traces = played(3, LoadKind.AGENTS)
    agents = older(level_of(LoadKind.AGENTS, 4.0, traces))
    with pytest.raises(UsageError, match="does not say what each request followed"):
        answer("ttft_tool_p90_ms=900", agents, kind=LoadKind.AGENTS)
    only = [one for one in traces if one.ended and one.ended.reason is not EndReason.ERROR]
    agents = older(level_of(LoadKind.AGENTS, 4.0, only))
    assert "4 agents" in answer("ttft_p90_ms=5000", agents, kind=LoadKind.AGENTS)
    rate = older(level_of(LoadKind.RATE, 2.5, played(3, LoadKind.RATE)))
    text = answer("ttft_p90_ms=900", rate, kind=LoadKind.RATE)
    assert "left out 2.5 /s: its single requests are not stored" in text


def _cut(level: LevelResult) -> LevelResult:
    each = known(level.each)
    short = each.model_copy(update={"ttft_ms": each.ttft_ms[:3], "stream_tps": (None, 0.0, -1.0, 1e15)})
    return level.model_copy(update={"each": short})


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_cut, "(3 requests"),
        (lambda level: level.model_copy(update={"load": LoadKind.AGENTS, "value": 1e15}), "no level"),
        (lambda level: level.model_copy(update={"concurrency": 1_000_000}), "no level"),
        (lambda level: level.model_copy(update={"concurrency": 0}), "no level"),
    ],
)
def test_a_spoilt_file_is_no_crash(spoil: Callable[[LevelResult], LevelResult], words: str) -> None:
    """Columns of unlike lengths and impossible loads leave less to judge."""
    levels = [spoil(one) for one in sweep(0.3, 2.0).targets[0].levels]
    if words == "no level":
        with pytest.raises(UsageError, match="no level of concurrency that a search would make"):
            answer("ttft_p90_ms=900", *levels)
    else:
        assert words in answer("ttft_p90_ms=900", *levels)


def test_the_command_judges_a_file_in_every_format(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Text, JSON, CSV and Markdown have the answer or its levels; what would send something is refused."""
    path = tmp_path / "stored.json"
    save(path, sweep(0.3, 0.5, 2.0))
    command = ["capacity", "--from", str(path), "--slo", "ttft_p90_ms=1500"]
    assert main(command) == 0
    assert "a: 4 requests at once hold" in capsys.readouterr().out
    for form, words in {
        "json": '"stored": true',
        "csv": "target,kind,model",
        "md": "ead off stored levels, nothing was sent: first token p90 ≤ 1.5 s",
        "html": "4 requests at once hold",
    }.items():
        assert main([*command, "--format", form]) == 0
        assert words in capsys.readouterr().out
    for more, why in {
        "a": "--from sends nothing: leave out TARGET",
        "--workload chat": "leave out --workload",
        "--rate": "no level of rate",
        "--pp 5k": "the levels have prompts of 100 tokens: choose",
        "--slo first_answer_p90_ms=9": "hold no first_answer_p90_ms of single requests",
        "--slo nothing=9": "there is no figure 'nothing'",
    }.items():
        assert main([*command, *more.split()]) == 2
        assert why in capsys.readouterr().err


@pytest.mark.parametrize(
    ("percent", "slo", "is_left_out"),
    [
        (1.6, "stream_tps=5", False),
        (1.6, "stream_tps=5,ttft_p90_ms=9000", False),
        (1.6, "ttft_p90_ms=60", False),
        (60.0, "ttft_p90_ms=700", True),
    ],
)
def test_a_late_generator_counts_where_it_decides(percent: float, slo: str, is_left_out: bool) -> None:  # noqa: FBT001 - a row
    """A level is left out where its verdict may change by the lateness."""
    late = Validity(code=CLIENT_LAG, message="late", ttft_percent=percent)
    levels = [one.model_copy(update={"validity": (late,)}) for one in sweep(0.3, 0.5).targets[0].levels]
    assert ("left out" in answer(slo, *levels)) is is_left_out
