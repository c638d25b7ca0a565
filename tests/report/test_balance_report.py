"""The balance of groups in the reports."""

from __future__ import annotations

import json
import re

import pytest
from msgspec.structs import replace

from sparktop.model.balance import Balance, BalanceWord, Curve, StepTime, Swing
from sparktop.model.snapshot import Snapshot
from sparktop.report import html, markdown
from sparktop.report.json_snapshot import to_json
from sparktop.report.text_snapshot import render
from tests.store.fed_traces import Pair, looks

PROMISED = (
    *("group", "backends", "verdict", "confidence", "since", "window_s", "sample_hz", "dispersion_z"),
    *("period_s", "lead_changes_per_min", "starved_percent", "lost_percent", "reasons", "hint"),
)


@pytest.fixture(scope="module")
def swinging() -> Snapshot:
    return [*Pair().play(looks("leastbusy-c16"), life_s=3.6)][-1]


def test_json_has_what_the_schema_promised_and_the_evidence(swinging: Snapshot) -> None:
    """Every promised key is there, with the figures behind the verdict beside them."""
    (found,) = json.loads(json.dumps(to_json(swinging), allow_nan=False))["balance"]
    assert set(PROMISED) <= found.keys()
    assert (found["group"], found["verdict"], found["verdict_now"]) == ("proxy", "oscillating", "oscillating")
    assert found["backends"] == ["spark-a", "spark-b"]
    assert found["since"].startswith("2026-01-01T00:00:") and found["since"].endswith("Z")  # noqa: PT018 - one time
    assert 5 <= found["period_s"] <= 6.5
    assert found["starved_percent"].keys() == found["requests_share"].keys() == {"spark-a", "spark-b"}
    assert sum(found["requests_share"].values()) == pytest.approx(1.0, abs=1e-5)
    assert found["errors"] == {"spark-a": 0, "spark-b": 0}
    assert (found["e2e_s"], found["strategy"], found["lanes_of"]) == (3.6, "least-busy", None)
    assert found["swing"]["score"] > 0
    assert any(rule["holds"] for rule in found["rules"] if rule["name"] in {"rhythm", "turns", "herds"})
    (score,) = (
        check
        for rule in found["rules"]
        for check in rule["checks"]
        if (rule["name"], check["name"]) == ("rhythm", "rhythm score")
    )
    assert score == {
        "name": "rhythm score",
        "value": found["swing"]["score"],
        "unit": None,
        "at_least": 1.0,
        "holds": True,
        "missing": None,
    }
    assert found["step_time"]["base_ms"] > 0
    assert found["sample_hz"] == pytest.approx(4.0, abs=0.1)


def test_json_of_a_group_of_which_nothing_is_known() -> None:
    """Unknown figures are null, and none of the keys is missing."""
    empty = Pair().look()
    (found,) = json.loads(json.dumps(to_json(empty), allow_nan=False))["balance"]
    assert set(PROMISED) <= found.keys()
    assert (found["verdict"], found["period_s"], found["requests"], found["swing"]) == ("unknown",) + (
        None,
    ) * 3
    assert found["reasons"] == ["no backend reports its load"]


def test_json_has_no_infinities_and_no_escapes() -> None:
    """The infinite steadiness of a skew that never changes is null; names have no escapes."""
    hostile = Balance(
        "\x1b[2Jproxy",
        ("a\n", "b"),
        steadiness=float("inf"),
        mean_load={"a\x07": float("nan")},
        step_time=StepTime(0.02, 0.001, 30),
        swing=Swing("a", spectrum=Curve((1.0,), (0.5,))),
    )
    shown = replace(Pair().look(), balance=(hostile,))
    text = json.dumps(to_json(shown), allow_nan=False)
    (found,) = json.loads(text)["balance"]
    assert (found["group"], found["steadiness"], found["mean_load"]) == ("[2Jproxy", None, {"a": None})
    assert "spectrum" not in text


@pytest.mark.parametrize("width", [60, 100])
def test_plain_text_says_the_word_and_why(swinging: Snapshot, width: int) -> None:
    """One line has the verdict and its figures, the reasons follow, cause and hint come last."""
    text = render(swinging, width)
    assert max(map(len, text.splitlines())) <= width
    flat = " ".join(text.split())
    assert re.search(r"balance of proxy: oscillating · since 00:00:(4\d|5[0-5]) UTC · period", flat)
    assert "polled 4 times a second · strategy least-busy" in flat
    assert "spark-a and spark-b swing against each other every" in flat
    assert "hint: try simple-shuffle or round-robin" in flat


