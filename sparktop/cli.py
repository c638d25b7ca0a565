"""The command line: selects the command, parses its arguments, runs it, and returns its exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from types import ModuleType
from typing import NoReturn

from sparktop import __version__
from sparktop.commands.arguments import Parser
from sparktop.commands.output import drop_out, tell, write_out
from sparktop.ending import CLOSING_S, ENDING, INTERRUPTED
from sparktop.errors import SparktopError, UsageError
from sparktop.files import raise_open_files
from sparktop.model.text import clean

_NEARLY = 0.8
"""Similarity (0 to 1) from which on a word is taken for a mistyped command."""
COMMANDS: dict[str, str] = {
    "demo": "simulated servers on this machine, and the viewer on them",
    "snapshot": "watch for a moment, then one report: json, md, html, svg or txt",
    "sweep": "put load on servers and routers, level by level, and measure them",
    "capacity": "how many agents or requests a server can take under your conditions",
    "compare": "results of sweeps and published tables beside one another",
    "report": "a recording or a sweep with plots and tables: md, html, svg, csv or json",
    "record": "watch without a screen and keep everything in a file, to replay it later",
    "dump": "figures of a recording for other programs: jsonl, csv or openmetrics",
    "replay": "a recording on the screen as it was, at any moment and speed",
    "export": "what sparktop knows as metrics for Prometheus, without a screen",
    "serve": "the board in web browsers, live and read-only, without a screen",
    "agent": "serve this machine's readings to remote viewers, over HTTP or through ssh",
    "doctor": "what works, what does not and what to do, one line a check",
    "config": "print the configuration file or an example of one, check it, or list the themes",
}
"""Summaries of the commands, by name."""
ALIASES: dict[str, tuple[str, ...]] = {"themes": ("config", "themes")}
"""Words that stand for a command with its first argument."""
_PLAIN_NAMES = dict.fromkeys(("watch", "monitor", "view"), "sparktop TARGET") | {
    **dict.fromkeys(("bench", "benchmark", "loadtest"), "sweep"),
    **dict.fromkeys(("diagnose", "check"), "doctor"),
    **dict.fromkeys(("status", "screenshot"), "snapshot"),
    **dict.fromkeys(("browser", "web"), "serve"),
    **{word: f"--{word}" for word in ("help", "version")},
}
"""What users mean by words that are no commands."""

EXIT_CODES = """\
exit codes: 0 done; 1 the result is bad or could not be written; 2 usage or configuration;
3 nothing could be reached; 130 interrupted"""

_VIEWER = "watch"
_MODULES = {"sweep": "sweep.command"}
"""Modules in `sparktop.commands` that are not named like their command."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that `argv` (default: the process's arguments) names; return the exit code.

    Errors are reported on standard error; the traceback of a programming error goes to the log.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        return _dispatch(words)
    except SystemExit as end:  # argparse after --help
        return end.code if isinstance(end.code, int) else 0
    except SparktopError as error:
        tell(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        drop_out()
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001  # the last resort: a traceback belongs into the log
        return _log_bug(error)


def program() -> NoReturn:
    """Run `sparktop` and exit the process with its exit code.

    If threads or blocked writes delay the exit, the process is ended by force after some seconds.
    """
    ENDING.enabled = True
    raise_open_files()
    code = main()
    ENDING.begin(code, CLOSING_S)
    sys.exit(code)


def _dispatch(words: list[str]) -> int:
    called = words[0] if words else ""
    words = [*ALIASES.get(called, words[:1]), *words[1:]] if words else []
    first = words[0] if words else ""
    if first == "--version":
        write_out(f"sparktop {__version__}\n")
        return 0
    if first in COMMANDS:
        return _parse_and_run(parser_of(first, called), first, words[1:])
    _refuse_typo(first)
    return _parse_and_run(viewer_parser(), _VIEWER, words)


def _refuse_typo(word: str) -> None:
    """Raise UsageError for a word that is nearly a command or a plain name of one: no host was meant.

    A file, an address and a name with a dot, a colon, a digit or a hyphen are no mistyped commands.
    """
    if not (word.isalpha() and word.isascii() and word.islower()):
        return
    from difflib import get_close_matches  # late: only words that may be commands

    names = {name: name for name in (*COMMANDS, *ALIASES)} | _PLAIN_NAMES
    if near := get_close_matches(word[:64], names, n=1, cutoff=_NEARLY):
        raise UsageError(
            f"there is no command '{word[:64]}': did you mean '{names[near[0]]}'? "
            f"A host of that name is written {word[:64]}:8000"
        )


def parser_of(command: str, called: str = "") -> Parser:
    """Return the parser of a command, still without its arguments, which its module adds.

    `called` is the word that the user wrote, if it is an alias.
    """
    return Parser(f"sparktop {called or command}", description=_sentence(COMMANDS[command]))


def viewer_parser() -> Parser:
    """Return the parser of the viewer, still without the arguments that its module adds."""
    listed = "\n".join(f"  {name:<10}{summary}" for name, summary in COMMANDS.items())
    hint = "commands (each has --help; a host of such a name is written host:port):"
    parser = Parser(
        "sparktop",
        usage="sparktop [TARGET ...] [options]\n       sparktop COMMAND [options]",
        description="Watch LLM servers and the machines they run on, live in a terminal.",
        epilog=f"{hint}\n{listed}\n\n{EXIT_CODES}",
    )
    parser.add_argument("--version", action="version", version=f"sparktop {__version__}")
    return parser


def command_module(name: str) -> ModuleType:
    """Return the module of a command; it is loaded here, because a start needs only one."""
    return import_module(f"sparktop.commands.{_MODULES.get(name, name)}")


def _parse_and_run(parser: Parser, command: str, words: list[str]) -> int:
    module = command_module(command)
    add_arguments: Callable[[Parser], None] = module.add_arguments
    run: Callable[[object], int] = module.run
    add_arguments(parser)
    arguments, unknown = parser.parse_known_intermixed_args(words)
    targets = getattr(arguments, "targets", [])
    word = next((target for target in targets if target in COMMANDS), None)
    if command == _VIEWER and word is not None:
        # An option or TARGET came first. Taking a command for a host would start an unintended search.
        import shlex  # late: only here

        rest = [clean(one, 80) for one in words if one != word]
        raise UsageError(
            f"write the command first: sparktop {shlex.join([word, *rest])}; "
            f"a host of that name is written {word}:8000"
        )
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    return run(arguments)


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + "."


def _log_bug(error: Exception) -> int:
    """Write the traceback of `error` to the log and a one-line message to standard error.

    Return the exit code 1.
    """
    import logging  # late: only here

    from sparktop.logfile import open_log  # as above

    path = open_log(os.environ)
    logging.getLogger(__name__).error("unexpected error", exc_info=error)
    where = f"; the log has more: {clean(path, 300)}" if path else ""
    what = f"{type(error).__name__}: {clean(error)}".removesuffix(": ")
    tell(f"this is a bug: {what}{where}")
    return 1
