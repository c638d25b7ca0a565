"""Text from servers, files and users, cleaned for use on a screen, in a log or in a report."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Container, Iterable, Sequence
from contextlib import suppress
from enum import Enum
from itertools import chain, count
from pathlib import Path

# Control (Cc), format (Cf: bidi marks, zero-width, soft hyphen), surrogates, private use, unassigned, line
# and paragraph separators: terminals disagree on their width, and some move the cursor.
_UNSAFE_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_ENOUGH = 4096
"""Most characters read: bounds the cost of a name that is a megabyte long."""
_CLEAN = re.compile("(?:[!-~]+(?: [!-~]+)*)?")
"""Matches ASCII text of one line without spaces at its ends or several in a row."""
# The blanks between a number and its unit, and in "c = 4".
_IN_FIGURE = re.compile(
    r"(?<=\d) (?=(?:%|°C|ms|s|min|h|W|kW|kWh|MHz|tok/s|/s|[kMG]B(?:/s)?|[KMGT]iB)(?![\w/]))"
    r"|(?<=\bc) (?== \d)|(?<=\bc =) (?=\d)"
)
_BLANK = "\u2800\u3164\uffa0\u115f\u1160\u17b4\u17b5\u034f\U0001d159 "
"""Characters that look like nothing, though they are no spaces."""
_FORMULA = ("=", "+", "-", "@")
"""Characters that make a spreadsheet run a field as a formula if it begins with one of them."""


class TextEnum(str, Enum):  # noqa: UP042 - the reader of machines runs with Python 3.10, which has no StrEnum
    """An enumeration whose members are texts and are formatted as these."""

    __str__ = str.__str__


def with_subject(subject: str, text: str) -> str:
    """Return "subject: text", or `text` alone where it begins with the subject."""
    rest = text.removeprefix(subject)
    is_longer_word = rest[:1].isalnum() or rest[:1] in {"-", "_"}
    begins = text.startswith(subject) and not is_longer_word
    return text if begins else f"{subject}: {text}"


def host_port(host: str, port: int) -> str:
    """Return "host:port", with an IPv6 address in square brackets as in a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def free_name(name: str, taken: Container[str], form: str = "{}-{}") -> str:
    """Return `name`, with the first free number in the given form where it is `taken`: spark-a, spark-a-2."""
    numbered = (form.format(name, number) for number in count(2))
    return next(free for free in chain((name,), numbered) if free not in taken)


def lines_of(text: str) -> list[str]:
    """Return the lines of a text from outside; a line ends with a line feed, a carriage return or both.

    `str.splitlines` also cuts at U+2028 and seven more characters that JSON may hold within a line.
    """
    plain = text.replace("\r\n", "\n").replace("\r", "\n")
    return plain.removesuffix("\n").split("\n") if plain else []


def reason_of(error: BaseException) -> str:
    """Return why the system refused something, cleaned: "No such file or directory"."""
    return clean(getattr(error, "strerror", None) or str(error) or type(error).__name__)


def shown_path(path: Path) -> str:
    """Return a path as text without control characters, absolute or with "~" for the home folder."""
    with suppress(OSError, ValueError, RuntimeError):
        path = path.absolute()
        path = Path("~", path.relative_to(Path.home()))
    return clean(path, 300)


def clean(text: object, limit: int = 200) -> str:
    """Return `str(text)` as one printable line of at most `limit` characters.

    Control characters (an escape sequence's first character too), bidi marks and other invisible characters
    become a space or are removed; runs of white space become one space; a line that was cut ends in "…". A
    text of characters that look like nothing is named.
    Markup such as `[red]` stays: it is data, and the widgets that draw it never parse markup.
    """
    source = str(text)[:_ENOUGH]
    if len(source) <= limit and _CLEAN.fullmatch(source):  # nearly all text: thirty times as fast
        return source
    kept: list[str] = []
    for char in source:
        if " " <= char <= "~":
            kept.append(char)
        elif char.isspace():
            kept.append(" ")
        elif unicodedata.category(char) == "Cf" or "\ufe00" <= char <= "\ufe0f":
            continue
        elif unicodedata.category(char) in _UNSAFE_CATEGORIES:
            kept.append(" ")
        else:
            kept.append(char)
    line = " ".join("".join(kept).split())
    if line and not line.strip(_BLANK):
        line = f"(blank: U+{ord(line[0]):04X})"
    return line if len(line) <= limit else line[: max(0, limit - 1)] + "…"


def with_units_joined(text: str, joint: str) -> str:
    """Return a sentence with `joint` for each space in "12 GiB" or "c = 4": no line ends there."""
    return _IN_FIGURE.sub(joint, text)


def short_seconds(seconds: float) -> str:
    """Return seconds with two digits below 10 s, else whole: "0.25 s", "4.2 s", "5 s", "131 s"."""
    return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"  # noqa: PLR2004 - two digits


def names_in_words(names: Sequence[str]) -> str:
    """Join names in words: "a, b and c". `names` must not be empty."""
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)


def spreadsheet_text(text: str) -> str:
    """Return `text` for a CSV file, after an apostrophe if a spreadsheet would run it as a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def known_texts(values: Iterable[object]) -> str | None:
    """Return the different values that are known, sorted, as one text; None without one."""
    return ", ".join(sorted({str(value) for value in values if value is not None and value != ""})) or None