def test_tables_have_the_group(swinging: Snapshot) -> None:
    """Markdown and HTML show the verdict with its figures, and the reasons as a list."""
    shown = markdown.render(swinging)
    assert "### Balance" in shown
    assert "oscillating" in shown
    assert "### Why this balance" in shown
    assert max(map(len, (line for line in shown.splitlines() if line.startswith("|")))) <= markdown.WIDTH
    page = html.render(swinging, "<svg></svg>")
    assert '<td class="word oscillating">oscillating</td>' in page
    assert "Why this balance" in page


def test_without_groups_nothing_is_said() -> None:
    """A report of one server does not mention balance."""
    alone = Pair(router=None, backends=("a",)).look()
    assert "alance" not in render(alone, 100) + markdown.render(alone)
    assert to_json(alone)["balance"] == []


def test_the_word_of_a_group_is_the_announced_one(swinging: Snapshot) -> None:
    """While a verdict is being withdrawn, the report has the one that still holds and that of the window."""
    held = replace(swinging.balance[0], word_now=BalanceWord.BALANCED)
    (found,) = json.loads(json.dumps(to_json(replace(swinging, balance=(held,)))))["balance"]
    assert (found["verdict"], found["verdict_now"]) == ("oscillating", "balanced")


def test_json_has_the_events(swinging: Snapshot) -> None:
    """What began and ended is listed with its time, its gravity and its figures."""
    (event,) = json.loads(json.dumps(to_json(swinging), allow_nan=False))["events"]
    assert event.keys() >= {"at", "severity", "subject", "message", "values"}
    assert (event["severity"], event["subject"]) == ("warning", "proxy")
    assert event["at"].startswith("2026-01-01T00:00:")
    assert event["values"]["verdict"] == "oscillating"
    assert event["values"]["window_s"] > 0


def test_no_list_explains_another_word_than_the_one_above_it(swinging: Snapshot) -> None:
    """Before an announcement the window's verdict is shown; during a withdrawal, both are."""
    one = swinging.balance[0]
    early = replace(swinging, balance=(replace(one, word=BalanceWord.UNKNOWN),))
    text = " ".join(render(early, 100).split())
    assert "balance of proxy: oscillating in the newest window, not announced yet" in text
    assert "unknown" not in text.partition("balance of")[2]
    table = markdown.render(early).partition("### Balance")[2].partition("###")[0]
    assert "unknown" not in table
    assert "oscillating" in table
    late = replace(swinging, balance=(replace(one, word_now=BalanceWord.BALANCED),))
    assert "proxy: oscillating (newest window: balanced)" in " ".join(render(late, 100).split())
    assert max(map(len, (line for line in markdown.render(late).splitlines() if line[:1] == "|"))) <= 100


def test_rates_say_how_much_they_cover(swinging: Snapshot) -> None:
    """The text, the Markdown and the page name the span of the rates that they show."""
    assert "rates of the last 10 s" in render(swinging, 100)
    short, long = swinging.backends
    few = replace(swinging, backends=(replace(short, rate_window_s=2.2), long))
    assert "rates of the last 2.2 to 10 s" in render(few, 100)
    assert "_Token rates of the last 2.2 to 10 s, latencies" in markdown.render(few)
    assert "Token rates are of the last 2.2 to 10 s, latencies" in html.render(few, "<svg></svg>")
    assert to_json(few)["backends"][0]["rate_window_s"] == 2.2  # type: ignore[index]  # plain values


def test_a_loss_is_known_or_says_why_not_and_what_it_was() -> None:
    """In each snapshot of a swing the loss or the reason is there; after a known loss also that one."""
    last: float | None = None
    for snapshot in Pair().play(looks("cooldown-c64"), life_s=19.0):
        for one in snapshot.balance:
            if one.word.bad:
                assert (one.lost_percent is None) == (one.lost_unknown is not None)
                assert one.lost_before_percent == (last if one.lost_percent is None else None)
            last = one.lost_percent if one.lost_percent is not None else last
    assert last is not None
