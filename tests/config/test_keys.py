"""The table of keys, and moving its entries to other keys."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.config.keys import KEYS, preset_keys, remapped, textual_key, wrong_keys, yielded

NAMES = [key.name for key in KEYS]
WRITTEN = st.sampled_from(
    [*"abcxyzQ019/?+-[. ", "f5", "space", "tab", "ctrl+x", "ctrl+q", "shift+a", "ä", ""]
)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("q", "q"),
        ("Q", "Q"),
        ("7", "7"),
        ("/", "slash"),
        ("+", "plus"),
        ("F5", "f5"),
        ("Space", "space"),
        ("shift+tab", "shift+tab"),
        ("ctrl+x", "ctrl+x"),
        ("Ctrl+X", "ctrl+x"),
        ("ctrl++", "ctrl+plus"),
        ("alt+/", "alt+slash"),
        ("ctrl+shift+x", "ctrl+shift+x"),
        ("shift+a", "A"),
    ],
)
def test_keys_are_read_as_people_write_them(text: str, name: str) -> None:
    """Keys are normalised to Textual's names; Shift with a letter is the capital letter."""
    assert textual_key(text) == name


@pytest.mark.parametrize(
    "text",
    ["", "é", "f0", "f25", "super+a", "ctrl+", "+a", "++", "shift+1", "ctrl+é", "return", "aa", "\x1b"],
)
def test_what_no_terminal_sends_is_no_key(text: str) -> None:
    """A word that is not a key gives None."""
    assert textual_key(text) is None


def test_names_and_keys_are_given_once() -> None:
    """Each name and each key occurs once in the table."""
    keys = [one for key in KEYS for one in key.keys]
    assert len(set(NAMES)) == len(NAMES)
    assert len(set(keys)) == len(keys)


def test_a_moved_entry_has_its_new_key_alone() -> None:
    """The new key of a moved entry replaces all its keys, and is shown as it was written."""
    moved = {key.name: key for key in remapped({"next": "ctrl+n"})}
    assert (moved["next"].keys, moved["next"].shown) == (("ctrl+n",), "ctrl+n")
    assert [key for key in moved.values() if key.name != "next"] == [
        key for key in KEYS if key.name != "next"
    ]


def test_two_entries_can_change_places() -> None:
    """A key can be used if its entry is moved away at the same time."""
    moved = {key.name: key.keys for key in remapped({"freeze": "t", "theme": "p"})}
    assert (moved["freeze"], moved["theme"]) == (("t",), ("p",))


def test_an_entry_can_keep_one_of_its_keys() -> None:
    """An entry may be given one of its own keys."""
    assert wrong_keys({"next": "j"}) == {}


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"freeze": "t"}, "'freeze' cannot be 't': 'theme' has it"),
        ({"freeze": "J"}, None),
        ({"freeze": "j"}, "'freeze' cannot be 'j': 'next' has it"),
        ({"freeze": "x", "zoom": "x"}, "'freeze' cannot be 'x': 'zoom' has it"),
        ({"freeze": "ctrl+q"}, "'freeze' cannot be 'ctrl+q': it always quits"),
        ({"freeze": "ctrl+m"}, "'freeze' cannot be 'ctrl+m': it is the same as 'enter' to a terminal"),
        ({"freeze": "ctrl+["}, "'freeze' cannot be 'ctrl+[': it is the same as 'escape' to a terminal"),
        ({"freeze": "pause"}, "'freeze' is not a key: write one like 'Q', 'f5', 'space' or 'ctrl+x'"),
    ],
)
def test_a_key_that_cannot_be_had_is_told(keys: dict[str, str], message: str | None) -> None:
    """The error names the entry that has the key, or shows how a key is written."""
    if message is None:
        assert remapped(keys)
        return
    with pytest.raises(ValueError, match=r"key|cannot") as caught:
        remapped(keys)
    assert str(caught.value) == message


def test_an_unknown_name_is_a_key_error() -> None:
    """An unknown name is a `KeyError` with that name."""
    with pytest.raises(KeyError, match="pause"):
        remapped({"pause": "x"})


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from(NAMES), WRITTEN, max_size=6))
def test_whatever_is_moved_each_key_has_one_owner(keys: dict[str, str]) -> None:
    """Any moves are either refused with an error, or no key belongs to two entries."""
    wrong = wrong_keys(keys)
    assert wrong.keys() <= keys.keys()
    if wrong:
        with pytest.raises(ValueError, match=r"key|cannot"):
            remapped(keys)
        return
    table = remapped(keys)
    owned = [one for key in table for one in key.keys]
    assert len(set(owned)) == len(owned)
    assert [key.name for key in table] == NAMES
    assert all(key.shown == keys[key.name] for key in table if key.name in keys)


def test_keys_of_the_past_yield_to_older_configurations() -> None:
    """Newer actions give up their keys to entries and presets that older configurations put on them."""
    assert wrong_keys({"freeze": "space"}) == {}
    moved = {key.name: key for key in remapped({"freeze": "space"})}
    assert (moved["freeze"].keys, moved["play"].keys, moved["go"].keys) == (("space",), (), ("g",))
    presets = preset_keys([("long", "g")], {})
    table = {key.name: key for key in yielded((*remapped({}), *presets))}
    assert (table["preset-1"].keys, table["go"].keys, table["go"].shown) == (("g",), (), "")
    assert wrong_keys({"go": "t"}) == {"go": "cannot be 't': 'theme' has it"}
    assert wrong_keys({"go": "space", "theme": "space"}).keys() == {"go", "theme"}
