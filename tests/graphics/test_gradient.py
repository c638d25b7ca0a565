"""Mixing, gradients and contrast of colours."""

from __future__ import annotations

import pytest

from sparktop.colors.mixing import contrast, mix, ramp


def test_mixing_goes_from_one_colour_to_the_other() -> None:
    """0 gives the first colour, 1 the second, values in between a mixture; others are clipped."""
    assert [mix("#000000", "#ff8000", t) for t in (-1, 0, 0.5, 1, 2)] == [
        "#000000",
        "#000000",
        "#804000",
        "#ff8000",
        "#ff8000",
    ]


def test_a_ramp_passes_every_colour() -> None:
    """A gradient starts and ends with its outer colours and passes the inner ones."""
    assert ramp(["#000000", "#ff0000", "#ffffff"], 5) == [
        "#000000",
        "#800000",
        "#ff0000",
        "#ff8080",
        "#ffffff",
    ]
    assert ramp(["#123456"], 3) == ["#123456"] * 3
    assert ramp(["#000000", "#ffffff"], 1) == ["#000000"]
    assert ramp(["#000000"], 0) == []


@pytest.mark.parametrize("n", [1, 2, 7, 16])
def test_a_ramp_has_as_many_steps_as_asked(n: int) -> None:
    """A gradient has the requested number of steps, however many colours."""
    assert len(ramp(["#000000", "#ff0000", "#00ff00", "#ffffff"], n)) == n


def test_contrast_is_that_of_the_guideline() -> None:
    """Contrast is that of WCAG: 21 for black on white, 4.5 for #767676 on white, in any order."""
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#777777") == pytest.approx(1)
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01)
    assert contrast("#ffffff", "#767676") == contrast("#767676", "#ffffff")


@pytest.mark.parametrize("color", ["red", "#12345", "123456", "#12345g", ""])
def test_other_spellings_are_refused(color: str) -> None:
    """Only "#rrggbb" is accepted."""
    with pytest.raises(ValueError, match=r"."):
        mix(color, "#000000", 0.5)


def test_a_ramp_of_nothing_is_refused() -> None:
    """A gradient without colours is refused."""
    with pytest.raises(ValueError, match="at least one"):
        ramp([], 3)
