"""The arguments of `sparktop sweep`, and what it prints while it runs."""

from __future__ import annotations

import io
import sys

import pytest
from msgspec.structs import replace

from sparktop.cli import main
from sparktop.commands.sweep import targets as sweep_targets
from sparktop.commands.sweep.command import chosen_format
from sparktop.commands.sweep.run import SweepLine, level_line, progress_line
from sparktop.commands.sweep.targets import choose_targets
from sparktop.model.targets import BackendTarget, NodeTarget, RouterTarget, Watch
from sparktop.model.time_range import TimeRange
from sparktop.sweep.plan.plan import Load, TargetKind
from sparktop.sweep.result.results import LevelResult, Rate, Requests, Validity
from sparktop.sweep.run.progress import LevelMeasured, LoadTold, Notice, Phase, PhaseChanged, Progress

WATCH = Watch(
    nodes=(NodeTarget("n1", via="agent", url="http://10.0.0.1:9750"),),
    backends=(
        BackendTarget("spark-a", "http://10.0.0.1:8000", nodes=("n1",), api_key="k"),
        BackendTarget("spark-b", "http://10.0.0.2:8000", nodes=("n2",)),
    ),
    routers=(RouterTarget("proxy", "http://10.0.0.9:4000", backends=("spark-a", "spark-b")),),
    interval_s=1.0,
)


