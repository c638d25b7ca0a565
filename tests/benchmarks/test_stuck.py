"""A few runs of `benchmarks/stuck.py`: hangs are named in time, and healthy phases are never suspected."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import stuck


@pytest.mark.long
@pytest.mark.parametrize("phase", stuck.PHASES, ids=lambda phase: phase.name)
def test_a_phase_is_judged_rightly(phase: stuck.Phase) -> None:
    """A phase is judged correctly, with a seed that the full benchmark does not use."""
    found = stuck.play(phase, 7001)
    assert found.right, found


@pytest.mark.long
@pytest.mark.parametrize("engine", stuck.PAGES)
@pytest.mark.parametrize("noise", ["aborts", "invalid requests", "retries"])
def test_a_hang_is_named_whatever_the_http_side_counts(engine: str, noise: str) -> None:
    """The page of each engine, while clients give up, send invalid requests or try again."""
    phase = replace(stuck.PHASES[1], lasts_s=(130.0, 140.0))
    found = stuck.play(phase, 7002, engine, noise)
    assert found.right, found


@pytest.mark.long
def test_an_outcome_reaches_the_process_that_asked() -> None:
    """The benchmark plays its runs in other processes, which send their outcomes back."""
    outcome = stuck.play_job(("vLLM", "none", stuck.PHASES[1].name, 7001, (130.0, 140.0)))
    assert outcome.right
    assert pickle.dumps(outcome)


def test_the_table_counts_what_was_wrong() -> None:
    """The table counts hangs that are named too late and healthy runs that are suspected."""
    hang, healthy = stuck.PHASES[0], stuck.PHASES[-1]
    late = stuck.Outcome(hang, 1, suspected_s=61.0, stuck_s=140.0, ended=True)
    false = replace(late, phase=healthy, suspected_s=70.0, stuck_s=None)
    lines = stuck.table([late, false])
    assert "| 1 | 0 | 0 | 1 | ≤ 61 s | ≤ 140 s | 0 of 1 |" in lines[2]
    assert lines[-1] == "0 of 1 hangs were named in time and ended; 1 of 1 healthy runs were suspected."
