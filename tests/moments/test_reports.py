"""Reports of a recording in every format: contents, privacy, hostile names, the command, a browser."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from sparktop.cli import main
from sparktop.graphics.cells import cell_width
from sparktop.model.balance import Balance
from sparktop.model.event import Alert, Event, Severity
from sparktop.model.snapshot import Snapshot
from sparktop.moments import moment as reading
from sparktop.moments.moment import Moment, Point, SweepSpan, moment_of
from sparktop.moments.report import FORMATS, moment_report
from sparktop.recording.frames import FrameReader, FrameWriter, Record, RecordKind, encode
from sparktop.recording.past import PastPicture
from sparktop.report.document.document import wrap_markdown
from sparktop.report.privacy import Privacy
from tests.browser.chromium import PROGRAM, chromium
from tests.dump.conftest import instant, page, written
from tests.moments.conftest import OUTAGE_S, PLAYED_S, Recorded, wall
from tests.report.html_page import Page
from tests.report.test_formats import PLAIN, READER, kinds
from tests.sweep.formats.test_page_in_browser import BACKGROUND, assert_whole

pytestmark = [pytest.mark.outside, pytest.mark.long]

CUT_TABLES = """[...document.querySelectorAll('.table')]
    .filter(box => box.scrollWidth > box.clientWidth + 1).length"""
KEY = ["backend", "spark-b", "running"]
PAGE = "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running {}\n"
HOSTILE = (
    "\x1b[2J\x07red\u202e",
    "<script>alert(1)</script>",
    "a|b `c` **d** _e_",
    "```",
    '"><img src=x onerror=alert(1)>',
    "</title></style><style>*{display:none}",
    "[link](http://evil.example) @everyone",
    "=1+1",
)


@pytest.fixture(scope="module")
def moment(recorded: Recorded) -> Moment:
    """Return the moment of the whole recording."""
    return recorded.moment()


def test_markdown_fits_a_forum_and_says_everything(moment: Moment) -> None:
    """Markdown has tables of at most 100 columns and all sections, within the length of a forum post."""
    text = moment_report(replace(moment, source="swing.rec.zst"), "md")
    assert text.startswith("## sparktop report (simulated)\n\n**")
    shown = wrap_markdown(text, 80)
    assert max(map(cell_width, shown.splitlines())) <= 100
    assert shown.split() == text.split()
    assert len(text) < 20_000
    for words in (
        "2026-01-15 09:00:01 to 09:02:40 UTC (2 min 39 s) · 2 servers, 2 machines, 1 router",
        "- `proxy`: **oscillating**, 09:00:50 to",
        "### Figures of the servers",
        "| Generated tok/s | `spark-a` |",
        "### The minute before and after",
        "- At 09:",
        "**critical** `spark-a`: ",
        "### Marks",
        "``new `prompt` <b>``",
        "`openai/gpt-oss-120b`",
        "`NVIDIA DGX Spark`",
        "`litellm 1.106.2`",
        "judged again from what was recorded",
    ):
        assert words in re.sub(r"\s+", " ", text), words
    assert "p50 (s):" not in text  # beside figures in ms


def test_a_page_has_plots_with_units_names_and_lines_at_events(moment: Moment) -> None:
    """The HTML needs no script or request; plots name units and servers, and mark events with words."""
    text = moment_report(moment, "html")
    found = Page(text)
    assert found.tags.isdisjoint({"script", "link", "img", "iframe", "object"})
    assert not re.search(r"(?:src|href|url)\s*[=(]", text)
    titles = re.findall(r'class="title">([^<]*)<', text)
    assert titles[:2] == ["Generated (tok/s)", "Running (requests)"]
    assert "Tests behind <code>proxy</code>: oscillating" in text
    assert all(re.search(r"\([^)]+\)$", title) for title in titles)
    first = text[text.index("<figure>") : text.index("</figure>")]
    assert re.findall(r'class="label">([^<]*)<', first) == ["spark-a", "spark-b"]
    assert re.search(r'class="event critical"><title>09:02:1\d spark-a: ', first)
    assert re.search(r'class="event marked"><title>09:01:30 new `prompt` &lt;b&gt;<', first)


def test_json_and_csv_hold_the_same_values(moment: Moment) -> None:
    """JSON and CSV have the same values with units and times; JSON has verdicts with their rules."""
    body = json.loads(moment_report(moment, "json"))
    assert (body["schema"], body["simulated"]) == ("sparktop.moment/1", True)
    assert [one["name"] for one in body["backends"]] == ["spark-a", "spark-b"]
    swing = next(one for one in body["verdicts"] if one["verdict"] == "oscillating")
    assert swing["evidence"]["rules"][0]["checks"][0]["at_least"] == 45
    rows = list(csv.DictReader(io.StringIO(moment_report(moment, "csv"))))
    series = next(one for one in body["series"] if [one[key] for key in ("source", "name", "figure")] == KEY)
    own = [row for row in rows if [row[key] for key in ("source", "name", "figure")] == KEY]
    assert [float(row["value"]) for row in own if row["value"]] == [
        one for one in series["values"] if one is not None
    ]
    assert datetime.fromisoformat(own[0]["time"]).timestamp() == pytest.approx(series["times"][0], abs=0.001)
    figures = body["backends"][1]["figures"]["running"]
    known = [one for one in series["values"] if one is not None]
    assert (figures["min"], figures["max"], figures["last"]) == (min(known), max(known), known[-1])


def test_a_recording_of_a_second_and_one_of_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A recording of a second or of nothing has a report in every format; nothing cannot be drawn."""
    short = written(tmp_path / "a", [page(1.0, PAGE.format(3)), page(2.0, PAGE.format(4))])
    empty = written(tmp_path / "b", [])
    for path, drawn in ((short, 0), (empty, 2)):
        for form in FORMATS:
            assert main(["report", str(path), "--format", form]) == (drawn if form == "svg" else 0)
    assert "nothing to draw" in capsys.readouterr().err


