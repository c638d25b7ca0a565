"""Shared parts of the commands' arguments: a parser with one-line errors, common options, what they name."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from sparktop import typed as typed_numbers
from sparktop.commands.output import tell, write_out
from sparktop.errors import UsageError, did_you_mean
from sparktop.files import find_config
from sparktop.model.instant import MAX_INTERVAL_S, MAX_TIMEOUT_S, MIN_INTERVAL_S, MIN_TIMEOUT_S
from sparktop.model.text import clean

if TYPE_CHECKING:
    from sparktop.agent.access import Service
    from sparktop.agent.unit import UnitFlags
    from sparktop.config.watch import Needs
    from sparktop.model.targets import Watch


Parsed = TypeVar("Parsed")
_UNKNOWN = "unrecognized arguments: "
"""How argparse begins its message on options that do not exist."""
_INVALID_CHOICE = re.compile(r"argument (.+): invalid choice: '?(.*?)'? \(choose from (.*)\)", re.DOTALL)
"""argparse's message on a value that is none of an option's choices."""
_FEW_CHOICES = 8
"""Most choices that an error message lists."""
_ENDINGS = {
    ".json": "json",
    ".md": "md",
    ".html": "html",
    ".csv": "csv",
    ".svg": "svg",
    ".txt": "txt",
    ".jsonl": "jsonl",
    ".om": "openmetrics",
    ".prom": "openmetrics",
    ".htm": "html",
    ".markdown": "md",
    ".text": "txt",
}
"""Output formats by the ending of a file."""


_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""A name of an environment variable."""
_WATCH_OPTIONS = ("interval", "timeout", "theme", "seconds", "max_bytes")
"""Options of commands that watch, where they have them, that a systemd unit repeats."""


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
        message = self._choice_words(message)
        word = message.removeprefix(_UNKNOWN).partition(" ")[0].partition("=")[0]
        is_option = message.startswith(f"{_UNKNOWN}--")
        suggestion = self._option_near(word) if is_option else ""
        text = f"{clean(message, 300)}{suggestion}"
        raise UsageError(f"{text}{' See' if text.endswith('?') else '; see'} {self.prog} --help")

    def _print_message(self, message: str, file: object = None) -> None:  # noqa: ARG002  # argparse has it
        """Write help or version as the result of a command: what cannot be written is an `OutputError`."""
        write_out(message)

    def _option_near(self, word: str, *others: str) -> str:
        """Return ": did you mean '--config'?" if `word` is nearly an option, or one of `others`; else ""."""
        visible = [option for option in self._actions if option.help != argparse.SUPPRESS]
        options = [name for option in visible for name in option.option_strings if name.startswith("--")]
        names = {name.removeprefix("--"): name for name in options} | {name: name for name in others}
        suggestion = did_you_mean(word.removeprefix("--"), names)
        # It quotes keys of `names`: the dashes come back.
        return re.sub("'(.*?)'", lambda quoted: f"'{names[quoted[1]]}'", suggestion)

    def _choice_words(self, message: str) -> str:
        """Return argparse's message on a wrong choice with a suggestion, or with a few choices.

        For a positional argument, an option may have been meant.
        """
        wrong = _INVALID_CHOICE.fullmatch(message)
        if wrong is None:
            return message
        option, value, listed = wrong.groups()
        choices = re.findall(r"[\w.-]+", listed)
        is_option = option.startswith("-")
        hint = did_you_mean(value, choices) if is_option else self._option_near(value, *choices)
        if not hint and len(choices) <= _FEW_CHOICES:
            hint = f": choose from {', '.join(choices)}"
        of = f"{option}: " if is_option else ""  # the name of a positional argument is not typed
        return f"{of}there is no '{value}'{hint}"


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


def argument_type(read: Callable[[str], Parsed]) -> Callable[[str], Parsed]:
    """Wrap `read` as an argument type for argparse: its `UsageError` becomes an `ArgumentTypeError`."""

    def parse(text: str) -> Parsed:
        try:
            return read(text)
        except UsageError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parse


