"""Figures reach the view by typed fields, and each history gets its point."""

from __future__ import annotations

import re
from pathlib import Path

from sparktop import store
from sparktop.model.snapshot import BackendHistory, BackendView
from sparktop.rates import Window
from sparktop.store.figures import drawn

VIEW = BackendView("a", "http://127.0.0.1:8000", "a")


def test_each_history_gets_its_point() -> None:
    """A history without a point would stay an empty graph."""
    points = drawn(VIEW, Window(), 1.0)
    assert {*points, "step_ms"} == set(BackendHistory.__struct_fields__)


def test_the_store_hides_no_type() -> None:
    """A figure in a dictionary of Any, or in a field that is read by its name, is not checked by mypy."""
    modules = sorted(Path(store.__path__[0]).rglob("*.py"))
    assert modules
    assert [one.name for one in modules if re.search(r"\bAny\b|\bgetattr\(", one.read_text())] == []