def test_a_balance_that_was_never_judged_is_named_with_the_reason(moment: Moment) -> None:
    """A report must not sound as if all were well where a verdict takes longer than the range."""
    why = "watched for 8 s: a verdict takes at least 45 s"
    unknown = Balance("proxy", ("a", "b"), reasons=(why,))
    young = replace(moment, spells=(), shown=replace(moment.shown, balance=(unknown,)))
    words = f"balance of `proxy`: {Balance('proxy', ()).title} ({why})"
    assert words in " ".join(moment_report(young, "md", Privacy()).split())
    assert "balance of `" not in moment_report(moment, "md", Privacy())


def test_no_alert_after_a_short_time_is_no_clean_bill(recorded: Recorded) -> None:
    """A report says, as a snapshot does, that its alerts were not watched for as long as many need."""
    for end, is_said in ((30.0, True), (120.0, False)):
        text = moment_report(recorded.moment(None, end), "md", Privacy())
        assert (" s only; many need a minute)**" in text) is is_said


@pytest.mark.parametrize("running", [2.0, None])
def test_a_server_whose_rate_is_unknown_while_it_answers_is_not_called_silent(
    moment: Moment, running: float | None
) -> None:
    """Only without any figure it did not answer, and adds 0; else that time is left out of the mean."""
    at = moment.detail.timestamp()
    rates = (Point(at, 10.0), Point(at + 1, None))
    series = {
        ("backend", "a", "generation_tps"): rates,
        ("backend", "a", "running"): (Point(at, 2.0), Point(at + 1, running)),
    }
    line = moment_report(replace(moment, series=series), "md").splitlines()[2]
    silent = "5.0 tok/s on average (a server that does not answer counts as 0);"
    assert (silent if running is None else "10.0 tok/s on average;") in line


def hostile_moment(names: Sequence[str], snapshot: Snapshot) -> Moment:
    """Return a moment whose servers, machines, group and messages have hostile names."""
    backends = tuple(replace(snapshot.backends[1], name=name, model=name, group=name) for name in names)
    nodes = tuple(replace(snapshot.nodes[0], name=name) for name in names)
    now = snapshot.taken_at
    shown = replace(
        snapshot,
        backends=backends,
        nodes=nodes,
        balance=tuple(replace(one, group=names[0], reasons=tuple(names)) for one in snapshot.balance),
        alerts=tuple(Alert(f"backend:{name}:x", Severity.CRITICAL, name, name, now) for name in names),
        events=tuple(Event(now, Severity.WARNING, name, name) for name in names),
    )
    found = moment_of(PastPicture(shown))
    return replace(
        found,
        marks=tuple((now, name) for name in names),
        sweeps=tuple(SweepSpan(now, None, name) for name in names),
        source=names[1],
        damage=(names[1],),
    )


