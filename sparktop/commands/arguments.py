"""Shared parts of the commands' arguments: one-line errors, bounded numbers, targets."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NoReturn, TypeVar

from sparktop import typed as typed_numbers
from sparktop.errors import UsageError
from sparktop.model.targets import MAX_INTERVAL_S, MIN_INTERVAL_S
from sparktop.model.text import clean

Value = TypeVar("Value")


class Parser(argparse.ArgumentParser):
    """argparse with one-line errors and without abbreviated options."""

    def __init__(
        self, prog: str, *, description: str, epilog: str | None = None, usage: str | None = None
    ) -> None:
        super().__init__(
            prog=prog,
            usage=usage,
            description=description,
            epilog=epilog,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    def error(self, message: str) -> NoReturn:
        """Raise an error in the arguments as a `UsageError`.

        Raises:
            UsageError: always.
        """
        raise UsageError(f"{clean(message, 300)}; see {self.prog} --help")


def typed(read: Callable[[str], Value]) -> Callable[[str], Value]:
    """Convert a parser that raises `UsageError` into an argument type for argparse."""

    def parse(text: str) -> Value:
        try:
            return read(text)
        except UsageError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parse


def number(least: float, most: float, unit: str = "") -> Callable[[str], float]:
    """Return an argument type: a number from `least` to `most`."""
    return typed(lambda text: typed_numbers.number(text, least, most, unit))


def whole_number(least: int, most: int) -> Callable[[str], int]:
    """Return an argument type: an integer from `least` to `most`."""
    return typed(lambda text: typed_numbers.whole_number(text, least, most))


def add_targets(parser: argparse.ArgumentParser) -> None:
    """Add the choice of what to watch: TARGET… and --config."""
    parser.add_argument(
        "targets",
        nargs="*",
        metavar="TARGET",
        help="a host (its usual ports are tried), host:port or URL; with none, the configuration file says",
    )
    parser.add_argument("--config", metavar="FILE", help="the configuration file (see sparktop config)")


def add_drawing(parser: argparse.ArgumentParser) -> None:
    """Add the options of drawing: --interval, --theme and --low-bandwidth."""
    parser.add_argument(
        "--interval",
        type=number(MIN_INTERVAL_S, MAX_INTERVAL_S, " seconds"),
        metavar="S",
        help="seconds between two looks at an engine (default 1); nodes are looked at half as often",
    )
    parser.add_argument("--theme", metavar="NAME", help="one of those that sparktop themes lists")
    parser.add_argument(
        "--low-bandwidth",
        action="store_true",
        help="draw seldom and coarsely, under 2 kB/s at 120x36: for slow lines",
    )
