"""Text has exactly the width in cells that was requested."""

from __future__ import annotations

from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from sparktop.graphics.cells import cell_width, fit, fit_name

TEXT = st.text(alphabet="abc…é日本한ｱ👍\u0301\u093e\u200b ", max_size=12)


@pytest.mark.parametrize(
    ("text", "cells"),
    [
        ("", 0),
        ("llama", 5),
        ("日本", 4),
        ("e\u0301", 1),
        ("ｱ", 1),
        ("…–·█", 4),
        ("👍🏽", 2),
        ("\u1112\u1161\u11ab", 2),
        ("a\x1bb", 2),
        ("\u200b", 0),
    ],
)
def test_widths_are_those_of_a_terminal(text: str, cells: int) -> None:
    """Wide characters have two cells, combining and invisible ones none, all others one."""
    assert cell_width(text) == cells


@pytest.mark.parametrize(
    "first", [0x20, 0xA1, 0x370, 0x900, 0x1100, 0x2010, 0x2500, 0x2800, 0x3041, 0xAC00, 0x1F300]
)
def test_widths_agree_with_the_library_that_lays_out_the_screen(first: int) -> None:
    """For many scripts the width equals that computed by Rich."""
    for char in map(chr, range(first, first + 95)):
        if char.isprintable():
            assert cell_width(char) == cell_len(char), hex(ord(char))


@settings(max_examples=100, deadline=None)
@given(TEXT, st.integers(-1, 14), st.sampled_from(["left", "right", "center"]))
def test_fit_gives_exactly_the_width(
    text: str, width: int, align: Literal["left", "right", "center"]
) -> None:
    """Any text gets the requested width, and is complete if it fits."""
    fitted = fit(text, width, align)
    assert cell_width(fitted) == max(0, width)
    if 0 < width >= cell_width(text):
        assert text in fitted


@pytest.mark.parametrize(
    ("text", "width", "fitted"),
    [
        ("llama", 5, "llama"),
        ("llama", 4, "lla…"),
        ("llama", 1, "…"),
        ("日本語", 4, "日 …"),
        ("日本語", 5, "日本…"),
        ("e\u0301e\u0301e\u0301", 2, "e\u0301…"),
    ],
)
def test_cut_text_says_so(text: str, width: int, fitted: str) -> None:
    """Cut text ends in an ellipsis; half a wide character becomes a space; accents stay on their letters."""
    assert fit(text, width) == fitted


def test_padding_goes_where_it_belongs() -> None:
    """Text can be aligned left, right or centred."""
    assert [fit("ab", 5, "left"), fit("ab", 5, "right"), fit("ab", 5, "center")] == [
        "ab   ",
        "   ab",
        " ab  ",
    ]


@pytest.mark.parametrize(
    ("name", "width", "fitted"),
    [
        ("spark-a", 8, "spark-a "),
        ("spark-alpha", 8, "spark-a…"),
        ("spark-a@before", 8, "a@before"),
        ("spark-a@before", 16, "spark-a@before  "),
        ("机器@x", 3, " @x"),
        ("a@b", 0, ""),
    ],
)
def test_a_name_keeps_its_suffix(name: str, width: int, fitted: str) -> None:
    """The end of a name, which distinguishes the sides of a comparison, is kept."""
    assert fit_name(name, width).strip() == fitted.strip()
    assert cell_width(fit_name(name, width)) == width
