"""The arguments of `sparktop sweep`, and what it prints while it runs.

`sparktop sweep --agents`: its options, and which contradict each other.

The options of `sparktop capacity`, and the plan that it prints before it starts.

Counts and times on the command line: one way to write them in all commands.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from msgspec.structs import replace

from sparktop.cli import command_module, main, parser_of, viewer_parser
from sparktop.commands.arguments import Parser, chosen_format
from sparktop.commands.sweep import targets as sweep_targets
from sparktop.commands.sweep.command import FORMATS, OLD_OPTIONS, add_arguments, spec_of
from sparktop.commands.sweep.run import SweepLine, level_line, progress_line
from sparktop.commands.sweep.targets import ask_first, choose_targets
from sparktop.errors import UnreachableError, UsageError
from sparktop.model.instant import TimeRange
from sparktop.model.load import Level, concurrency_point
from sparktop.model.sweep import SweepMoment, SweepStatus, SweepView
from sparktop.model.targets import BackendTarget, NodeTarget, RouterTarget, SweepSpec, Watch
from sparktop.sweep.generator.wire import Batch
from sparktop.sweep.plan.capacity import default_capacity, make_capacity_plan
from sparktop.sweep.plan.plan import SweepTarget, TargetKind
from sparktop.sweep.plan.presets import DEFAULT, find_preset, make_plan
from sparktop.sweep.result.results import LevelResult, Rate, Requests, Validity
from sparktop.sweep.run.forecast import plan_sentences
from sparktop.sweep.run.progress import Notice, PhaseChanged, ResultChanged, SweepPhase
from sparktop.watch.discovery import Found
from tests.sweep.made_results import made_sweep

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
    monkeypatch.setattr(sweep_targets, "is_here", lambda *_: False)
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
    monkeypatch.setattr(sweep_targets, "is_here", lambda *_: False)
    screen = Typed()
    monkeypatch.setattr(sys, "stdin", Typed("n\n"))
    monkeypatch.setattr(sys, "stderr", screen)
    assert main(["sweep", "127.0.0.1:1"]) == 2
    assert "http://127.0.0.1:1: neither on this machine nor in the configuration. Put load on it?" in (
        screen.getvalue()
    )


class BusyPage(BaseHTTPRequestHandler):
    """The metrics page of a server on which 29 requests of others run."""

    version = "0.32.0"

    def do_GET(self) -> None:
        """Answer with the page."""
        self.send_response(200)
        self.end_headers()
        if self.path == "/metrics":
            page = "vllm:num_requests_running{N} 29\nvllm:num_requests_waiting{N} 3\n"
            self.wfile.write(page.replace("{N}", '{model_name="m"}').encode())
        if self.path == "/version":
            self.wfile.write(f'{{"version": "{self.version}"}}'.encode())

    def log_message(self, *_: object) -> None:
        """Print nothing."""


OTHERS = "b: 29 running, 3 waiting: others' load distorts the figures"


@pytest.mark.outside
@pytest.mark.parametrize(
    ("typed", "is_sure", "version", "words"),
    [
        ("n\n", False, "0.32.0", f"sparktop: {OTHERS}. Put load on it? [y/N] "),
        (None, False, "0.32.0", f"sparktop: {OTHERS}\n"),
        ("n\n", True, "0.32.0", f"sparktop: {OTHERS}\n"),
        ("n\n", False, "0.32.0+simulated", ""),
    ],
)
def test_the_load_of_others_is_asked_about_on_a_terminal_and_else_said(
    monkeypatch: pytest.MonkeyPatch, typed: str | None, version: str, words: str, *, is_sure: bool
) -> None:
    """On a terminal a busy server is asked about; without one, or with --yes, one line names it.

    Simulated servers have the demo's own load, which pauses: nothing is said.
    """
    monkeypatch.setattr(BusyPage, "version", version)
    screen = io.StringIO() if typed is None else Typed()
    monkeypatch.setattr(sys, "stdin", io.StringIO() if typed is None else Typed(typed))
    monkeypatch.setattr(sys, "stderr", screen)
    with ThreadingHTTPServer(("127.0.0.1", 0), BusyPage) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        backend = BackendTarget("b", f"http://127.0.0.1:{server.server_port}")
        plan = make_plan(find_preset(DEFAULT), (SweepTarget("b", backend.url, known=True),))
        refused = pytest.raises(UsageError, match="nothing was sent")
        with refused if "[y/N]" in words else nullcontext():
            ask_first(plan, Watch(backends=(backend,)), is_sure=is_sure)
        server.shutdown()
    assert screen.getvalue() == words


async def test_names_of_the_configuration_are_targets() -> None:
    """Configured names are targets with their keys, machines and backends; only these are watched."""
    (proxy, spark), watch = await choose_targets(["proxy", "spark-a"], [], WATCH, "m", {})
    assert (proxy.kind, dict(proxy.backends)) == (
        TargetKind.ROUTER,
        {"spark-a": "http://10.0.0.1:8000", "spark-b": "http://10.0.0.2:8000"},
    )
    assert (spark.api_key, spark.nodes, spark.model, spark.known) == ("k", ("n1",), "m", True)
    assert {one.name for one in watch.backends} == {"spark-a", "spark-b"}
    assert [one.name for one in watch.nodes] == ["n1"]
    assert watch.interval_s == 0.5


async def test_a_url_of_the_configuration_is_its_entry() -> None:
    """A configured URL, also under another name, uses the key and machines of its entry."""
    (target,), watch = await choose_targets([], [("mine", "http://10.0.0.1:8000/v1")], WATCH, None, {})
    assert (target.name, target.api_key, target.known) == ("mine", "k", True)
    assert [one.name for one in watch.backends] == ["spark-a"]


async def test_a_misspelt_name_of_the_configuration_is_suggested(monkeypatch: pytest.MonkeyPatch) -> None:
    """A word that is no host either names the configured one that is like it, others name all."""

    async def nothing(hosts: Sequence[str]) -> Found:
        return Found(notes=(f"{hosts[0]}: the host name does not resolve; is it right?",))

    monkeypatch.setattr(sweep_targets, "discover", nothing)
    for word, end in (
        ("porxy", r" \(did you mean 'proxy'\?\)$"),
        ("elsewhere", r"right\? \(configured: spark-a, spark-b, proxy\)$"),
    ):
        with pytest.raises(UnreachableError, match=f"{word}: the host name does not resolve.*{end}"):
            await choose_targets([word], [], WATCH, None, {})


async def test_without_words_everything_watched_is_meant() -> None:
    """Without targets, all watched backends are measured, then all routers."""
    targets, _ = await choose_targets([], [], WATCH, None, {})
    assert [one.name for one in targets] == ["spark-a", "spark-b", "proxy"]


@pytest.mark.parametrize("word", ["rival", "http://10.0.0.9:4001"])
async def test_a_router_that_is_not_watched_is_a_target_where_it_is_named(word: str) -> None:
    """A router for sweeps only is a target if it is named, by name or URL, with its key and backends."""
    rival = RouterTarget("rival", "http://10.0.0.9:4001", backends=("spark-a", "spark-b"), api_key="r")
    watch = replace(WATCH, sweep_routers=(rival,))
    (target,), _ = await choose_targets([word], [], watch, None, {})
    assert (target.name, target.kind, target.api_key, target.known) == ("rival", TargetKind.ROUTER, "r", True)
    assert set(target.backends) == {"spark-a", "spark-b"}
    everything, _ = await choose_targets([], [], watch, None, {})
    assert "rival" not in {one.name for one in everything}


@pytest.mark.parametrize(
    ("asked", "file", "formats", "form"),
    [
        ("csv", "x.dat", FORMATS, "csv"),
        ("post", "x.md", FORMATS, "post"),
        (None, "x.md", FORMATS, "md"),
        (None, "x.SVG", FORMATS, "svg"),
        (None, "x.htm", FORMATS, "html"),
        (None, "x.prom", ("jsonl", "openmetrics"), "openmetrics"),
        (None, "x", FORMATS, "json"),
        (None, None, FORMATS, "json"),
        (None, "x.pdf", FORMATS, "x.pdf: the ending .pdf names no format: end the name in one of .json, "),
        (None, "x.svg", ("md", "json"), "the ending .svg names no format: end the name in one of .json, "),
        ("csv", "x.md", FORMATS, "x.md: --format csv is not what .md files hold; leave --format out for md"),
        ("md", "x.csv", ("md", "json"), "--format md is not what .csv files hold; name another file"),
    ],
)
def test_the_format_is_the_readers(
    asked: str | None, file: str | None, formats: Sequence[str], form: str
) -> None:
    """The format is as requested, else by the file's ending; one of another or of no format is refused."""
    output = None if file is None else Path(file)
    if form.isalpha():
        assert chosen_format(asked, output, formats, "json") == form
        return
    with pytest.raises(UsageError, match=re.escape(form)):
        chosen_format(asked, output, formats, "json")