def number(least: float, most: float, unit: str = "") -> Callable[[str], float]:
    """Return an argument type for argparse that accepts a number from `least` to `most`.

    `unit`, such as " seconds", follows the limits in the error message.
    """
    return argument_type(lambda text: typed_numbers.number(text, least, most, unit))


def seconds(least: float, most: float) -> Callable[[str], float]:
    """Return an argument type for argparse that accepts a time of `least` to `most` seconds, as 10s or 2m."""
    return argument_type(lambda text: typed_numbers.seconds(text, least, most))


def whole_number(least: int, most: int) -> Callable[[str], int]:
    """Return an argument type for argparse that accepts an integer from `least` to `most`."""
    return argument_type(lambda text: typed_numbers.whole_number(text, least, most))


def format_name(text: str) -> str:
    """Return the name of the output format `text`: itself, or "txt" for "text", "md" for "markdown"."""
    return _ENDINGS.get(f".{text}", text)


def chosen_format(asked: str | None, output: Path | None, formats: Collection[str], default: str) -> str:
    """Return the output format: `asked` if given, else by the ending of `output`, else `default`.

    `formats` are those of the command. A file without an ending holds any.

    Raises:
        UsageError: the ending of `output` is that of another format; without `asked` also if it is of none.
    """
    ending = "" if output is None else output.suffix.lower()
    of_ending = _ENDINGS.get(ending)
    if asked is not None:
        if of_ending in {None, asked} or (of_ending, asked) == ("md", "post"):
            return asked
        instead = f"leave --format out for {of_ending}, or " if of_ending in formats else ""
        raise UsageError(
            f"{clean(output, 200)}: --format {asked} is not what {ending} files hold; "
            f"{instead}name another file"
        )
    if of_ending is not None and of_ending in formats:
        return of_ending
    if not ending:
        return default
    endings = ", ".join(suffix for suffix, form in _ENDINGS.items() if form in formats)
    raise UsageError(
        f"{clean(output, 200)}: the ending {clean(ending, 40)} names no format: "
        f"end the name in one of {endings}, or give --format"
    )


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


def configured_watch(name: str | None, env: Mapping[str, str], *, needed: bool = True) -> Watch | None:
    """Return what the configuration file names, and print its warnings; None without a file.

    `name` is the file's name if the user gave one. Where the file is not `needed`, since the arguments say
    what is meant, one that was only found and may not do what it says is left out, with a line that says so.

    Raises:
        ConfigError: the file cannot be used, or it is needed, was only found and may not do what it says.
    """
    path = find_config(name, env)
    if path is None:
        return None
    # Late: without a file they are not needed.
    from sparktop.config.schema import check
    from sparktop.config.trust import UntrustedError, read_checked, request_trust

    try:
        text, status, was_discovered = read_checked(name, path, env)
        config = check(path, text)
        trusted = not was_discovered or request_trust(path, status, text, config.sensitive_settings(), env)
    except UntrustedError as error:
        if needed:
            raise
        tell(str(error).partition("\n")[0])
        return None
    for line in config.warnings(env):
        tell(line)
    return replace(config.watch(env), is_trusted=trusted)


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


def target_keys(
    options: Sequence[str], texts: Sequence[str], env: Mapping[str, str], *, targets: int | None = None
) -> dict[str, str]:
    """Return the API keys that the values `options` of --api-key-env name, by the target of each.

    A value is TARGET=NAME, or with a single target NAME alone; the key is in the variable NAME of `env`.
    TARGET must be one of `texts`: the TARGET arguments, and after them what else names a target. `targets` is
    how many targets there are; None stands for as many as `texts`.

    Raises:
        UsageError: a value names no variable that is set, or not which target it is for. The message quotes
            no value that may be the key itself.
    """
    if not options:
        return {}
    # Late: most starts have no key.
    from sparktop.config.watch import variable_words
    from sparktop.net.failure import key_problem

    keys: dict[str, str] = {}
    targets = len(texts) if targets is None else targets
    for option in options:
        text, _, name = option.strip().rpartition("=")
        if not targets:
            raise UsageError(
                "--api-key-env NAME needs a TARGET after it, as in --api-key-env MY_KEY 127.0.0.1:8000; the "
                "configuration file has api_key_env for each server"
            )
        if not text and targets > 1:
            raise UsageError("--api-key-env: several TARGETs; say whose key it is: --api-key-env TARGET=NAME")
        if text and text not in texts:
            raise UsageError(f"--api-key-env: {clean(text, 60)} is none of the TARGETs beside it")
        if not _VARIABLE.fullmatch(name):
            raise UsageError("--api-key-env takes the name of an environment variable, never the key itself")
        if not env.get(name):
            raise UsageError(f"--api-key-env: {variable_words(name)} is not set")
        if (problem := key_problem(env[name])) is not None:
            raise UsageError(f"--api-key-env: {problem}")
        keys[text or texts[0]] = env[name]
    return keys


