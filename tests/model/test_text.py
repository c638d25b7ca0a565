"""Names of letters that look like nothing."""

from __future__ import annotations

import pytest

from sparktop.model.text import clean

NAMES = ["\u2800", "\u2800\u2800", "\u3164", " \u3164 ", "\uffa0", "\u1160\u115f", "\u17b4"]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_looks_like_nothing_is_named(name: str) -> None:
    """A name of blank letters would be an empty row; it is shown as what it is."""
    assert clean(name).startswith("(blank: U+")
    assert clean(f"a{name}b").startswith("a")
