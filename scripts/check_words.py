"""Find words in docstrings and comments that plain technical English does without.

usage: check_words.py [PATH…]    exits 1 where any is found; plain_words.toml beside this file lists them
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
import tomllib
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("sparktop", "stage", "tests", "scripts", "benchmarks")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Words:
    """The content of plain_words.toml, compiled."""

    in_docstrings: tuple[tuple[re.Pattern[str], str], ...]
    everywhere: tuple[tuple[re.Pattern[str], str], ...]

    @classmethod
    def read(cls) -> Words:
        """Read the list beside this file."""
        table = tomllib.loads((Path(__file__).parent / "plain_words.toml").read_text(encoding="utf-8"))
        return cls(
            tuple(
                (re.compile(rf"(?:^|(?<=[.!?:] )){word}\b"), instead)
                for word, instead in table["first_words"].items()
            ),
            tuple((re.compile(rf"\b{phrase}"), instead) for phrase, instead in table["phrases"].items()),
        )


@dataclass(frozen=True)
class Passage:
    """A docstring, or the comment lines that follow each other, on one line without indentation."""

    text: str
    starts: tuple[int, ...]  # offset in `text` of each source line
    line: int  # number of the first source line, from 1
    is_docstring: bool

    @classmethod
    def join(cls, lines: list[str], line: int, *, is_docstring: bool) -> Passage:
        """Join source lines with single spaces."""
        text, starts = "", []
        for each in lines:
            starts.append(len(text))
            text += " ".join(each.split()) + " "
        return cls(text, tuple(starts), line, is_docstring)

    def line_of(self, offset: int) -> int:
        """Return the number of the source line that holds `offset`."""
        return self.line + bisect_right(self.starts, offset) - 1


def docstrings(source: str) -> Iterator[Passage]:
    """Yield the docstrings of a module, its classes and its functions."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            statement = node.body[0]
            assert isinstance(statement, ast.Expr)  # noqa: S101 - for mypy: get_docstring has found it
            text = str(ast.literal_eval(statement.value))
            yield Passage.join(text.split("\n"), statement.lineno, is_docstring=True)


def comments(source: str) -> Iterator[Passage]:
    """Yield the comments, lines that follow each other as a single passage."""
    block: list[str] = []
    last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        alone = token.line.lstrip().startswith("#")
        if block and not (alone and token.start[0] == last + 1):
            yield Passage.join(block, last - len(block) + 1, is_docstring=False)
            block = []
        block.append(token.string.lstrip("#"))
        last = token.start[0]
    if block:
        yield Passage.join(block, last - len(block) + 1, is_docstring=False)


def faults(source: str, words: Words) -> list[tuple[int, str, str]]:
    """Return (line, words found, what to write instead) of each fault in a module, by line."""
    found = []
    for passage in (*docstrings(source), *comments(source)):
        banned = words.everywhere + (words.in_docstrings if passage.is_docstring else ())
        for pattern, instead in banned:
            found += [
                (passage.line_of(hit.start()), hit[0].strip(), instead)
                for hit in pattern.finditer(passage.text)
            ]
    return sorted(found)


def to_check(paths: list[str]) -> Iterator[Path]:
    """Yield the named Python files and those in the named folders; without any, all of the repository."""
    for path in map(Path, paths) if paths else (ROOT / folder for folder in FOLDERS):
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]


def main() -> int:
    """Print each fault as `path:line: "words" → instead`; return 1 where there is any, else 0."""
    words = Words.read()
    count = 0
    for path in to_check(sys.argv[1:]):
        name = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
        for line, found, instead in faults(path.read_text(encoding="utf-8"), words):
            print(f'{name}:{line}: "{found}" → {instead}')
            count += 1
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
