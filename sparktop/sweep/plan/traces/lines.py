"""The lines of a trace file, read one at a time, and the errors that name file and line."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from sparktop.errors import UsageError
from sparktop.model.text import clean

LONGEST_LINE = 64 << 20
"""Maximum bytes of a line; a conversation of a thousand long requests takes 20 MB."""
_BOM = "\ufeff"


class TraceError(UsageError):
    """A trace file cannot be used; the message names the file, the line and the fault."""

    def __init__(self, path: str, words: str, line: int | None = None) -> None:
        """Describe the fault `words` in line number `line` (from 1) of the file `path`."""
        place = f", line {line:,}" if line is not None else ""
        super().__init__(f"{clean(path, 300)}{place}: {words}")


def numbered_lines(path: str) -> Iterator[tuple[int, str]]:
    """Yield (line number from 1, text without white space around it) of each line that is not blank.

    Only one line is held in memory at a time.

    Raises:
        TraceError: the file cannot be read, or is not a text file.
    """
    try:
        # Without O_NONBLOCK, opening a named pipe waits for a writer.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise TraceError(path, "is not a regular file")
            number = 0
            while raw := file.readline(LONGEST_LINE + 1):
                number += 1
                text = _text(path, number, raw)
                if text:
                    yield number, text
    except (OSError, ValueError) as error:  # ValueError: a NUL byte in the path
        words = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise TraceError(path, f"cannot be read: {words}") from error


def _text(path: str, number: int, raw: bytes) -> str:
    if len(raw) > LONGEST_LINE:
        raise TraceError(path, f"longer than {LONGEST_LINE >> 20} MiB: not a trace", number)
    if b"\0" in raw:
        raise TraceError(path, "NUL bytes: not a text file", number)
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise TraceError(path, "not UTF-8: not a text file", number) from None
    if number == 1:
        text = text.removeprefix(_BOM)
    return text.strip()