def add_interval(parser: argparse.ArgumentParser) -> None:
    """Add the option --interval."""
    parser.add_argument(
        "--interval",
        type=seconds(MIN_INTERVAL_S, MAX_INTERVAL_S),
        metavar="TIME",
        help="polling interval of engines (default 1s); nodes are polled half as often",
    )


def refuse_beside(reason: str, arguments: argparse.Namespace, *names: str) -> None:
    """Refuse the arguments of these `names` that were given and would have no effect, for a `reason`.

    Raises:
        UsageError: one was given; the message is such as "--check reads a recording: leave out --seconds".
    """
    for name in names:
        if getattr(arguments, name):
            option = "TARGET" if name == "targets" else f"--{name.replace('_', '-')}"
            raise UsageError(f"{reason}: leave out {option}")


def add_timeout(parser: argparse.ArgumentParser) -> None:
    """Add the option --timeout."""
    parser.add_argument(
        "--timeout",
        type=seconds(MIN_TIMEOUT_S, MAX_TIMEOUT_S),
        metavar="TIME",
        help="longest time that a server may take for its metrics (default 10s)",
    )


def add_theme(parser: argparse.ArgumentParser) -> None:
    """Add the option --theme."""
    parser.add_argument("--theme", metavar="NAME", help="one of those that sparktop config themes lists")


def add_output_file(parser: argparse._ActionsContainer) -> None:
    """Add the option -o, which names the file of the result."""
    parser.add_argument("-o", "--output", metavar="FILE", help="write there instead of to standard output")


def add_drawing(parser: argparse.ArgumentParser) -> None:
    """Add the options of the screen: --interval, --theme and --low-bandwidth."""
    add_interval(parser)
    add_theme(parser)
    parser.add_argument(
        "--low-bandwidth",
        action="store_true",
        help="draw seldom and coarsely, under 2 kB/s at 120x36: for slow lines",
    )


