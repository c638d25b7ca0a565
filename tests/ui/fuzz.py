"""Random keys, clicks, pastes, resizes and suspensions on the demo in a real terminal, from a seed.

By hand, for any length: `python -m tests.ui.fuzz --seconds 600 --seed 3`, also as `make fuzz`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import re
import secrets
import sys
import tempfile
import termios
import time
from collections import deque
from contextlib import suppress
from pathlib import Path

import pyte

from sparktop.demo.scenario import SCENARIOS
from tests.ui.pseudo_terminal import Terminal

_SCRIPT = """set -m
"$0" "$@"; code=$?
while [ -n "$(jobs -s)" ]; do echo given back; read -r _; fg; code=$?; done
exit $code"""
SHELL = ("bash", "-c", _SCRIPT)
"""A shell with job control, which resumes a suspended program at the next line that is typed."""
SCENARIO_NAMES = tuple(SCENARIOS)
SIZES = ((80, 24), (80, 24), (120, 36), (200, 50), (60, 16), (40, 10))
LETTERS = "abcdefghijklmnoprstuvwxyzBCGMNPRSTV?/+-=.,;:#*!<>[]{}0123456789 "
SPECIAL = {
    "esc": "\x1b",
    "enter": "\r",
    "tab": "\t",
    "backtab": "\x1b[Z",
    "up": "\x1b[A",
    "down": "\x1b[B",
    "right": "\x1b[C",
    "left": "\x1b[D",
    "home": "\x1b[H",
    "end": "\x1b[F",
    "pgup": "\x1b[5~",
    "pgdn": "\x1b[6~",
    "delete": "\x1b[3~",
    "backspace": "\x7f",
    "f1": "\x1bOP",
    "f2": "\x1bOQ",
    "f5": "\x1b[15~",
    "f6": "\x1b[17~",
    "ctrl+p": "\x10",
    "ctrl+s": "\x13",
}
PASTES = ("spark", "10m ago", "line\nline", "\x1b[31mred", "a" * 300, "[/b] [red", "界 ⣿", "\udce9\udcff", "")
PATIENCE_S = 60.0
"""Seconds within which the program must answer on a busy machine."""
QUIET_S = 0.4
_UNKNOWN = re.compile(rb"\x1b\[[<>=][0-9;]*[A-Za-z]|\x1b\[\?[0-9;]*\$p|\x1b\](?:[^\x07\x1b])*(?:\x07|\x1b\\)")
"""Sequences that pyte would print: keyboard protocol, mode queries, titles and notifications."""
_FRAMES = frozenset("╭╮╰╯─│┐┌┏┓┗┛━┃")
_TIMELINE = 2
"""Rows from the timeline of a paused board on."""
_TRIES = 30
"""Most times that esc is pressed: a notice hides the key row, by which the board is known, for 5 s."""


class FuzzError(AssertionError):
    """The program did what it must not do."""


class Fuzz:
    """One run of the program under random input."""

    def __init__(self, home: Path, rng: random.Random) -> None:
        """Prepare a terminal of a random size; `home` is the program's home folder."""
        self.rng = rng
        self.terminal = Terminal(home)
        self.token = secrets.token_hex(8)
        self.terminal.env |= {"SPARKTOP_FUZZ": self.token, "COLORTERM": "truecolor"}
        self.scenario = rng.choice(SCENARIO_NAMES)
        self.size = rng.choice(SIZES[:4])
        self.screen = pyte.Screen(*self.size)
        self.stream = pyte.ByteStream(self.screen)
        self.fed = 0
        self.steps: deque[str] = deque(maxlen=40)
        """The last steps, for the message of a failure."""
        self.process: asyncio.subprocess.Process | None = None

    def resize(self, size: tuple[int, int]) -> None:
        """Give the terminal another size; the kernel tells the program."""
        self.size = size
        termios.tcsetwinsize(self.terminal.master if self.process else self.terminal.slave, size[::-1])
        self.look()
        self.screen.resize(size[1], size[0])

    def look(self) -> list[str]:
        """Return the rows of the screen as they are now."""
        data = self.terminal.seen[self.fed :]
        self.fed += len(data)
        self.stream.feed(_UNKNOWN.sub(b"", data))
        return list(self.screen.display)

    def sight(self) -> tuple[str, tuple[str, ...]]:
        """Return what a key may change on a board that is paused, whose clock and timeline go on alone."""
        rows = self.look()
        words = re.sub(r"[0-9]", "", rows[0])
        buffer = self.screen.buffer
        colours = tuple(
            f"{x},{y}:{buffer[y][x].fg}"
            for y in range(self.size[1] - _TIMELINE)
            for x in range(self.size[0])
            if buffer[y][x].data in _FRAMES
        )
        return "\n".join((words, *rows[1:-_TIMELINE], rows[-1])), colours

    def fail(self, why: str) -> FuzzError:
        """Return an error with the screen and the last steps."""
        screen = "\n".join(self.look())
        steps = " · ".join(self.steps)
        return FuzzError(f"{why}\n{self.scenario} {self.size}\nlast steps: {steps}\n{screen}")

    def send(self, what: str, data: str) -> None:
        """Type or point, and remember it."""
        self.steps.append(what)
        with suppress(OSError):  # it has ended, which is looked at elsewhere
            self.terminal.type(data.encode("utf-8", "surrogateescape"))

    async def until(self, done: object, why: str) -> None:
        """Wait until `done()` is true; fail after `PATIENCE_S` seconds, or where the program ends."""
        assert callable(done)
        end = time.monotonic() + PATIENCE_S
        while not done():
            if self.ended:
                raise self.fail(f"{why}: it ended")
            if time.monotonic() > end:
                raise self.fail(why)
            await asyncio.sleep(0.02)

    @property
    def ended(self) -> bool:
        """Whether the shell, and with it the program, has ended."""
        return self.process is None or self.process.returncode is not None

    async def quiet(self) -> None:
        """Wait until what was typed has been answered: the key row stands still."""
        last, since = "", time.monotonic()
        end = since + PATIENCE_S
        while time.monotonic() - since < QUIET_S and time.monotonic() < end and not self.ended:
            await asyncio.sleep(0.05)
            row = self.look()[-1]
            if row != last:
                last, since = row, time.monotonic()

    def on_board(self) -> bool:
        """Whether the board, or a screen too small for it, is shown without a dialog."""
        row = self.look()[-1]
        return self.size[0] < 60 or self.size[1] < 16 or " menu" in row or " more" in row

    # What is done at random

    def keys(self) -> None:
        """Press a key, the same twice, or some at once."""
        rng = self.rng
        names = [rng.choice(LETTERS) if rng.random() < 0.6 else rng.choice(list(SPECIAL)) for _ in range(6)]
        kind = rng.random()
        chosen = names[:1] if kind < 0.5 else names[:1] * 2 if kind < 0.75 else names[: rng.randint(2, 6)]
        self.send("+".join(chosen), "".join(SPECIAL.get(name, name) for name in chosen))

    def click(self) -> None:
        """Click somewhere above the last row, which can quit, perhaps twice; or turn the wheel."""
        x, y = self.rng.randint(1, self.size[0]), self.rng.randint(1, max(1, self.size[1] - 1))
        if self.rng.random() < 0.3:
            button = self.rng.choice((64, 65))
            self.send(f"wheel {x},{y}", f"\x1b[<{button};{x};{y}M")
            return
        times = self.rng.choice((1, 1, 2, 3))
        self.send(f"click {x},{y}×{times}", f"\x1b[<0;{x};{y}M\x1b[<0;{x};{y}m" * times)

    def paste(self) -> None:
        """Paste text, also text that would be an escape sequence."""
        text = self.rng.choice(PASTES)
        self.send(f"paste {text[:10]!r}", f"\x1b[200~{text}\x1b[201~")

    async def suspend(self) -> None:
        """Suspend with Ctrl-Z; if it did, the shell resumes it, and it draws everything again."""
        before = len(self.terminal.seen)
        self.send("ctrl+z", "\x1a")
        refused = b"cannot be suspended"
        await self.until(
            lambda: any(word in self.terminal.seen[before:] for word in (b"given back", refused)),
            "Ctrl-Z did nothing",
        )
        if refused in self.terminal.seen[before:]:
            return
        before = len(self.terminal.seen)
        self.terminal.type(b"\n")
        await self.until(lambda: b"\x1b[?1049h" in self.terminal.seen[before:], "fg did not draw")

    async def home(self) -> None:
        """Go back to the board."""
        for _ in range(_TRIES):
            self.send("esc", "\x1b")
            await self.quiet()
            if self.ended or self.on_board():
                return
        raise self.fail("esc does not lead back to the board")

    async def pause(self) -> None:
        """Go back to the board and pause it: from then on it changes with keys alone."""
        for _ in range(_TRIES):
            await self.home()
            if self.ended or re.search(r" p live ", self.look()[-1]):
                return
            self.send("p", "p")
            await self.quiet()
        raise self.fail("p does not pause the board")

    async def row_key(self) -> None:
        """Click a word of the key row of a paused board: something on the screen must change."""
        await self.home()
        if self.size[0] < 60 or self.size[1] < 16:
            return
        await self.pause()
        if self.ended:
            return
        row = self.look()[-1]
        words = [found for found in re.finditer(r"\S+", row) if len(found[0]) > 2]
        words = [found for found in words if found[0] not in {"quit", "more", "suspends"}]
        word = self.rng.choice(words)
        before = self.sight()
        x = word.start() + 1 + len(word[0]) // 2
        self.send(f"row '{word[0]}'", f"\x1b[<0;{x};{self.size[1]}M\x1b[<0;{x};{self.size[1]}m")
        await self.until(lambda: self.sight() != before, f"'{word[0]}' of the key row did nothing")

    async def notices(self) -> None:
        """Press a key of the board that says what it did: the bottom row must say it."""
        await self.home()
        if self.size[0] < 60 or self.size[1] < 16:
            return
        before, end = len(self.terminal.seen), time.monotonic() + PATIENCE_S
        # Again, because another notice, as of a report, may take its place before it is drawn.
        while not re.search(rb"sorted: |processes by ", self.terminal.seen[before:]):
            if self.ended or time.monotonic() > end:
                raise self.fail("the notice of 'o' is not on the screen")
            if not self.on_board():  # a screen that opened late, as the history after its files are read
                await self.home()
            self.send("o", "o")
            await asyncio.sleep(2.0)

    async def step(self) -> None:
        """Do something at random."""
        kind = self.rng.random()
        if kind < 0.55:
            self.keys()
        elif kind < 0.75:
            self.click()
        elif kind < 0.80:
            self.paste()
        elif kind < 0.86:
            size = self.rng.choice(SIZES)
            self.steps.append(f"size {size}")
            self.resize(size)
        elif kind < 0.89:
            await self.suspend()
        elif kind < 0.96:
            await self.row_key()
        else:
            await self.notices()

    # A whole life

    async def live(self, until: float) -> None:
        """Start the program, play until the monotonic time `until`, end it, and look for what it left."""
        self.resize(self.size)
        async with self.terminal.running("demo", "--scenario", self.scenario, leader=SHELL) as process:
            self.process = process
            await self.until(lambda: any("┌" in row for row in self.look()), "nothing was drawn")
            while time.monotonic() < until and not self.ended:
                await self.step()
                await asyncio.sleep(self.rng.choice((0.0, 0.01, 0.05, 0.3)))
                self.check()
            await self.leave(process)
        await self.nothing_is_left()

    def check(self) -> None:
        """Fail at a traceback on the screen or in the log."""
        text = self.terminal.seen.decode(errors="replace") + self.terminal.logs()
        if "Traceback" in text or "ScreenStackError" in text:
            raise self.fail("a traceback")

    async def leave(self, process: asyncio.subprocess.Process) -> None:
        """Quit, and answer the question about a running sweep."""
        if not self.ended:
            self.resize((80, 24))
            await self.home()
        end = time.monotonic() + PATIENCE_S
        while not self.ended and time.monotonic() < end:
            self.send("q", "q")
            await asyncio.sleep(0.5)
            if not self.ended:
                self.send("y", "y")
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), 3.0)
        if not self.ended:
            raise self.fail("q did not end it")
        self.check()
        if process.returncode != 0:
            raise self.fail(f"it ended with {process.returncode}")

    async def nothing_is_left(self) -> None:
        """Fail where a process of the run goes on."""
        end = time.monotonic() + PATIENCE_S
        while left := processes_with(self.token):
            if time.monotonic() > end:
                raise self.fail(f"processes are left: {left}")
            await asyncio.sleep(0.1)


def processes_with(token: str) -> list[str]:
    """Return the command lines of the processes whose environment has the token."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if token.encode() in (folder / "environ").read_bytes() and int(folder.name) != os.getpid():
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return found


async def fuzz(seed: int, seconds: float, each_s: float = 30.0) -> int:
    """Play programs one after another for `seconds`; return the number of steps.

    Raises:
        FuzzError: one did what it must not do; the message has the last steps and the screen.
    """
    rng, end, count = random.Random(seed), time.monotonic() + seconds, 0  # noqa: S311 - no secret
    while (now := time.monotonic()) < end:
        with tempfile.TemporaryDirectory() as home:
            one = Fuzz(Path(home), rng)
            await one.live(min(end, now + each_s))
            count += len(one.steps)
    return count


def main() -> None:
    """Fuzz from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))  # noqa: S311 - no secret
    arguments = parser.parse_args()
    sys.stderr.write(f"seed {arguments.seed}\n")
    asyncio.run(fuzz(arguments.seed, arguments.seconds))


if __name__ == "__main__":
    main()
