"""scripts/check_words.py finds the words that docstrings and comments do without."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "check_words.py"


@pytest.fixture(scope="module")
def checker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_words", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["check_words"] = module
    spec.loader.exec_module(module)
    return module


# Planted faults: in source text, not in docstrings or comments of this file.
FAULTY = '''"""Rows.  Give them all."""


def rows() -> list[str]:
    """Return the rows that the server
    told
    us."""
    return []  # so many


# The first line ends with so
# many words.
'''

PLAIN = '''"""Rows of a table. There is no header; the text is no longer than 80 cells."""


def rows() -> list[str]:
    """Return the rows. Each looks like the one above; `Give` is a name here."""
    return ["Give me what nobody told"]
'''


def test_planted_faults_are_found_on_their_lines(checker: ModuleType) -> None:
    """First words of sentences, words on later lines, comments and phrases across two lines are all found."""
    found = [(line, words) for line, words, _ in checker.faults(FAULTY, checker.Words.read())]
    assert found == [(1, "Give"), (6, "told"), (8, "so many"), (11, "so many")]


def test_plain_text_passes(checker: ModuleType) -> None:
    """Good sentences with similar words, and strings that are not docstrings, pass the check."""
    assert checker.faults(PLAIN, checker.Words.read()) == []


def test_each_entry_says_what_to_write_instead(checker: ModuleType) -> None:
    """No word is banned without a replacement."""
    words = checker.Words.read()
    assert words.everywhere
    assert all(instead for _, instead in words.everywhere + words.in_docstrings)