LEVEL = LevelResult(
    concurrency=16,
    pp=128,
    requests=Requests(ok=46, failed=2),
    decode_tps=Rate(mean=183.4),
    validity=(Validity(code="errors", message="2 of 48"),),
)


RUNNING = Level("solo", concurrency_point(16), 128, 64)
QUICK = make_plan(find_preset(DEFAULT), [SweepTarget("solo", "http://127.0.0.1:1")])


def test_the_live_line_has_the_figures_of_the_moment() -> None:
    """The live line shows level, run, requests in flight, tok/s, TTFT, failures and time left."""
    left = TimeRange(130, 190)
    moment = SweepMoment("running", RUNNING, 2, 3, 16, 183.44, 412.0, failed=1)
    words = "solo, c = 16: run 2 of 3"
    view = SweepView("quick", SweepStatus.RUNNING, words, left=left, moment=moment)
    assert progress_line(view, 200) == (
        f"{words} · 16 in flight · 183.4 tok/s · TTFT p50 412 ms · 1 failed · 2 to 4 min left"
    )
    unknown = replace(view, moment=SweepMoment("running", RUNNING, 1))
    assert "– tok/s · TTFT p50 –" in progress_line(unknown, 200)
    settling = replace(view, words="settling", moment=SweepMoment("settling"), left=None)
    assert progress_line(settling, 200) == "settling"
    assert progress_line(view, 86) == f"{words} · 16 in flight · 183.4 tok/s · 1 failed · 2 to 4 min left"
    assert progress_line(view, 72) == f"{words} · 183.4 tok/s · 1 failed · 2 to 4 min left"


