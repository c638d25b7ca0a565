"""Shared parts of the commands' arguments: a parser with one-line errors, bounded numbers, common options."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import NoReturn, TypeVar

from sparktop import typed as typed_numbers
from sparktop.errors import UsageError
from sparktop.model.instant import MAX_INTERVAL_S, MAX_TIMEOUT_S, MIN_INTERVAL_S, MIN_TIMEOUT_S
from sparktop.model.text import clean
from sparktop.nearest import did_you_mean

Value = TypeVar("Value")
_UNKNOWN = "unrecognized arguments: "
"""How argparse begins its message on options that do not exist."""
_FORMATS = {"text": "txt", "htm": "html", "markdown": "md"}
"""Names of formats by other words for them."""


class Parser(argparse.ArgumentParser):
    """An argument parser that raises one-line errors and does not accept abbreviated options."""

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
        """Raise `message` as a `UsageError` with a hint at --help, instead of printing it and exiting.

        Of an unknown option, the message names the most similar one.

        Raises:
            UsageError: always.
        """
        near = self._option_near(message.removeprefix(_UNKNOWN)) if message.startswith(_UNKNOWN) else ""
        raise UsageError(f"{clean(message, 300)}{f'{near} See' if near else '; see'} {self.prog} --help")

    def _option_near(self, words: str) -> str:
        """Return ": did you mean '--config'?" if the first of `words` is nearly an option; else ""."""
        shown = [one for one in self._actions if one.help != argparse.SUPPRESS]
        names = [name for one in shown for name in one.option_strings if name.startswith("--")]
        word = words.partition(" ")[0].partition("=")[0]
        near = did_you_mean(word.removeprefix("--"), [name.removeprefix("--") for name in names])
        return near.replace("'", "'--", 1) if word.startswith("--") else ""


class _Removed(argparse.Action):
    """Ends parsing with one line that says what replaces an option of earlier versions."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,  # noqa: ARG002  # argparse passes it
        values: str | Sequence[object] | None,  # noqa: ARG002  # as above
        option_string: str | None = None,
    ) -> NoReturn:
        parser.error(f"{option_string} was removed: {self.const}")


def refuse_removed(parser: argparse.ArgumentParser, option: str, instead: str) -> None:
    """Refuse an option of earlier versions with one line; `instead` says what remains for its purpose."""
    parser.add_argument(option, action=_Removed, nargs="*", const=instead, help=argparse.SUPPRESS)


def typed(read: Callable[[str], Value]) -> Callable[[str], Value]:
    """Wrap `read` as an argument type for argparse: its `UsageError` becomes an `ArgumentTypeError`."""

    def parse(text: str) -> Value:
        try:
            return read(text)
        except UsageError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parse


def number(least: float, most: float, unit: str = "") -> Callable[[str], float]:
    """Return an argument type for argparse that accepts a number from `least` to `most`.

    `unit`, such as " seconds", follows the limits in the error message.
    """
    return typed(lambda text: typed_numbers.number(text, least, most, unit))


def seconds(least: float, most: float) -> Callable[[str], float]:
    """Return an argument type for argparse that accepts a time of `least` to `most` seconds, as 10s or 2m."""
    return typed(lambda text: typed_numbers.seconds(text, least, most))


def whole_number(least: int, most: int) -> Callable[[str], int]:
    """Return an argument type for argparse that accepts an integer from `least` to `most`."""
    return typed(lambda text: typed_numbers.whole_number(text, least, most))


def format_name(text: str) -> str:
    """Return the name of an output format; that of another word for it, such as "text" for txt."""
    return _FORMATS.get(text, text)


def add_targets(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that choose what to watch: TARGET… and --config."""
    parser.add_argument(
        "targets",
        nargs="*",
        metavar="TARGET",
        help="a host (its usual ports are tried), host:port, URL, or prometheus+URL; "
        "default: from the configuration file",
    )
    parser.add_argument("--config", metavar="FILE", help="the configuration file (see sparktop config)")
    add_keys(parser)


def add_keys(parser: argparse._ActionsContainer) -> None:
    """Add the option --api-key-env."""
    parser.add_argument(
        "--api-key-env",
        action="append",
        default=[],
        metavar="[TARGET=]NAME",
        help="the environment variable with the API key of TARGET, which gets it and nobody else; with one "
        "TARGET its name alone",
    )


def add_interval(parser: argparse.ArgumentParser) -> None:
    """Add the option --interval."""
    parser.add_argument(
        "--interval",
        type=seconds(MIN_INTERVAL_S, MAX_INTERVAL_S),
        metavar="TIME",
        help="polling interval of engines (default 1s); nodes are polled half as often",
    )


def add_timeout(parser: argparse.ArgumentParser) -> None:
    """Add the option --timeout."""
    parser.add_argument(
        "--timeout",
        type=seconds(MIN_TIMEOUT_S, MAX_TIMEOUT_S),
        metavar="TIME",
        help="longest time that a server may take for its metrics (default 10s)",
    )


def add_drawing(parser: argparse.ArgumentParser) -> None:
    """Add the options of the screen: --interval, --theme and --low-bandwidth."""
    add_interval(parser)
    parser.add_argument("--theme", metavar="NAME", help="one of those that sparktop themes lists")
    parser.add_argument(
        "--low-bandwidth",
        action="store_true",
        help="draw seldom and coarsely, under 2 kB/s at 120x36: for slow lines",
    )