@pytest.mark.outside
def test_a_stranger_is_not_loaded_without_a_word(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A target on another, unconfigured machine needs --yes if no terminal is there to ask: exit code 2."""
    monkeypatch.setattr(sweep_targets, "own_hosts", frozenset)
    assert main(["sweep", "127.0.0.1:1"]) == 2
    assert "--yes" in capsys.readouterr().err


class Typed(io.StringIO):
    """A terminal with typed input."""

    def isatty(self) -> bool:
        """Return True."""
        return True


@pytest.mark.outside
def test_who_is_asked_may_say_no(monkeypatch: pytest.MonkeyPatch) -> None:
    """The question names the target; any answer but yes sends nothing."""
    monkeypatch.setattr(sweep_targets, "own_hosts", frozenset)
    screen = Typed()
    monkeypatch.setattr(sys, "stdin", Typed("n\n"))
    monkeypatch.setattr(sys, "stderr", screen)
    assert main(["sweep", "127.0.0.1:1"]) == 2
    assert "http://127.0.0.1:1: neither on this machine nor in the configuration. Put load on it?" in (
        screen.getvalue()
    )


async def test_names_of_the_configuration_are_targets() -> None:
    """Configured names are targets with their keys, machines and backends; only these are watched."""
    chosen = await choose_targets(["proxy", "spark-a"], [], WATCH, "m")
    proxy, spark = chosen.targets
    assert (proxy.kind, dict(proxy.backends)) == (
        TargetKind.ROUTER,
        {"spark-a": "http://10.0.0.1:8000", "spark-b": "http://10.0.0.2:8000"},
    )
    assert (spark.api_key, spark.nodes, spark.model, spark.known) == ("k", ("n1",), "m", True)
    assert {one.name for one in chosen.watch.backends} == {"spark-a", "spark-b"}
    assert [one.name for one in chosen.watch.nodes] == ["n1"]
    assert chosen.watch.interval_s == 0.5


async def test_a_url_of_the_configuration_is_its_entry() -> None:
    """A configured URL, also under another name, uses the key and machines of its entry."""
    chosen = await choose_targets([], [("mine", "http://10.0.0.1:8000/v1")], WATCH, None)
    (target,) = chosen.targets
    assert (target.name, target.api_key, target.known) == ("mine", "k", True)
    assert [one.name for one in chosen.watch.backends] == ["spark-a"]


async def test_without_words_everything_watched_is_meant() -> None:
    """Without targets, all watched backends are measured, then all routers."""
    chosen = await choose_targets([], [], WATCH, None)
    assert [one.name for one in chosen.targets] == ["spark-a", "spark-b", "proxy"]


@pytest.mark.parametrize("word", ["rival", "http://10.0.0.9:4001"])
async def test_a_router_that_is_not_watched_is_a_target_where_it_is_named(word: str) -> None:
    """A router for sweeps only is a target if it is named, by name or URL, with its key and backends."""
    rival = RouterTarget("rival", "http://10.0.0.9:4001", backends=("spark-a", "spark-b"), api_key="r")
    watch = replace(WATCH, sweep_routers=(rival,))
    (target,) = (await choose_targets([word], [], watch, None)).targets
    assert (target.name, target.kind, target.api_key, target.known) == ("rival", TargetKind.ROUTER, "r", True)
    assert set(target.backends) == {"spark-a", "spark-b"}
    everything = await choose_targets([], [], watch, None)
    assert "rival" not in {one.name for one in everything.targets}


@pytest.mark.parametrize(
    ("asked", "file", "is_terminal", "form"),
    [
        ("csv", "x.dat", True, "csv"),
        (None, "x.md", False, "md"),
        (None, "x.SVG", False, "svg"),
        (None, "x.out", True, "json"),
        (None, None, True, "md"),
        (None, None, False, "json"),
    ],
)
def test_the_format_is_the_readers(
    asked: str | None, file: str | None, form: str, *, is_terminal: bool
) -> None:
    """The format is as requested, else by suffix, else Markdown on a terminal and JSON in a pipe."""
    from pathlib import Path

    assert chosen_format(asked, Path(file) if file else None, is_terminal=is_terminal) == form


LEVEL = LevelResult(
    concurrency=16,
    pp=128,
    requests=Requests(ok=46, failed=2),
    decode_tps=Rate(mean=183.4),
    validity=(Validity(code="errors", message="2 of 48"),),
)


def test_the_live_line_has_the_figures_of_the_moment() -> None:
    """The live line shows level, run, requests in flight, tok/s, TTFT, failures and time left."""
    now = Progress(Phase.RUNNING, "solo", Load(128, 16), 1, 3, 16, 183.44, 412.0, 1, TimeRange(130, 190))
    assert progress_line(now) == (
        "solo · c = 16 · run 2/3 · 16 in flight · 183 tok/s · TTFT p50 412 ms · 1 failed · 2 to 4 min left"
    )
    assert "– tok/s · TTFT p50 – ms" in progress_line(Progress(Phase.RUNNING, "solo", Load(128, 16), 0))
    assert progress_line(Progress(Phase.SETTLING)) == "settling"
    assert progress_line(now, None, 79) == (
        "solo · c = 16 · run 2/3 · 16 in flight · 183 tok/s · 1 failed · 2 to 4 min left"
    )
    assert progress_line(now, None, 65) == (
        "solo · c = 16 · run 2/3 · 183 tok/s · 1 failed · 2 to 4 min left"
    )


def test_a_finished_level_is_one_line() -> None:
    """A finished level is one line, with doubts named as on the screen and in reports."""
    assert level_line("solo", LEVEL) == (
        "solo: c = 16, pp 128 · prefill – tok/s · decode 183 tok/s · TTFT mean – ms · 2 of 48 failed "
        "· warnings: errors"
    )
    without = LEVEL.model_copy(update={"decode_tps": None, "output_tps": Rate(mean=150.2)})
    assert "prefill – tok/s · output 150 tok/s · TTFT mean – ms" in level_line("solo", without)


def test_on_a_terminal_the_line_is_redrawn_in_place() -> None:
    """On a terminal the line is redrawn in place, at most five times a second; messages stand above it."""
    screen = io.StringIO()
    at = [0.0]
    line = SweepLine(live=True, width=40, stream=screen, clock=lambda: at[-1])
    line.hear(PhaseChanged(Phase.RUNNING, "solo", Load(128, 16), 0, 3))
    for moment in (0.1, 0.15, 0.21, 0.3):
        at.append(moment)
        line.hear(LoadTold("solo", Load(128, 16), ()))
    line.hear(Notice("a line\x1b[31m"))
    told = screen.getvalue()
    assert told.count("\n") == 1
    assert "sparktop: a line [31m\n" in told
    assert told.count("\r\x1b[K") == 3
    assert all(len(part) < 40 for part in told.replace("\x1b[K", "").split("\r"))


def test_elsewhere_there_is_a_line_a_level_and_no_escape() -> None:
    """Without a terminal there are only messages and a line per level, without escape sequences."""
    log = io.StringIO()
    line = SweepLine(live=False, stream=log)
    line.hear(PhaseChanged(Phase.RUNNING, "solo", Load(128, 16), 0, 3))
    line.hear(LoadTold("solo", Load(128, 16), ()))
    line.hear(LevelMeasured("solo", LEVEL, None))  # type: ignore[arg-type]  # the line does not read it
    assert log.getvalue() == f"sparktop: {level_line('solo', LEVEL)}\n"


def test_a_terminal_that_is_gone_ends_nothing() -> None:
    """If the terminal is gone after SIGHUP, failed writes do not end the sweep before it is saved."""
    screen = io.StringIO()
    line = SweepLine(live=True, stream=screen)
    screen.close()
    line.hear(Notice("one"))
    line.hear(Notice("two"))
    assert line.stream is None
