"""The command that repeats a sweep makes the plan that the sweep had, however much of it was measured."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from sparktop.cli import command_module, parser_of
from sparktop.commands.capacity import _spec, capacity_of
from sparktop.commands.sweep.command import spec_of
from sparktop.errors import UsageError
from sparktop.sweep.formats.written import repeat_command, sweep_report
from sparktop.sweep.plan.capacity import make_capacity_plan
from sparktop.sweep.plan.plan import Plan, SweepTarget
from sparktop.sweep.plan.presets import DEFAULT, find_preset, make_plan
from sparktop.sweep.result.results import SweepResult
from sparktop.sweep.run.result_builder import ResultBuilder
from tests.sweep.made_results import BEGAN, made_level

TRACE = '{"timestamp": 0, "input_length": 60, "output_length": 4, "hash_ids": [1]}\n' * 4


def result_of(command: str) -> SweepResult:
    """Return the result of a command line before anything was measured."""
    _, name, *words = shlex.split(command)
    parser = parser_of(name)
    command_module(name).add_arguments(parser)
    arguments = parser.parse_intermixed_args(words)
    targets = tuple(SweepTarget(target, "http://127.0.0.1") for target in arguments.targets)
    if name == "capacity":
        plan: Plan = make_capacity_plan(capacity_of(arguments), targets, _spec(arguments))
    else:
        plan = make_plan(find_preset(arguments.preset or DEFAULT) | spec_of(arguments), targets)
    return ResultBuilder(plan, BEGAN).result


@pytest.mark.parametrize("is_measured", [False, True], ids=["nothing measured", "a level measured"])
@pytest.mark.parametrize(
    "command",
    [
        "sweep a b -c 1,4",
        "sweep a -c 1,4..64 --runs 3+",
        "sweep a -c 2 --mode steady --duration 30",
        "sweep a -c 2 --mode steady --requests 20",
        "sweep a -c 2 --requests 20",
        "sweep a -c 2 --duration 30",
        "sweep a b -c 1,2 --order abba --runs 3",
        "sweep a --pp 128,4k --tg 32",
        "sweep a --pp 64k,longest",
        "sweep a --depth 0,4k",
        "sweep a --depth 0,4k,whole",
        "sweep a --depth 0,4k --slo stream_tps=15",
        "sweep a --rate 0.5,2,arrivals=bursty",
        "sweep a --rate 0.5..4",
        "sweep a --rate auto",
        "sweep a --agents 1,4,workload=chat --duration 60",
        "sweep a --slo ttft_p90_ms=2000,stream_tps=15",
        "sweep a --preset kinds",
        "sweep a --preset interference",
        "sweep a -c 4 --leave",
        "sweep a -c 4 --timeout 20 --api completions",
        "sweep a --prompts prompts.txt -c 2",
        "sweep a --trace day.jsonl,speed=2,range=0..2",
        "sweep a --trace day.jsonl --order abba --runs 1",
        "capacity a",
        "capacity a --workload chat --most 8 --duration 200",
        "capacity a --rate --pp 2k --tg 64 --arrivals bursty",
        "capacity a --concurrency --slo ttft_p90_ms=500",
        "capacity a --preset mlperf-gpt-oss-120b",
        "capacity a --concurrency --prompts prompts.txt",
    ],
)
def test_the_command_for_a_sweep_makes_the_same_plan(
    command: str, *, is_measured: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it was interrupted before its first level ended."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prompts.txt").write_text("What is a router?\nAnd a server?\n", encoding="utf-8")
    (tmp_path / "day.jsonl").write_text(TRACE, encoding="utf-8")
    result = result_of(f"sparktop {command} --seed 7")
    again = result
    if is_measured:
        again = result.with_level("a", made_level(pp=result.plan.pp))
    found = result_of(repeat_command(again))
    assert found.plan.model_copy(update={"preset": result.plan.preset}) == result.plan
    assert (found.slo, found.capacity) == (result.slo, result.capacity)


def test_a_search_of_which_the_file_does_not_say_what_it_looked_for_has_no_command() -> None:
    """Files of earlier versions say it only from the end of the first level on."""
    assert not repeat_command(result_of("sparktop capacity a").model_copy(update={"capacity": None}))


def test_a_post_of_nothing_is_refused() -> None:
    """As a drawing of nothing is."""
    for form in ("post", "svg"):
        with pytest.raises(UsageError, match=f"--format {form}: no level was measured, there is nothing to"):
            sweep_report(result_of("sparktop capacity a"), form)
