"""The levels of the newest sweep on the page."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from sparktop.export.metrics import KEPT_S, MOST_LEVELS, NewestSweep
from sparktop.sweep.plan.plan import TargetKind
from sparktop.sweep.result.results import (
    Latency,
    LevelResult,
    LimitSide,
    PlanResult,
    Rate,
    Requests,
    SweepResult,
    TargetResult,
)
from sparktop.sweep.result.store import save
from tests.export.snapshots import series, snapshot, text, values

STARTED = datetime(2026, 1, 15, 9, 0, 0, tzinfo=UTC)
LABELS = {"target": "spark-a", "load": "c8", "prompt_tokens": "512", "depth": "0"}


def level(concurrency: int, *, limit: str = "slots", error: str | None = None) -> LevelResult:
    """Return a level with all exported figures."""
    return LevelResult(
        concurrency=concurrency,
        error=error,
        sustained_tps=Rate.of_runs([130.0]),
        decode_tps=Rate.of_runs([120.0, 130.0]),
        output_tps=Rate.of_runs([100.0, 110.0]),
        ttft_ms=Latency.of_values([100.0 + index for index in range(40)]),
        tpot_ms=Latency.of_values([20.0]),
        requests=Requests(ok=40, failed=2),
        limited_by=LimitSide(kind=limit, reason="16 of 16 run"),
    )


def result(*levels: LevelResult) -> SweepResult:
    """Return a sweep of one target."""
    target = TargetResult(name="spark-a", url="http://10.0.0.1:8000", kind=TargetKind.ENGINE, levels=levels)
    return SweepResult(started_at=STARTED, sparktop="0", plan=PlanResult(pp=512), targets=(target,))


def stored(folder: Path, name: str, found: SweepResult, at: float) -> None:
    """Write a result with this modification time."""
    save(folder / name, found)
    os.utime(folder / name, (at, at))


def test_levels_appear_as_they_end(tmp_path: Path) -> None:
    """Each finished level of the newest result has its figures in base units; a refused one has none."""
    sweep = NewestSweep(tmp_path, wall=lambda: 1000.0)
    sweep.look()
    assert list(sweep.levels) == []
    stored(tmp_path, "b.json", result(level(1)), 900.0)
    sweep.look()
    assert len(sweep.levels) == 1
    stored(tmp_path, "b.json", result(level(1), level(8), level(16, error="too long")), 950.0)
    sweep.look()
    found = values(text(snapshot(), sweep.levels))
    expected = {
        series("sweep_level_sustained_tokens_per_second", **LABELS): 130,
        series("sweep_level_decode_tokens_per_second", **LABELS): 125,
        series("sweep_level_output_tokens_per_second", **LABELS): 105,
        series("sweep_level_ttft_p50_seconds", **LABELS): 0.1195,
        series("sweep_level_tpot_mean_seconds", **LABELS): 0.02,
        series("sweep_level_failed_requests", **LABELS): 2,
        series("sweep_level_doubts", **LABELS): 0,
        series("sweep_level_limit", **LABELS, limit="slots"): 1,
    }
    assert {key: round(found[key], 6) for key in expected} == expected
    assert {dict(own)["load"] for name, own in found if name.startswith("sweep")} == {"c1", "c8"}
    assert "10.0.0.1" not in text(snapshot(), sweep.levels)


def test_old_and_damaged_results_have_no_series(tmp_path: Path) -> None:
    """Levels are removed a day after the last one; older and unreadable files are ignored."""
    now = [1000.0]
    sweep = NewestSweep(tmp_path, wall=lambda: now[0])
    stored(tmp_path, "new.json", result(level(8)), 990.0)
    stored(tmp_path, "old.json", result(level(1), level(2)), 500.0)
    sweep.look()
    assert [one.result.concurrency for one in sweep.levels] == [8]
    (tmp_path / "damaged.json").write_text("{")
    os.utime(tmp_path / "damaged.json", (999.0, 999.0))
    sweep.look()
    assert [one.result.concurrency for one in sweep.levels] == [8]
    now[0] += KEPT_S
    assert sweep.levels == ()


def test_the_number_of_levels_and_the_words_of_limits_are_bounded(tmp_path: Path) -> None:
    """At most 64 levels are exported, and an unknown limit is left out."""
    sweep = NewestSweep(tmp_path, wall=lambda: 1000.0)
    levels = [level(number, limit="http://a/word/of/another/version") for number in range(1, 200)]
    stored(tmp_path, "big.json", result(*levels), 990.0)
    sweep.look()
    assert len(sweep.levels) == MOST_LEVELS
    found = values(text(snapshot(), sweep.levels))
    assert not [name for name, _ in found if name == "sweep_level_limit"]
    assert sum(name.startswith("sweep_level") for name, _ in found) <= 9 * MOST_LEVELS
