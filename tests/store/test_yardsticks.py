"""What servers are compared with, through the store: published rates, weights, bests of earlier runs."""

from __future__ import annotations

import json
from random import Random

import pytest
from msgspec.structs import replace

from sparktop.model.event import Finding, Severity
from sparktop.model.instant import Instant
from sparktop.model.node import ModelWeights
from sparktop.model.snapshot import Kept
from sparktop.model.targets import NodeThresholds, Thresholds
from sparktop.model.yardsticks import FLAGS, PublishedRates
from sparktop.panels.board.scene import Scene
from sparktop.panels.parts.text import row_text
from sparktop.recording.records import call_of, record_of
from sparktop.report.json_snapshot import to_json
from sparktop.report.text_snapshot import render
from sparktop.store.store import Call, Change
from tests.findings.yardsticks import Server, Setup

TABLE = PublishedRates("t: one", "org/M", "vllm", "gb10", levels=((4, 200.0),))


def server_of_now() -> Server:
    return Server(Random(3))  # noqa: S311 - a simulation


def compared(server: Server) -> Finding:
    (view,) = server.store.snapshot().backends
    (found,) = (one for one in view.findings if one.kind == "yardsticks")
    return found


def test_a_servers_rate_beside_the_published_and_the_limit() -> None:
    """Percentages of the rate of now; what is not known is in the evidence alone."""
    server = server_of_now()
    server.weights = ModelWeights(2.73)
    server.store.learn(
        Kept(published=(TABLE, PublishedRates("t: two", "m", "vllm", "GB10", 2, levels=((4, 1.0),))))
    )
    server.run(120, 4)
    found = compared(server)
    tps = found.values["generation_tps"]
    assert isinstance(tps, float)
    assert found.values["published_percent"] == pytest.approx(tps / 2)
    assert found.values["limit_percent"] == pytest.approx(100 * tps / (4 * 100), rel=0.02)
    of_published, of_limit = f"{tps / 2:.0f} %", f"{found.values['limit_percent']:.0f} %"
    assert found.line == f"{of_published} of the best published rate, {of_limit} of the bandwidth limit"
    rows = dict(found.evidence)
    assert rows["own best"] == "not known: no earlier rate of this batch, version and flags is kept"
    assert rows["published"].endswith("%: table t: one")
    snapshot = server.store.snapshot()
    assert found.line in render(snapshot, 200)
    (shown,) = json.loads(json.dumps(to_json(snapshot)))["backends"]
    assert found.line in [one["line"] for one in shown["findings"]]
    assert "yardstick_basis" not in shown


def test_weights_of_no_bytes_limit_nothing() -> None:
    """Another machine may report anything: what it reads of files that are gone is unknown."""
    server = server_of_now()
    server.weights = ModelWeights(0.0)
    server.store.learn(Kept(published=(TABLE,)))
    server.run(120, 4)
    assert "set the bytes of a step" in dict(compared(server).evidence)["limit"]
    assert server.store.snapshot().backends[0].roofline_tps is None


def test_what_changed_is_whole_on_a_small_board() -> None:
    """Its best is dated in the evidence; one of the last minutes is no earlier rate."""
    server = server_of_now()
    server.run(140, 4)
    server.start(Setup(driver="580.142"))
    server.weights = ModelWeights(2.73)
    server.run(300, 4, slower=lambda _: 1.25)
    snapshot = server.store.snapshot()
    line = "steps 25 % slower than its best: driver 580.95 → 580.142"
    (slower,) = (one for one in snapshot.backends[0].findings if one.kind == "slower-than-best")
    assert slower.line == line
    assert dict(slower.evidence)["best"].endswith("tokens a step, 2026-11-03")
    shown = (*snapshot.backends, replace(snapshot.backends[0], name="c", findings=()))
    drawn = Scene(replace(snapshot, backends=shown), 80, 24).draw()
    assert any(row_text(panel.rows[-1]).startswith(f"╰─ · {line} enter ") for panel in drawn)
    assert "no earlier rate of this batch" in dict(compared(server).evidence)["own best"]


def test_slots_are_read_of_the_servers_process_and_change_with_it() -> None:
    """No page has vLLM's --max-num-seqs, and a key may hide the context: its process may have both."""
    server = server_of_now()
    for flags, slots, context in (
        ("--max-num-seqs 8,--max-model-len 4096", 8, 4096),
        ("--max-num-seqs 16,--max-model-len auto", 16, None),
        ("", None, None),
    ):
        server.start(Setup(flags=flags))
        server.run(60, 4)
        (view,) = server.store.snapshot().backends
        assert (view.slots, view.max_model_len) == (slots, context)


def test_setups_and_bests_are_kept_once_they_change() -> None:
    """The version and what the machine says; nothing more until something is better."""
    server = server_of_now()
    server.run(120, 4)
    (setup,) = server.store.yardsticks.take_changed()
    assert setup.key == ("b:8000", "vllm", "m")
    assert setup.facts == {
        "version": "0.31.0",
        FLAGS: "none",
        "model revision": "aa10",
        "kernel": "Ubuntu 24.04, Linux 6.14.0",
        "driver": "580.95",
    }
    (best,) = setup.bests
    assert (best.running, round(best.batch)) == (4.0, 4)
    server.run(60, 4, slower=lambda _: 1.1)
    assert server.store.yardsticks.take_changed() == ()
    server.start(Setup(version="0.31.0+simulated"))
    server.run(120, 4)
    assert server.store.yardsticks.take_changed() == (setup,), "of a simulated server nothing is kept"


def test_what_files_hold_is_recorded() -> None:
    """A recording gives the same bests and published rates to the store that it is played into."""
    server = server_of_now()
    server.run(120, 4)
    (setup,) = server.store.yardsticks.take_changed()
    call = Call(Change.LEARN, (Kept(setups=(setup,), published=(TABLE,)),))
    record = record_of(Instant(1.0, server.store.snapshot().taken_at), call)
    assert record is not None
    played = server_of_now()
    (read,) = (one for one in (call_of(record),) if one is not None)
    (kept,) = read.arguments
    assert isinstance(kept, Kept)
    played.store.learn(kept)
    (again,) = played.store.yardsticks.setups(setup.key)
    assert again.facts == setup.facts
    assert again.bests[0].step_ms == pytest.approx(setup.bests[0].step_ms)
    assert played.run(120, 4) is played
    assert "% of the best published rate" in compared(played).line


def slower_than_best(server: Server) -> list[Finding]:
    (view,) = server.store.snapshot().backends
    return [one for one in view.findings if one.kind == "slower-than-best"]


@pytest.mark.parametrize(("limit", "severity"), [(1.2, Severity.WARNING), (1.3, Severity.INFO)])
def test_slower_steps_are_a_warning_from_the_users_limit_on(limit: float, severity: Severity) -> None:
    """By [alerts] slow_step_ratio: steps that take a quarter longer are one at 1.2, none at 1.3."""
    server = server_of_now()
    server.store.set_thresholds(Thresholds(nodes=NodeThresholds(slow_step_ratio=limit)))
    server.run(140, 4)
    server.start(Setup(driver="580.142"))
    server.run(300, 4, slower=lambda _: 1.25)
    assert [one.severity for one in slower_than_best(server)] == [severity]
