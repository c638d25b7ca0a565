"""The table of keys, and moving its entries to other keys."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktop.config.keys import KEYS, keys_with, textual_key, wrong_keys

NAMES = [key.name for key in KEYS]
WRITTEN = st.sampled_from(
    [*"abcxyzQ019/?+-[. ", "f5", "space", "tab", "ctrl+x", "ctrl+q", "shift+a", "ä", ""]
)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("q", "q"),
        ("/", "slash"),
        ("Space", "space"),
        ("ctrl+x", "ctrl+x"),
        ("ctrl++", "ctrl+plus"),
        ("shift+a", "A"),
    ],
)
def test_keys_are_read_as_people_write_them(text: str, name: str) -> None:
    """Keys are normalised to Textual's names; Shift with a letter is the capital letter."""
    assert textual_key(text) == name


def test_names_and_keys_are_given_once() -> None:
    """Each name and each key occurs once in the table."""
    keys = [one for key in KEYS for one in key.keys]
    assert len(set(NAMES)) == len(NAMES)
    assert len(set(keys)) == len(keys)


def test_a_moved_entry_has_its_new_key_alone() -> None:
    """The new key of a moved entry replaces all its keys, and is shown as it was written."""
    moved = {key.name: key for key in keys_with({"next": "ctrl+n"})}
    assert (moved["next"].keys, moved["next"].shown) == (("ctrl+n",), "ctrl+n")
    assert [key for key in moved.values() if key.name != "next"] == [
        key for key in KEYS if key.name != "next"
    ]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"freeze": "t"}, "cannot be 't': 'theme' has it"),
        ({"freeze": "J"}, None),
        ({"freeze": "x", "zoom": "x"}, "cannot be 'x': 'zoom' has it"),
        ({"freeze": "ctrl+q"}, "cannot be 'ctrl+q': it always quits"),
        ({"freeze": "ctrl+m"}, "cannot be 'ctrl+m': it is the same as 'enter' to a terminal"),
        ({"freeze": "pause"}, "is not a key: write one like 'Q', 'f5', 'space' or 'ctrl+x'"),
    ],
)
def test_a_key_that_cannot_be_had_is_told(keys: dict[str, str], message: str | None) -> None:
    """The error names the entry that has the key, or shows how a key is written."""
    assert wrong_keys(keys).get("freeze") == message


@pytest.mark.parametrize(
    ("keys", "presets", "wrong"),
    [
        ({}, ["f5", None, "f6"], {}),
        ({}, ["["], {}),
        ({"freeze": "f5"}, ["f5"], {0: "cannot be 'f5': 'freeze' has it"}),
        ({"freeze": "f5"}, ["p"], {}),
        (
            {},
            ["t", "f6", "f6"],
            {0: "cannot be 't': 'theme' has it", 2: "cannot be 'f6': another preset has it"},
        ),
    ],
)
def test_presets_take_keys_that_are_free(
    keys: dict[str, str], presets: list[str | None], wrong: dict[int, str]
) -> None:
    """A preset may have no key of an action, unless that yields or was moved, nor of an earlier preset."""
    assert wrong_keys(keys, presets) == wrong


@given(st.dictionaries(st.sampled_from(NAMES), WRITTEN, max_size=6))
def test_whatever_is_moved_each_key_has_one_owner(keys: dict[str, str]) -> None:
    """Any moves are either refused with an error, or no key belongs to two entries."""
    wrong = wrong_keys(keys)
    assert wrong.keys() <= keys.keys()
    if wrong:
        return
    table = keys_with(keys)
    owned = [one for key in table for one in key.keys]
    assert len(set(owned)) == len(owned)
    assert [key.name for key in table] == NAMES
    assert all(key.shown == keys[key.name] for key in table if key.name in keys)