def test_hostile_names_stay_text(recorded: Recorded) -> None:
    """Hostile names are text in HTML, Markdown and spreadsheets, without control characters."""
    moment = hostile_moment(HOSTILE, recorded.live[OUTAGE_S - 10])
    text = moment_report(moment, "md")
    assert kinds(text) <= PLAIN | {"softbreak"}
    assert {token.type for token in READER.parse(text)}.isdisjoint({"html_block"})
    assert not any(token.type == "fence" for token in READER.parse(text))
    found = Page(moment_report(moment, "html"))
    assert found.tags.isdisjoint({"script", "img"})
    assert not any(name.startswith("on") for name, _ in found.attributes)
    for form in FORMATS:
        report = moment_report(moment, form)
        assert not set(report) & {"\x1b", "\x07", "\u202e"}, form
    names = {row["name"] for row in csv.DictReader(io.StringIO(moment_report(moment, "csv")))}
    assert not any(name.startswith("=") for name in names)


@pytest.mark.parametrize("form", FORMATS)
def test_addresses_are_shown_on_request_only(moment: Moment, form: str) -> None:
    """Addresses of servers, routers and machines are shown on request only, also within messages."""
    assert "192.168.100" not in moment_report(moment, form)
    if form in {"md", "html", "json"}:
        assert "http://192.168.100.11:8000" in moment_report(moment, form, Privacy(addresses=True))


def test_an_anonymous_report_has_no_name_path_or_address(recorded: Recorded) -> None:
    """An anonymous report has aliases; no name, path, address, message or reason gets through."""
    shown = recorded.live[OUTAGE_S - 10]
    words = "canary-a on Canary-N read /home/canary/m of canaryuser@canary-host:8000"
    words += " and 10.9.8.7, token=canary, canaryuser in -v x:/home/canary3"
    now = shown.taken_at - timedelta(seconds=1)
    backend = replace(shown.backends[1], name="canary-a", url="http://canary-host:8000")
    backend = replace(backend, model="/srv/canary/gpt-oss", group="canary-g")
    identity = replace(shown.nodes[0].identity, hostname="canary-dgx", addresses=("10.9.8.7",))
    changed = replace(
        shown,
        backends=(backend,),
        nodes=(replace(shown.nodes[0], name="canary-n", identity=identity),),
        routers=tuple(replace(one, name="canary-r") for one in shown.routers),
        balance=(replace(shown.balance[0], group="canary-g", reasons=(words,), router="canary-r"),),
        alerts=(Alert("node:canary-n:x", Severity.WARNING, "canary-n", f"canary-dgx: {words}", now),),
        events=(Event(now, Severity.WARNING, "canary-a", words, {}, None, "backend:canary-a:x"),),
    )
    moment = replace(
        moment_of(PastPicture(changed)), marks=((now, words),), sweeps=(SweepSpan(now, None, words),)
    )
    for form in FORMATS:
        text = moment_report(moment, form, Privacy(anonymous=True))
        assert "canary" not in text
        assert "10.9.8.7" not in text
        assert "backend-1" in text
        if form in {"md", "html", "json"}:
            for alias in ("node-1", "router-1", "group-1", "gpt-oss", "(path)", "(address)", "(secret)"):
                assert alias in text, alias
    default = moment_report(moment, "md")
    assert "10.9.8.7" not in default
    assert "canary-host" not in default
    assert "canary-a" in default


