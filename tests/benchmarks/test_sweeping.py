"""Results of the benchmark of a running sweep: goals, ratios, and its table in the README."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import sweeping
from sweeping import Measured


def made(name: str = "as it is") -> Measured:
    """Return figures with which every goal is met."""
    return Measured(
        name,
        keys_ms=[10.0] * 95 + [90.0] * 5,
        unasked_ms=[250.0],
        lag_p99_ms=[2.0, 3.0, 9.0],
        ttft_ms=[200.0],
        ttft_off_ms=[1.0],
        decode_tps=[10_000.0],
        decode_off_percent=[0.0],
    )


def test_figures_within_the_goals_are_met() -> None:
    """Of three rounds the median lag counts; no goal is missed."""
    assert sweeping.missed(made(), made("blocked")) == []


def test_each_goal_can_be_missed() -> None:
    """Slow keys, a late generator and changed figures each give a line with the value."""
    slow = replace(made(), keys_ms=[150.0] * 10)
    late = replace(made("blocked"), lag_p99_ms=[6.0], ttft_ms=[210.0], decode_tps=[9_000.0])
    lines = sweeping.missed(slow, late)
    assert len(lines) == 4
    assert "150 ms" in lines[0]
    assert "blocked: p99 of the generator's lag 6.00 ms" in lines[1]
    assert "TTFT standing still is 1.050" in lines[2]
    assert "decode standing still is 0.900" in lines[3]


def test_the_table_goes_between_its_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writing twice leaves one table, and the text around it stays."""
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n\n{sweeping.BEGIN}\nold\n{sweeping.END}\n\nafter\n")
    monkeypatch.setattr(sweeping, "README", readme)
    alone = replace(made("alone"), keys_ms=[], unasked_ms=[])
    for _ in range(2):
        sweeping.write(sweeping.table(alone, made(), made("blocked"), 2, 1))
    text = readme.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\n\nafter\n")
    assert "old" not in text
    assert text.count("| as it is |") == 1
    assert "| alone | – | – | – |" in text
    assert text.count(sweeping.BEGIN) == text.count(sweeping.END) == 1
