"""Reads a file that may be long in a thread, and continues on the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from sparktop.errors import UsageError
from sparktop.model.text import clean

Result = TypeVar("Result")


def read_in_thread(
    path: str, read: Callable[[], Result | UsageError], ended: Callable[[Result | UsageError], None]
) -> None:
    """Call `read`, which reads the file `path`, in a thread; then call `ended` on the event loop.

    `ended` gets what `read` returns, or as a UsageError why the file cannot be used. The end of the program
    does not wait for the thread.
    """
    loop = asyncio.get_running_loop()

    def work() -> None:
        result: Result | UsageError
        try:
            result = read()
        except UsageError as error:
            result = error
        except (OSError, ValueError, RecursionError) as error:
            result = UsageError(f"{clean(path, 200)}: {clean(error, 100)}")
        with suppress(RuntimeError):  # the program ends
            loop.call_soon_threadsafe(ended, result)

    threading.Thread(target=work, name="file-reading", daemon=True).start()