class Listening(Struct, frozen=True):
    """What commands that answer HTTP have in common: their options, their service and their systemd unit."""

    command: str
    port: int
    """Where it listens unless --listen says otherwise, on 127.0.0.1."""
    variable: str
    """Name of the environment variable that may hold the token."""
    page: str = ""
    """Path of the only page, for the printed URL; empty for a server with several."""

    @property
    def default(self) -> str:
        """The default of --listen."""
        return f"127.0.0.1:{self.port}"

    def add_options(
        self,
        parser: argparse.ArgumentParser,
        *,
        client: str,
        insecure: str,
        exclusive_group: argparse._ActionsContainer | None = None,
    ) -> None:
        """Add --listen, --token-file, --tls-cert, --tls-key, --insecure, --name and --systemd-unit.

        `client` is who must know the token, in words; `insecure` is the help of --insecure. `exclusive_group`
        has the options that exclude --systemd-unit.
        """
        parser.add_argument(
            "--listen",
            metavar="HOST:PORT",
            default=self.default,
            help=f"default {self.default}; any address that others can reach wants a token",
        )
        parser.add_argument(
            "--token-file",
            metavar="FILE",
            help=f"its first line is the token that {client} must know (else ${self.variable})",
        )
        parser.add_argument("--tls-cert", metavar="FILE", help="the certificate, PEM")
        parser.add_argument("--tls-key", metavar="FILE", help="its key, PEM, without a password")
        parser.add_argument("--insecure", action="store_true", help=insecure)
        parser.add_argument(
            "--name",
            action="append",
            default=[],
            metavar="HOST",
            dest="names",
            help="another name of this server, such as that of a proxy before it; may be given again",
        )
        (exclusive_group or parser).add_argument(
            "--systemd-unit", action="store_true", help="print a unit with these arguments"
        )

    def address(self, arguments: argparse.Namespace) -> tuple[str, int]:
        """Return (host, port) of --listen.

        Raises:
            UsageError: it is not an address.
        """
        from sparktop.agent.access import parse_listen  # late: --help needs none of it

        return parse_listen(arguments.listen, self.port)

    def token(self, arguments: argparse.Namespace) -> str | None:
        """Return the token of --token-file or of the environment; print a warning about its file.

        Raises:
            UsageError: the token cannot be used.
        """
        from sparktop.agent.access import read_token  # late: as above

        token, warning = read_token(arguments.token_file, os.environ, self.variable)
        if warning is not None:
            tell(warning)
        return token

    @staticmethod
    def names(arguments: argparse.Namespace, host: str, token: str | None) -> Collection[str] | None:
        """Return the host names that a request may name, against DNS rebinding (`is_own`).

        None stands for any: with a `token` each request needs it, and a foreign page does not have it.
        """
        from sparktop.agent.access import own_names  # late: as above

        return own_names(host, arguments.names) if token is None else None

    def service(self, arguments: argparse.Namespace, address: tuple[str, int], token: str | None) -> Service:
        """Return the service with its bound port.

        Raises:
            UsageError: token and address do not fit, the certificate cannot be used, or the port is taken.
        """
        from sparktop.agent.access import prepare  # late: as above

        return prepare(
            address,
            token,
            cert=arguments.tls_cert,
            key=arguments.tls_key,
            insecure=arguments.insecure,
            variable=self.variable,
        )

    def announce(self, service: Service) -> None:
        """Print where the service listens, and a warning if it has one."""
        for line in (service.warning(), service.about(self.command, self.page)):
            if line is not None:
                tell(line)

    def flags(self, arguments: argparse.Namespace) -> UnitFlags:
        """Return the options with which a systemd unit starts the command."""
        from sparktop.agent.unit import UnitFlags  # late: as above

        return UnitFlags(
            program_path(),
            arguments.listen if arguments.listen != self.default else None,
            arguments.token_file,
            arguments.tls_cert,
            arguments.tls_key,
            arguments.insecure,
            tuple(arguments.names),
            command=self.command,
        )

    def unit(self, arguments: argparse.Namespace) -> str:
        """Return a systemd unit that runs the command with these arguments."""
        from sparktop.agent.unit import watching_unit  # late: as above

        return watching_unit(self.flags(arguments), *unit_words(arguments))


def unit_words(arguments: argparse.Namespace) -> tuple[list[str], Needs]:
    """Return the words of a unit's command line that say what is watched and how, and what that needs.

    They are quoted for systemd.

    Raises:
        UsageError: a target holds a password.
    """
    from sparktop.agent.unit import quote_word, unit_watch_words  # late: --help needs none of it

    words, needs = unit_watch_words(arguments.config, arguments.targets)
    for name in _WATCH_OPTIONS:
        value = getattr(arguments, name, None)
        if value is not None:
            words += [f"--{name.replace('_', '-')}", quote_word(str(value))]
    for key in arguments.api_key_env:
        words += ["--api-key-env", quote_word(key)]
        needs = replace(needs, variables=True)
    return words, needs


def program_path() -> Path:
    """Return the absolute path of the `sparktop` command, for use in a systemd unit."""
    started = Path(sys.argv[0])
    if started.name != "sparktop":  # python -m sparktop
        beside = Path(sys.executable).with_name("sparktop")
        program = str(beside) if beside.exists() else shutil.which("sparktop")
        started = Path(program or "/usr/bin/sparktop")
    elif not started.exists():
        started = Path(shutil.which("sparktop") or started)
    return started.absolute()
