"""Presets of conversations are read from TOML; what cannot be used is one clear line."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparktop.errors import UsageError
from sparktop.sweep.plan.conversations import BUILT_IN, Draw, find_conversations, parse_conversations

WHOLE = """
new_tokens = 10
output_tokens = { median = 20, sigma = 0.5, max = 90 }
human_requests = 2
max_context_tokens = 4000
"""


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_presets_of_the_package_are_complete(name: str) -> None:
    """Each has a description, a limit and at least one call."""
    preset = find_conversations(name)
    assert preset.name == name
    assert preset.description
    assert preset.calls >= 1


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
        ("human_requests = 2", "", "x.toml: human_requests is missing"),
        (
            "human_requests = 2",
            "human_requests = 0",
            "human_requests must be a number from 1 to 100000",
        ),
        ("human_requests = 2", "human_requests = 0", "a conversation without requests has no load"),
        ("human_requests = 2", "human_requests = {median = 2, fixed = 0, fixed_share = 1}", "fixed must be"),
        ("human_requests = 2", "human_requests = -1", "not -1"),
        ("new_tokens = 10", "new_tokens = nan", "not nan"),
        ("new_tokens = 10", "new_tokens = 1e9", "from 1 to 10000000"),
        ("new_tokens = 10", 'new_tokens = "ten"', "must be a number"),
        ("new_tokens = 10", "new_tokens = true", "must be a number"),
        ("new_tokens = 10", "new_tokens = { sigma = 1 }", "a table with median"),
        ("new_tokens = 10", "new_tokens = { median = 9, sgima = 1 }", "unknown key 'sgima'"),
        ("new_tokens = 10", "new_tokens = { median = 9, sigma = 99 }", "sigma must be a number from 0 to 4"),
        ("new_tokens = 10", "new_tokens = { median = 9, fixed = 1 }", "belong together"),
        ("new_tokens = 10", "new_tokens = [1]", "must be"),
        ("new_tokens = 10", "new_token = 10", "did you mean 'new_tokens'"),
        ("= 4000", "= 100", "max_context_tokens must be at least 2030"),
        ("= 4000", "= 4000.5", "must be a whole number"),
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