def test_elsewhere_there_is_a_line_a_level_and_no_escape() -> None:
    """Without a terminal there are only messages and a line per level, without escape sequences."""
    log = io.StringIO()
    line = SweepLine(QUICK, live=False, stream=log)
    line.take(PhaseChanged(SweepPhase.RUNNING, "solo", RUNNING, 0, 3))
    line.take(Batch("run", 1.0, 0, (), ()))
    line.take(ResultChanged(made_sweep(("solo", (LEVEL,))), "solo", LEVEL))
    assert log.getvalue() == f"sparktop: {level_line('solo', LEVEL)}\n"


def test_a_terminal_that_is_gone_ends_nothing() -> None:
    """If the terminal is gone after SIGHUP, failed writes do not end the sweep before it is saved."""
    screen = io.StringIO()
    line = SweepLine(QUICK, live=True, stream=screen)
    screen.close()
    line.take(Notice("one"))
    line.take(Notice("two"))
    assert line.stream is None


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


def test_the_plan_says_levels_time_and_end() -> None:
    """Before anything is sent, the plan states what is searched for, the levels, the duration and the end."""
    plan = make_capacity_plan(default_capacity(), [SweepTarget("s", "http://127.0.0.1:1")], SweepSpec())
    first, second = plan_sentences(plan, datetime(2026, 1, 2, 15, 0, tzinfo=UTC))
    assert first == (
        "how many agents (coder-quick)? The largest number for which first token p90 ≤ 2 s and ≥ 15 tok/s "
        "each for 90 % of the requests"
    )
    assert "first 1, then twice as much until a level fails (at most 64), then levels between, each" in second
    assert "at most" in second
    assert "ends before 15:" in second


def _parser(command: str) -> Parser:
    parser = viewer_parser() if command == "watch" else parser_of(command)
    command_module(command).add_arguments(parser)
    return parser


@pytest.mark.parametrize(
    ("words", "key", "value"),
    [
        ("sweep --pp 1k,2K", "prompt_lengths", (1024, 2048)),
        ("sweep --pp 128..1k", "prompt_lengths", (128, 256, 512, 1024)),
        ("sweep --pp 1.5k", "prompt_lengths", (1536,)),
        ("sweep --depth 0,4k,16k", "depths", (0, 4096, 16384)),
        ("sweep --duration 1m30s", "duration_s", 90.0),
        ("sweep --timeout 500ms", "timeout_s", 0.5),
        ("sweep --requests 1k", "requests", 1024),
        ("sweep --agents 1-8", "agents", (1, 2, 4, 8)),
        ("sweep -c 1,4,16..256", "concurrency", (1, 4, 16)),
        ("capacity --pp 1k", "pp", (1024,)),
        ("snapshot --seconds 1m", "seconds", 60.0),
        ("record --seconds 2h", "seconds", 7200.0),
        ("record --max-bytes 1.5GiB", "max_bytes", 3 << 29),
        ("watch --interval 500ms", "interval", 0.5),
    ],
)
def test_counts_have_k_and_times_have_units(words: str, key: str, value: object) -> None:
    """A count may be 1k, a range 1-8 or 1..8, and a time 10s or 2m, whichever command takes it."""
    command, *rest = words.split()
    assert getattr(_parser(command).parse_args(rest), key) == value