def test_the_command_reads_times_and_refuses_what_does_not_fit(
    recorded: Recorded, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Times may be relative; options for sweeps, unknown times and other formats are refused in one line."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    path = str(recorded.path)
    output = tmp_path / "out.json"
    assert main(["report", path, "--from", "60s ago", "--to", "20s ago", "-o", str(output)]) == 0
    body = json.loads(output.read_text(encoding="utf-8"))
    assert body["recording"] == "swing.rec.zst"
    assert datetime.fromisoformat(body["to"]) == wall(PLAYED_S - 20 + 0.35)
    whole = recorded.path.read_bytes()
    (tmp_path / "begin.rec.zst").write_bytes(b"\xff\xff" + whole[2:])
    assert main(["report", "begin.rec.zst", "-o", str(output)]) == 0  # its further frames are whole
    (tmp_path / "all.rec.zst").write_bytes(bytes(byte ^ 255 for byte in whole))
    assert main(["compare", "all.rec.zst"]) == 2
    assert "is a recording, not the result of a sweep" in capsys.readouterr().err
    for words, reason in (
        (("all.rec.zst",), "nothing in it can be read"),
        ((path, "--format", "llama-benchy"), "is for sweeps"),
        ((path, "--target", "a"), "is for sweeps"),
        ((path, "--from", "soon"), "is not a time"),
        ((path, "--from", "2020-01-01", "--to", "2020-01-02"), "nothing was recorded then"),
        (("last", "--from", "1m"), "holds no sweep"),
        (("ref:spark-topologies-2026-03", "--from", "1m"), "is no recording: leave out --from"),
        (("ref:spark-topologies-2026-03", "--to", "1m"), "is no recording: leave out --from"),
    ):
        assert main(["report", *words]) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert reason in printed.err
        assert printed.err.count("\n") == 1


def test_sweeps_dropped_readings_and_odd_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The load of a sweep and dropped readings are reported; records with wrong types are ignored."""
    records = [page(float(at), PAGE.format(at)) for at in range(1, 31)]
    odd: tuple[tuple[RecordKind, dict[str, object]], ...] = (
        (RecordKind.SWEEP, {"begin_own_load": ["a", "b"]}),
        (RecordKind.SWEEP, {"begin_own_load": ["c"]}),  # more of what the sweep loads is watched now
        (RecordKind.SWEEP, {"end_own_load": ["a", "b", "c"]}),
        (RecordKind.SWEEP, {"begin_own_load": {"a": 1}}),
        (RecordKind.SWEEP, {"begin_own_load": [None, ["x"]]}),
        (RecordKind.LAG, {"dropped": 7}),
        (RecordKind.LAG, {"dropped": "many"}),
        (RecordKind.MARK, {"word": ["no", "text"]}),
        (RecordKind.MARK, {}),
    )
    records += [Record(kind, instant(31.0 + at), fields=fields) for at, (kind, fields) in enumerate(odd)]
    path = written(tmp_path / "a", records)
    assert main(["report", str(path), "--format", "json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert body["dropped"] == 7
    assert [(one["what"], one["to"] and one["to"][11:19]) for one in body["sweeps"]] == [
        ("load on a, b", "09:00:33"),
        ("load on None, ['x']", None),
    ]
    assert [one["word"] for one in body["marks"]] == ["['no', 'text']", ""]
    for form in FORMATS:
        assert main(["report", str(path), "--format", form]) == 0


def rewritten(path: Path, source: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """Write a copy of a recording with `change` applied to the JSON of its heads."""
    data, frame = b"", FrameWriter(3)
    with source.open("rb") as file:
        for record, _ in FrameReader(file.fileno()).records():
            if record.kind == RecordKind.HEAD:
                data += frame.end() if data else b""
                frame, body = FrameWriter(3), json.loads(record.body)
                change(body)
                data += frame.add(encode(replace(record, body=json.dumps(body).encode())))
            else:
                data += frame.add(encode(record))
    path.write_bytes(data + frame.end())
    return path


def test_odd_heads_do_no_harm(recorded: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Heads with odd times or unknown verdicts cause no error."""

    def change(body: dict[str, Any]) -> None:
        for event in body["events"]:
            event["at"] = "9999-12-31T23:59:59Z"
        for alert in body["alerts"]:
            alert["since"] = "9999-12-31T23:59:59Z"
        body["verdicts"] = {"\x1b[2J<b>": ["<i>" * 50, 1e9], "g": ["oscillating", 0.0]}

    path = rewritten(tmp_path / "odd.rec.zst", recorded.path, change)
    monkeypatch.setattr(reading, "SHORT_S", 20.0)
    moment = dataclasses.replace(recorded, path=path).moment(start=1.0)
    assert moment.events
    reports = {form: moment_report(moment, form) for form in FORMATS}
    assert all(text and "\x1b" not in text for text in reports.values())
    assert kinds(reports["md"]).isdisjoint({"html_inline"})


@pytest.mark.skipif(PROGRAM is None, reason="no chromium on PATH (Debian, Ubuntu: apt install chromium)")
async def test_a_report_is_whole_on_a_phone_a_desk_and_paper(recorded: Recorded, tmp_path: Path) -> None:
    """No console message, foreign request or overflow; plots are legible, and it prints on few pages."""
    path = tmp_path / "moment.html"
    path.write_text(moment_report(recorded.moment(), "html"), encoding="utf-8")
    address = path.as_uri()
    async with chromium() as new_tab:
        tab = await new_tab()
        light, dark = ("light", "rgb(247, 248, 250)"), ("dark", "rgb(14, 18, 23)")
        for width, (scheme, color) in ((375, light), (1200, dark), (1280, dark), (1450, light)):
            await tab.begin(width, 900, is_phone=width < 500, scheme=scheme)
            await tab.open(address)
            await assert_whole(tab, address, 9)
            assert await tab.value(BACKGROUND) == color
            assert await tab.value(CUT_TABLES) == 0 or width < 1000
        pdf = await tab.printed()
        assert 1 <= pdf.count(b"/Type /Page\n") <= 8
