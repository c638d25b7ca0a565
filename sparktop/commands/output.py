"""Output of a command's result: standard output, or a file that is written completely or not at all."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterable
from contextlib import suppress
from errno import EAGAIN
from pathlib import Path
from typing import BinaryIO

from sparktop import files
from sparktop.errors import OutputError
from sparktop.model.text import clean, reason_of

_WIDEST = 100
"""Longer lines of prose are hard to read."""


def write_out(text: str) -> None:
    """Write a result to standard output; do nothing if the reader, such as `head`, has closed it.

    Raises:
        OutputError: standard output is closed, full or broken.
    """
    # On a terminal of another encoding, missing characters become "?".
    encoding = "utf-8" if sys.stdout is None else sys.stdout.encoding
    write_parts(None, [text.encode(encoding, "replace")])


def _write_all(stream: BinaryIO, parts: Iterable[bytes]) -> None:
    """Write all bytes, also to a stream without a buffer, as with PYTHONUNBUFFERED.

    There a write may take less than it was given, when the disk becomes full; only the next one fails.

    Raises:
        OSError: not all could be written.
    """
    for part in parts:
        left = memoryview(part)
        while left:
            written = stream.write(left)
            if not written:
                raise BlockingIOError(EAGAIN, os.strerror(EAGAIN))
            left = left[written:]
    stream.flush()


def write_markdown(text: str) -> None:
    """Write Markdown to standard output; on a terminal, split tables and wrap sentences that are wider.

    Raises:
        OutputError: as for `write_out`.
    """
    if sys.stdout is not None and sys.stdout.isatty():
        from sparktop.report.document.document import wrap_markdown  # late: only on a terminal
        from sparktop.report.markdown import narrow_tables

        width = shutil.get_terminal_size().columns
        text = wrap_markdown(narrow_tables(text, width), min(width, _WIDEST))
    write_out(text)


def tell(message: str) -> None:
    """Write a message to standard error, each line cleaned and prefixed with "sparktop: "; ignore errors.

    On a terminal, lines that are wider are wrapped.
    """
    if sys.stderr is None:
        return
    lines = [f"sparktop: {clean(line, 1000)}" for line in message.splitlines()]
    try:
        if sys.stderr.isatty():
            width = shutil.get_terminal_size().columns
            lines = [fold_line(line, width) for line in lines]
        sys.stderr.write("".join(f"{line}\n" for line in lines))
        sys.stderr.flush()
    except OSError:
        return


def fold_line(line: str, width: int) -> str:
    """Wrap a line at spaces to at most `width` columns; a longer word, such as a path, stays whole."""
    return "\n".join(
        textwrap.wrap(line, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
        or [""]
    )


def check_file(path: Path) -> None:
    """Check, before a long measurement, that a file can later be written at `path`.

    Raises:
        OutputError: the folder of the file does not exist, or the path is a folder.
    """
    try:
        if path.is_dir():
            raise OutputError(f"{clean(path)}: is a folder; name a file in it")
        if not path.resolve().parent.is_dir():
            raise OutputError(f"{clean(path)}: there is no folder {clean(path.resolve().parent)}")
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: a loop of links, before Python 3.13
        raise OutputError(f"{clean(path)}: {reason_of(error)}") from None


def output_file(name: str | None, inputs: Iterable[str | None] = ()) -> Path | None:
    """Return the file that the value of -o names, after `check_file`; None for standard output.

    `inputs` are the paths that the command reads, also as NAME=FILE.

    Raises:
        OutputError: as for `check_file`, or the file is one of `inputs`, which would be lost.
    """
    if name in {None, "-"}:
        return None
    path = Path(str(name))
    check_file(path)
    for read in filter(None, inputs):
        for part in (read, read.partition("=")[2]):
            with suppress(OSError, ValueError):  # no file, or one that is not there
                if part and not is_device(path) and path.samefile(part):
                    raise OutputError(f"{clean(path)}: this command reads it; name another file for -o")
    return path


def write_result(path: Path | None, text: str, *, is_markdown: bool = False) -> None:
    """Write a result to a file, or with None to standard output, where Markdown fits the terminal.

    Raises:
        OutputError: it cannot be written.
    """
    if path is not None:
        write_file(path, text)
    elif is_markdown:
        write_markdown(text)
    else:
        write_out(text)


def write_file(path: Path, text: str) -> None:
    """Write `text` to a file completely or not at all, through a temporary file beside it.

    A device or pipe is written directly; a link is kept and its target replaced.

    Raises:
        OutputError: the file cannot be written.
    """
    write_parts(path, [text.encode()])


def is_device(path: Path) -> bool:
    """Return whether a path leads to a device or pipe, such as /dev/stdout."""
    return path.exists() and not path.is_file()


def write_parts(path: Path | None, parts: Iterable[bytes]) -> None:
    """Write a long result part by part: to a file as `write_file` does, or with None to standard output.

    Stop early if the reader of standard output has closed it.

    Raises:
        OutputError: the output cannot be written; also that nobody reads the pipe at `path` any more.
    """
    if path is None:
        _write_out_parts(parts)
        return
    check_file(path)
    try:
        if is_device(path):
            with path.open("wb") as device:
                device.writelines(parts)
        else:
            files.write_parts(path.resolve(), parts, files.SHARED)
    except OSError as error:
        raise OutputError(f"{clean(path)}: cannot be written: {reason_of(error)}") from None


def _write_out_parts(parts: Iterable[bytes]) -> None:
    """Write to standard output; do nothing more if its reader has closed it.

    Raises:
        OutputError: standard output is closed, full or broken.
    """
    if sys.stdout is None:
        raise OutputError("standard output is closed")
    try:
        sys.stdout.flush()
        _write_all(sys.stdout.buffer, parts)
    except BrokenPipeError:
        drop_out()
    except OSError as error:
        drop_out()
        raise OutputError(f"standard output: {reason_of(error)}") from None


def drop_out() -> None:
    """Redirect standard output to /dev/null, so that later flushes neither fail nor block."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        return
