"""The options of `sparktop capacity`, and the plan that it prints before it starts."""

from __future__ import annotations

from datetime import UTC, datetime

from sparktop.commands import capacity as command
from sparktop.commands.arguments import Parser
from sparktop.commands.capacity import capacity_of, kind_of
from sparktop.model.load import LoadKind
from sparktop.model.targets import SweepSpec
from sparktop.sweep.plan.capacity import default_capacity, make_capacity_plan
from sparktop.sweep.plan.plan import SweepTarget
from sparktop.sweep.run.forecast import plan_sentences


def test_what_is_searched_for() -> None:
    """By default, agents with the default conditions are searched for; published limits are for a rate."""
    parser = Parser("x", description="x")
    command.add_arguments(parser)
    found = capacity_of(parser.parse_args([]))
    assert found == default_capacity()
    assert [(one.figure, one.limit) for one in found.conditions] == [
        ("ttft_p90_ms", 2000),
        ("stream_tps", 15),
    ]
    published = capacity_of(parser.parse_args(["--preset", "mlperf-gpt-oss-120b"]))
    assert (published.kind, published.share, published.limits) == (
        LoadKind.RATE,
        0.99,
        "mlperf-gpt-oss-120b",
    )
    assert kind_of(parser.parse_args(["--rate"])) is LoadKind.RATE
    assert capacity_of(parser.parse_args(["--concurrency", "--most", "7"])).most == 7


def test_the_plan_says_levels_time_and_end() -> None:
    """Before anything is sent, the plan states what is searched for, the levels, the duration and the end."""
    plan = make_capacity_plan(default_capacity(), [SweepTarget("s", "http://127.0.0.1:1")], SweepSpec())
    first, second = plan_sentences(plan, datetime(2026, 1, 2, 15, 0, tzinfo=UTC))
    assert first == (
        "how many agents (coder-quick)? The largest number for which first token p90 ≤ 2 s and ≥ 15 tok/s "
        "each for 90 % of the requests"
    )
    assert "1, then twice as much each time until one fails (at most 64), then those between" in second
    assert "at most" in second
    assert "ends before 15:" in second
