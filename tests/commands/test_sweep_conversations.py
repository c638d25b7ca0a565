"""`sparktop sweep --agents`: its options, and which contradict each other."""

from __future__ import annotations

import re

import pytest

from sparktop.cli import main
from sparktop.commands.arguments import Parser
from sparktop.commands.sweep.command import OLD_OPTIONS, add_arguments, spec_of
from sparktop.model.load import LoadKind, LoadMode
from sparktop.model.targets import SweepSpec
from sparktop.sweep.plan.plan import Plan, SweepTarget
from sparktop.sweep.plan.presets import DEFAULT, find_preset, make_plan, preset_line


def _plan(*words: str) -> Plan:
    parser = Parser("sparktop sweep", description="")
    add_arguments(parser)
    target = SweepTarget("a", "http://127.0.0.1:1")
    return make_plan(find_preset(DEFAULT) | spec_of(parser.parse_args(words)), [target])


def test_agents_follow_their_workload() -> None:
    """Points, lengths and duration are those of the workload, by default `coder-quick`."""
    plan = _plan("--agents", "1,2,4")
    assert (plan.kind, plan.mode) == (LoadKind.AGENTS, LoadMode.AGENTS)
    assert [point.label for point in plan.axis] == ["1 agent", "2 agents", "4 agents"]
    assert plan.conversations is not None
    assert (plan.conversations.name, plan.duration_s, plan.warmup) == ("coder-quick", 180.0, False)
    assert _plan("--agents", "1", "--workload", "coder", "--duration", "90").duration_s == 90


def test_old_spellings_mean_the_new_ones(capsys: pytest.CaptureFixture[str]) -> None:
    """Options of earlier versions that --help no longer shows are read as the form in its place."""
    for old, new in (
        ("--rate 1,2 --arrivals bursty", "--rate 1,2,arrivals=bursty"),
        (
            "--trace a,b.csv --trace-format azure --trace-speed 2 --trace-range 10m..1h",
            "--trace a,b.csv,format=azure,speed=2,range=10m..1h",
        ),
        ("--pp 128,64k --longest", "--pp 128,64k,longest"),
        ("--depth 0,4k --whole-prompt", "--depth 0,4k,whole"),
    ):
        parser = Parser("sparktop sweep", description="")
        add_arguments(parser)
        specs = [spec_of(parser.parse_args([*words.split(), "--seed", "1"])) for words in (old, new)]
        assert specs[0] == specs[1]
    assert main(["sweep", "--help"]) == 0
    shown = capsys.readouterr().out
    assert not [option for option in OLD_OPTIONS if f"{option} " in shown]
    assert len(set(re.findall(r"^  (?:-\w.*, )?(--[a-z-]+)", shown, re.MULTILINE)) - {"--help"}) <= 24
    assert main(["sweep", "--preset"]) == 0
    assert "c = 1, 4, 16 and on to 256" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("preset", "words"),
    [
        (SweepSpec("a", rate="0.5,1,2", prompt_lengths=(1024,)), "0.5,1,2 requests/s; 1,024 tokens in"),
        (SweepSpec("a", trace="day.csv"), "the traffic of day.csv"),
        (SweepSpec("a", agents=(2, 4), workload="chat"), "agents 2, 4; workload chat"),
        (SweepSpec("a"), "the usual load"),
    ],
)
def test_a_preset_is_listed_with_its_load(preset: SweepSpec, words: str) -> None:
    """Whatever kind of load it has: rates, recorded traffic, conversations."""
    assert preset_line(preset) == words
