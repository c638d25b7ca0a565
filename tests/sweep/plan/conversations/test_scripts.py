"""Scripts of conversations follow the distributions of their presets.

The course of a user or agent: calls, pauses, conversations under way, and conversations that end early.

A conversation's context grows, is compacted, and says where it cannot go on.

Presets of conversations are read from TOML; what cannot be used is one clear line.
"""

from __future__ import annotations

import math
from pathlib import Path
from random import Random
from statistics import fmean, median

import pytest

from sparktop.errors import UsageError
from sparktop.model.statistics import quantile
from sparktop.sweep.plan.conversations import (
    MOST_CALLS,
    ConversationPreset,
    Draw,
    Lane,
    Script,
    find_conversations,
    number_of,
    parse_conversations,
    script,
)


def test_equal_seeds_give_equal_scripts() -> None:
    """A script depends on preset, seed and number alone."""
    preset = find_conversations("coder")
    assert script(preset, 7, 12) == script(preset, 7, 12)
    assert script(preset, 7, 12) != script(preset, 8, 12)
    assert script(preset, 7, 12) != script(preset, 7, 13)
    assert number_of(2, 1) != number_of(1, 2)


def _lane(limit: int, max_model_len: int | None = None) -> Lane:
    """Return a lane whose conversations have two calls of 100 new and 50 generated tokens."""
    preset = ConversationPreset(
        "x",
        Draw(100),
        Draw(50),
        Draw(2),
        limit,
        shared_tokens=1_000,
        own_tokens=Draw(300),
        summary_tokens=200,
    )
    return Lane(preset, 1, 0, max_model_len)


def test_a_context_beyond_the_limit_is_compacted() -> None:
    """What is left is the shared start and the summary; only the start is in an endless cache."""
    lane = _lane(1_500)
    lane.next_turn()
    lane.record_answer(1_400, 50)
    turn = lane.next_turn()
    assert (turn.prompt_tokens, turn.place.known_tokens, turn.compactions) == (1_300, 1_000, 1)
    assert (turn.place.compacted, turn.fits) == (True, True)


def test_the_servers_limit_counts_where_it_is_lower() -> None:
    """A model length below the preset's limit compacts earlier; below the compacted prompt nothing fits."""
    assert _lane(10_000, 1_350).next_turn().place.compacted
    assert not _lane(10_000, 1_300).next_turn().fits


WHOLE = """
new_tokens = 10
output_tokens = { median = 20, sigma = 0.5, max = 90 }
human_requests = 2
max_context_tokens = 4000
"""


def test_a_file_of_ones_own_is_read(tmp_path: Path) -> None:
    """The name of the file without its ending is the name of the preset."""
    file = tmp_path / "mine.toml"
    file.write_text(WHOLE)
    preset = find_conversations(str(file))
    assert preset.name == "mine"
    assert preset.output_tokens == Draw(20.0, 0.5, 90.0)
    assert preset.human_requests == Draw(2.0)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("human_requests = 2", "", "missing required field `human_requests`"),
        ("human_requests = 2", "human_requests = 0", "human_requests must be from 1 to 100000, not 0"),
        ("new_tokens = 10", "new_tokens = nan", "not nan"),
        ("new_tokens = 10", 'new_tokens = "ten"', "Expected `float`, got `str` - at `$.new_tokens"),
        ("new_tokens = 10", "new_tokens = { median = 9, sgima = 1 }", "unknown field `sgima`"),
        ("new_tokens = 10", "new_tokens = { median = 9, sigma = 99 }", "<= 4.0 - at `$.new_tokens.sigma`"),
        ("new_tokens = 10", "new_tokens = { median = 9, fixed = 1 }", "belong together"),
        ("new_tokens = 10", "new_token = 10", "unknown field `new_token`"),
        ("= 4000", "= 100", "max_context_tokens must be at least 2030"),
        ("= 4000", "= 4000.5", "got `float` - at `$.max_context_tokens`"),
        ("new_tokens = 10", "new_tokens = ", "x.toml is not valid TOML"),
    ],
)
def test_what_cannot_be_used_is_one_line(old: str, new: str, words: str) -> None:
    """The line names the file, the key and what is allowed."""
    with pytest.raises(UsageError) as caught:
        parse_conversations(WHOLE.replace(old, new, 1), "x", "x.toml")
    message = str(caught.value)
    assert words in message
    assert message.startswith("x.toml")
    assert "\n" not in message


def test_files_that_are_no_presets_are_named(tmp_path: Path) -> None:
    """A missing file, a folder, binary data and a huge file give their reason; a near name is suggested."""
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\x00")
    huge = tmp_path / "huge.toml"
    huge.write_bytes(b"#" * 100_000)
    folder = tmp_path / "folder.toml"
    folder.mkdir()
    for name, words in (
        (str(tmp_path / "none.toml"), "No such file"),
        (str(folder), "cannot be read"),
        (str(binary), "not text in UTF-8"),
        (str(huge), "more than 64 kB"),
        ("codder", "did you mean 'coder'"),
        ("zzz", "known: chat, coder, coder-quick, rag"),
    ):
        with pytest.raises(UsageError, match=words):
            find_conversations(name)


COUNT = 4_000


def _scripts(name: str, count: int = COUNT, seed: int = 1) -> list[Script]:
    preset = find_conversations(name)
    return [script(preset, seed, number) for number in range(count)]


def test_draws_have_their_medians_quantiles_and_limits() -> None:
    """Each random quantity of `coder` has the median, p90 and limit of its preset."""
    preset, random = find_conversations("coder"), Random(3)  # noqa: S311 - load, no secret
    for draw in (preset.own_tokens, preset.new_tokens, preset.output_tokens, preset.human_pause_s):
        values = sorted(draw.value(random) for _ in range(20_000))
        assert median(values) == pytest.approx(draw.median, rel=0.05)
        p90 = min(draw.median * math.exp(1.2816 * draw.sigma), draw.most or math.inf)
        assert quantile(values, 0.9) == pytest.approx(p90, rel=0.06)
        assert values[-1] == draw.most
        assert fmean(values) == pytest.approx(draw.typical, rel=0.04)


def test_a_conversation_under_way_resumes_in_the_middle_of_its_life() -> None:
    """It goes on after 25 to 75 % of its calls; one of a single call has no past."""
    shares = [one.resumes_at / len(one.calls) for one in _scripts("coder-quick", 300)]
    assert min(shares) >= 0.2
    assert max(shares) <= 0.75
    assert {one.resumes_at for one in _scripts("rag", 50)} == {0}


def test_an_endless_conversation_is_cut() -> None:
    """A preset that draws millions of calls gets scripts of limited length."""
    endless = ConversationPreset("x", Draw(1), Draw(1), Draw(1_000), 1_000_000, tool_steps=Draw(1_000))
    assert len(script(endless, 0, 0).calls) == MOST_CALLS
