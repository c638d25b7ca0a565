"""Line numbers of the keys in a TOML text, which `tomllib` does not report."""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right

from sparktop.model.text import clean

Path = tuple[str | int, ...]
"""Keys and list indices from the top of the document: ("backends", 1, "url")."""

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_BLANK = re.compile(r"[ \t]*")
_BLANK_LINES = re.compile(r"(?:[ \t\n]+|#[^\n]*)*+")
_SCALAR = re.compile(r"[^,\]}#\n]*")
_STRINGS = {
    '"""': re.compile(r'"""(?:[^"\\]|\\.|"{1,2}(?!"))*+"{3,5}', re.DOTALL),
    "'''": re.compile(r"'''(?:[^']|'{1,2}(?!'))*+'{3,5}"),
    '"': re.compile(r'"(?:[^"\\\n]|\\.)*+"'),
    "'": re.compile(r"'[^'\n]*'"),
}


class _Scanner:
    """Finds the line of each key in one pass over a text that `tomllib` has accepted.

    Syntax errors are not diagnosed, because `tomllib` has already done so.
    """

    def __init__(self, text: str) -> None:
        self.text = text.replace("\r\n", "\n")
        self.at = 0
        self.lines: dict[Path, int] = {}
        self._starts = [0, *(match.end() for match in re.finditer("\n", self.text))]
        self._tables: dict[Path, int] = {}
        """Number of `[[tables]]` seen so far, by path."""

    def document(self) -> None:
        prefix: Path = ()
        while True:
            self._skip(_BLANK_LINES)
            if self.at >= len(self.text):
                return
            if self.text[self.at] == "[":
                prefix = self._header()
            else:
                self._pair(prefix)

    def _skip(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self.text, self.at)
        if match is None:
            raise ValueError(f"no TOML at {self.at}")
        self.at = match.end()
        return match.group()

    def _eat(self, text: str) -> bool:
        found = self.text.startswith(text, self.at)
        if found:
            self.at += len(text)
        return found

    def _mark(self, path: Path, at: int) -> None:
        self.lines.setdefault(path, bisect_right(self._starts, at))

    def _key(self) -> list[str]:
        """Parse a key, dotted or not, at the current position; return its parts."""
        parts: list[str] = []
        while True:
            self._skip(_BLANK)
            quote = self.text[self.at : self.at + 1]
            if quote in {'"', "'"}:
                quoted = self._skip(_STRINGS[quote])
                parts.append(tomllib.loads(f"key = {quoted}")["key"])
            else:
                parts.append(self._skip(_BARE))
            self._skip(_BLANK)
            if not self._eat("."):
                return parts

    def _header(self) -> Path:
        """Parse `[a.b]` or `[[a.b]]`; return the path of the keys that follow the header.

        Also record the line of the header.
        """
        at = self.at
        many = self._eat("[[") or not self._eat("[")
        parts = self._key()
        self._eat("]]" if many else "]")
        path: Path = ()
        for number, part in enumerate(parts, 1):
            path = (*path, part)
            self._mark(path, at)
            if many and number == len(parts):
                self._tables[path] = self._tables.get(path, 0) + 1
            if path in self._tables:
                path = (*path, self._tables[path] - 1)
                self._mark(path, at)
        return path

    def _pair(self, prefix: Path) -> None:
        """Parse `key = value` at the current position, and record the line of the key.

        `prefix` is the path of the table that the key is in. A dotted key has a line for each of its parts.
        """
        self._skip(_BLANK)
        at = self.at
        path = prefix
        for part in self._key():
            path = (*path, part)
            self._mark(path, at)
        self._eat("=")
        self._value(path)

    def _value(self, path: Path) -> None:
        self._skip(_BLANK)
        if self._eat("["):
            self._array(path)
        elif self._eat("{"):
            self._inline_table(path)
        else:
            for quote, pattern in _STRINGS.items():
                if self.text.startswith(quote, self.at):
                    self._skip(pattern)
                    return
            self._skip(_SCALAR)

    def _array(self, path: Path) -> None:
        index = 0
        while True:
            self._skip(_BLANK_LINES)
            if self._eat("]"):
                return
            at = self.at
            self._mark((*path, index), at)
            self._value((*path, index))
            index += 1
            self._skip(_BLANK_LINES)
            self._eat(",")
            if self.at == at:
                raise ValueError(f"no TOML at {at}")

    def _inline_table(self, path: Path) -> None:
        while True:
            # TOML 1.1 allows line breaks here; accepting them is harmless.
            self._skip(_BLANK_LINES)
            if self._eat("}"):
                return
            self._pair(path)
            self._skip(_BLANK_LINES)
            self._eat(",")


def key_name(path: Path) -> str:
    """Format a path as `backends[1].url` or `models."a/b".bytes_per_token_gb`."""
    name = ""
    for part in path:
        if isinstance(part, int):
            name += f"[{part}]"
            continue
        word = clean(part, 60)
        name += ("." if name else "") + (word if _BARE.fullmatch(word) else f'"{word}"')
    return name


def key_lines(text: str) -> dict[Path, int]:
    """Return the line number (from 1) of each key, table and list item of a TOML text, by path.

    If the text is invalid or nested too deeply, return the lines found before the fault.
    """
    scanner = _Scanner(text)
    try:
        scanner.document()
    except (ValueError, RecursionError):
        return scanner.lines
    return scanner.lines


def line_of(lines: dict[Path, int], path: Path) -> int:
    """Return the line number of `path`, or of the nearest enclosing element that has a line number.

    Return 1 if there is no such element.
    """
    for length in range(len(path), 0, -1):
        line = lines.get(path[:length])
        if line is not None:
            return line
    return 1
