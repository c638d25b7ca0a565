"""The verdict as a word and as a line, also where its newest window contradicts it."""

from __future__ import annotations

import pytest

from sparktop.model.balance import Balance, BalanceWord
from sparktop.panels.group.panel import edge_verdict
from sparktop.panels.group.verdict import value_line, verdict_line, verdict_pieces, word_run
from sparktop.panels.parts.text import row_text

PAIR = ("spark-a", "spark-b")


def group(word: BalanceWord, now: BalanceWord, router: str | None = "proxy", **more: object) -> Balance:
    return Balance("proxy", PAIR, word, now, router=router, **more)  # type: ignore[arg-type]  # any field


@pytest.mark.parametrize(
    ("word", "now", "router", "run"),
    [
        (BalanceWord.BALANCED, BalanceWord.BALANCED, "proxy", ("balanced", "good")),
        (BalanceWord.BALANCED, BalanceWord.UNEVEN, "proxy", ("balanced → uneven?", "warn")),
        (BalanceWord.BALANCED, BalanceWord.OSCILLATING, None, ("balanced → oscillating?", "text")),
        (BalanceWord.BALANCED, BalanceWord.IDLE, "proxy", ("balanced → idle?", "text")),
        (BalanceWord.STARVED, BalanceWord.BALANCED, "proxy", ("▲ starved → balanced?", "bad")),
    ],
)
def test_a_word_that_its_window_contradicts_is_not_green(
    word: BalanceWord, now: BalanceWord, router: str | None, run: tuple[str, str]
) -> None:
    """The verdict of the newest window follows the announced one with a question mark."""
    balance = group(word, now, router)
    assert word_run(balance) == run
    assert run in verdict_line(balance, 60)
    assert run in edge_verdict([balance], 60)


def test_a_period_belongs_to_a_swing() -> None:
    """A balanced group has no period, whatever was measured; an oscillating one says "every"."""
    calm = group(BalanceWord.BALANCED, BalanceWord.UNEVEN, period_s=90.0)
    assert "90" not in row_text(verdict_line(calm, 80))
    assert not any("90" in row_text(piece) for piece in verdict_pieces(calm, ()))
    swing = group(BalanceWord.OSCILLATING, BalanceWord.OSCILLATING, period_s=10.0)
    assert row_text(verdict_line(swing, 80)) == "▲ oscillating · every 10 s"


def test_unknown_says_why() -> None:
    """Once the time that a verdict needs has passed, the reason for its absence is shown instead."""
    reason = "too few requests: 2.1 on average, it takes 4"
    balance = group(BalanceWord.UNKNOWN, BalanceWord.UNKNOWN, window_s=60.0, needed_s=45.0, reasons=(reason,))
    assert row_text(verdict_line(balance, 76)).startswith(f"unknown · {reason}")
    early = group(BalanceWord.UNKNOWN, BalanceWord.UNKNOWN, window_s=14.0, needed_s=45.0, reasons=(reason,))
    assert "14 of 45 s" in row_text(verdict_line(early, 76))
    assert reason not in row_text(verdict_line(early, 76))


def test_the_owner_of_a_model_s_name_is_left_out_before_letters_are() -> None:
    """The frame of a group that is named by its model keeps the model and drops its owner."""
    balance = Balance("openai/gpt-oss-120b", PAIR, BalanceWord.BALANCED, BalanceWord.BALANCED)
    assert row_text(edge_verdict([balance], 40)) == "┐gpt-oss-120b: balanced┌"


def test_pieces_are_in_plain_words() -> None:
    """How often the lead changes and how often servers are polled have words and units."""
    balance = group(
        BalanceWord.OSCILLATING,
        BalanceWord.OSCILLATING,
        period_s=10.0,
        lead_changes_per_min=12.0,
        window_s=60.0,
        sample_hz=1.0,
        lost_percent=26.0,
    )
    said = [row_text(piece) for piece in verdict_pieces(balance, ())]
    for words in (
        "every 10 s",
        "the lead changes 12.0×/min",
        "about 26 % of tokens lost",
        "last 60 s",
        "polled every 1 s",
    ):
        assert words in said


@pytest.mark.parametrize(
    ("width", "text"),
    [
        (90, "every 10 s · about 26 % of tokens lost · try simple-shuffle or round-robin"),
        (60, "every 10 s · about 26 % of tokens lost · try simple-shuffle"),
        (50, "every 10 s · about 26 % of tokens lost"),
        (20, "every 10 s"),
    ],
)
def test_a_panel_of_one_row_says_what_its_frame_does_not(width: int, text: str) -> None:
    """The word stands in the frame; the row has the values, and what to try where there is room."""
    balance = group(
        BalanceWord.OSCILLATING,
        BalanceWord.OSCILLATING,
        period_s=10.0,
        lost_percent=26.0,
        hint="try simple-shuffle or round-robin (power-of-two choices does not help), unless it fails",
    )
    assert row_text(value_line(balance, width)) == text


def test_the_load_of_a_sweep_is_named_without_advice() -> None:
    """A loss that the sweep's own load causes is not blamed on the router."""
    balance = group(
        BalanceWord.OSCILLATING,
        BalanceWord.OSCILLATING,
        period_s=23.0,
        lost_percent=35.0,
        in_sweep=True,
    )
    assert row_text(value_line(balance, 60)) == "during the sweep: oscillating, every 23 s"
    assert row_text(verdict_line(balance, 60)) == "oscillating (sweep) · every 23 s"
    assert "lost" not in " ".join(row_text(piece) for piece in verdict_pieces(balance, ()))


def test_a_loss_that_became_unknown_keeps_its_last_value_age_and_reason() -> None:
    """The panel shows when it was known, and why it is not known now."""
    balance = group(
        BalanceWord.OSCILLATING,
        BalanceWord.OSCILLATING,
        lost_unknown="the step time is uncertain",
        lost_before_percent=29.0,
        lost_before_s=40.0,
    )
    said = [row_text(piece) for piece in verdict_pieces(balance, ())]
    assert "tokens lost: about 29 % (40 s ago; unknown now: the step time is uncertain)" in said
    first = group(BalanceWord.OSCILLATING, BalanceWord.OSCILLATING, lost_unknown="step time not measured yet")
    assert "tokens lost: unknown (step time not measured yet)" in [
        row_text(piece) for piece in verdict_pieces(first, ())
    ]
