"""Line numbers of TOML keys, and of list items: the line on which each ends."""

from __future__ import annotations

import json
import tomllib

from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.config.toml_text import Path, key_lines

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


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet="[]{}\"'=,.# \n\\ab1", max_size=40))
def test_any_text_is_survived(text: str) -> None:
    """An invalid text gives only lines within the text, without an error."""
    assert all(1 <= line <= text.count("\n") + 1 for line in key_lines(text).values())
