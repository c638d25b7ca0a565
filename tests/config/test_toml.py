"""Changing single values of a configuration file leaves the rest of its text byte for byte the same.

Line numbers of TOML keys, and of list items: the line on which each ends.
"""

from __future__ import annotations

import json
import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.config.checks import Mistake
from sparktop.config.options import ALERTS, EVENTS, GUARD, INTERVAL, LOW_BANDWIDTH, RECORDER, STATES
from sparktop.config.schema import SETTINGS
from sparktop.config.toml_text import Path, SettingPath, TomlValue, key_lines, with_values
from sparktop.config.watch import default_toml
from sparktop.errors import ConfigError

TEXT = """# mine
interval_s = 1.0   # often enough
theme = 'nord'

[[nodes]]
name = "n"

[alerts]
# below this I want to know
headroom_warn_gib = 12.0# tight
"""


def test_a_value_is_replaced_and_its_comment_stays() -> None:
    """A value is replaced; its comment stays."""
    changed = with_values(TEXT, {("interval_s",): 2.0, ("alerts", "headroom_warn_gib"): 20.0})
    assert changed == TEXT.replace("= 1.0", "= 2.0").replace("= 12.0", "= 20.0")
    assert with_values(TEXT, {("theme",): "paper"}) == TEXT.replace("'nord'", '"paper"')


def test_a_missing_key_is_added_where_it_belongs() -> None:
    """A missing key is added below the first comment, in its table, or in a new table at the end."""
    assert with_values(TEXT, {("low_bandwidth",): True}) == TEXT.replace(
        "'nord'\n", "'nord'\nlow_bandwidth = true\n"
    )
    assert with_values(TEXT, {("alerts", "slow_clock_mhz"): 800.0}) == f"{TEXT}slow_clock_mhz = 800.0\n"
    assert with_values(TEXT, {("events", "bell"): True}) == TEXT + "\n[events]\nbell = true\n"
    assert with_values("", {("events", "notify"): "osc9"}) == '[events]\nnotify = "osc9"\n'
    assert with_values('theme = "x"', {("interval_s",): 5.0}) == 'theme = "x"\ninterval_s = 5.0\n'


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("alerts = { headroom_warn_gib = 12.0, slow_clock_mhz = 900.0 } # a\n", "12.0"),
        ('[alerts]\nheadroom_warn_gib = """\n12""" # b\n', '"""\n12"""'),
        ("alerts.headroom_warn_gib = 12.0\nalerts.slow_clock_mhz = 9.0\n", "12.0"),
        ("[[nodes]]\nx = 1\n[[backends]]\n[[nodes]] # out of order\n[alerts]\nheadroom_warn_gib = 1", "1"),
    ],
)
def test_a_value_is_changed_however_its_table_is_written(text: str, changed: str) -> None:
    """In tables of one line, with dotted keys and between tables in any order, the value alone is changed."""
    before, _, after = text.rpartition(changed)
    result = with_values(text, {("alerts", "headroom_warn_gib"): 20.0})
    assert result.removesuffix("\n") == f"{before}20.0{after}".removesuffix("\n")


@pytest.mark.parametrize("text", ["not toml", "alerts = 1\n", "[[alerts]]\n"])
def test_what_cannot_be_changed_alone_is_refused(text: str) -> None:
    """A file that is wrong, or has something else in place of the table, is not changed."""
    with pytest.raises(ConfigError):
        with_values(text, {("alerts", "headroom_warn_gib"): 20.0})


PLACES = [one.place for one in (*ALERTS, *STATES, *GUARD)]


@given(st.dictionaries(st.sampled_from(PLACES), st.floats(0.1, 1e6), min_size=1))
@settings(max_examples=25)
def test_the_example_file_takes_any_values(values: dict[SettingPath, TomlValue]) -> None:
    """In the example file, each value is set, all other settings stay, and no comment is lost."""
    before = default_toml()
    after = with_values(before, values)
    data = tomllib.loads(after)
    assert all(data[place[0]][place[-1]] == value for place, value in values.items())
    rest = {key: value for key, value in data.items() if key not in {"alerts", "thresholds", "guard"}}
    assert rest == tomllib.loads(before)
    assert [line for line in before.splitlines() if line not in after.splitlines()] == []


def test_every_option_is_a_setting_of_the_file() -> None:
    """The schema accepts the first, second and last value of each option."""
    for option in (*ALERTS, *STATES, *EVENTS, *GUARD, *RECORDER, INTERVAL, LOW_BANDWIDTH):
        for value in (*option.choices[:2], option.choices[-1]):
            problems: list[Mistake] = []
            SETTINGS.read(tomllib.loads(with_values("", {option.place: value})), (), problems)
            assert problems == []


DOCUMENT = '''\
# a comment = 1
plain = 1 # [not] = "a table"
dotted . "quoted\\u002ekey".'raw "key"' = "x # y"
list = [ "a", # ]
  """b
  ] "" not = the end""", {inner = [
     1, 2], other = 'x'},
]

[table]
  text = \'\'\'
[no.table]
\'\'\'
[[many]]
one = 2020-01-01 10:00:00
[many.sub]
two = true
[[many.deep]]
[[many.deep]]
[[many]]
one = { }
[[many.deep]]
three = "\\" # ["
'''

EXPECTED: dict[Path, int] = {
    ("plain",): 2,
    ("dotted", "quoted.key", 'raw "key"'): 3,
    ("list",): 4,
    ("list", 1): 7,
    ("list", 2, "inner"): 7,
    ("list", 2, "inner", 1): 7,
    ("table", "text"): 11,
    ("many",): 14,
    ("many", 0, "sub", "two"): 17,
    ("many", 0, "deep", 1): 19,
    ("many", 1, "deep", 0, "three"): 23,
}


def paths_of(value: object, path: Path = ()) -> set[Path]:
    """Return every path of a document."""
    here = {path} if path else set()
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    else:
        return here
    return here.union(*(paths_of(item, (*path, key)) for key, item in items))


def test_each_key_has_its_line() -> None:
    """Keys, tables, list items and arrays of tables are found on their lines, with LF and CRLF."""
    tomllib.loads(DOCUMENT)
    for text in (DOCUMENT, DOCUMENT.replace("\n", "\r\n")):
        found = key_lines(text)
        assert {path: found.get(path) for path in EXPECTED} == EXPECTED


words = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), min_size=1, max_size=6)
values = st.recursive(
    st.integers() | st.booleans() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)


def as_toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {as_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[ # ]\n" + ",\n".join(as_toml(item) for item in value) + "\n]"
    return json.dumps(value)


@settings(max_examples=25, deadline=None)
@given(st.dictionaries(words, values, max_size=5))
def test_every_path_of_any_document_has_a_line(data: dict[str, object]) -> None:
    """Any valid document has a line for each key and item, and the right line for each top-level key."""
    lines = [f"{json.dumps(key)} = {as_toml(value)}" for key, value in data.items()]
    text = "\n".join(lines)
    found = key_lines(text)
    assert set(found) == paths_of(tomllib.loads(text))
    line = 1
    for key, written in zip(tomllib.loads(text), lines, strict=True):
        assert found[(key,)] == line
        line += written.count("\n") + 1


@given(st.text(alphabet="[]{}\"'=,.# \n\\ab1", max_size=40))
def test_any_text_is_survived(text: str) -> None:
    """An invalid text gives only lines within the text, without an error."""
    assert all(1 <= line <= text.count("\n") + 1 for line in key_lines(text).values())
