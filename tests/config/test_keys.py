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
        ({"freeze": "t"}, "'freeze' cannot be 't': 'theme' has it"),
        ({"freeze": "J"}, None),
        ({"freeze": "x", "zoom": "x"}, "'freeze' cannot be 'x': 'zoom' has it"),
        ({"freeze": "ctrl+q"}, "'freeze' cannot be 'ctrl+q': it always quits"),
        ({"freeze": "ctrl+m"}, "'freeze' cannot be 'ctrl+m': it is the same as 'enter' to a terminal"),
        ({"freeze": "pause"}, "'freeze' is not a key: write one like 'Q', 'f5', 'space' or 'ctrl+x'"),
    ],
)
def test_a_key_that_cannot_be_had_is_told(keys: dict[str, str], message: str | None) -> None:
    """The error names the entry that has the key, or shows how a key is written."""
    if message is None:
        assert keys_with(keys)
        return
    with pytest.raises(ValueError, match=r"key|cannot") as caught:
        keys_with(keys)
    assert str(caught.value) == message


@given(st.dictionaries(st.sampled_from(NAMES), WRITTEN, max_size=6))
def test_whatever_is_moved_each_key_has_one_owner(keys: dict[str, str]) -> None:
    """Any moves are either refused with an error, or no key belongs to two entries."""
    wrong = wrong_keys(keys)
    assert wrong.keys() <= keys.keys()
    if wrong:
        with pytest.raises(ValueError, match=r"key|cannot"):
            keys_with(keys)
        return
    table = keys_with(keys)
    owned = [one for key in table for one in key.keys]
    assert len(set(owned)) == len(owned)
    assert [key.name for key in table] == NAMES
    assert all(key.shown == keys[key.name] for key in table if key.name in keys)
