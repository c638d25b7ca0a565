"""Write shell completions and manual pages from the commands' parsers when the wheel is built.

`manuals.py FOLDER` writes them below FOLDER for inspection. As a build hook, the script adds them to the
wheel's data, so that an installation has them below `share/`.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import shtab
from argparse_manpage.manpage import Manpage  # type: ignore[import-untyped]  # ships no types
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from sparktop import __version__
from sparktop.cli import COMMANDS, EXIT_CODES, command_module, parser_of, viewer_parser
from sparktop.commands.arguments import Parser

COMPLETIONS = {
    "bash": "share/bash-completion/completions/sparktop",
    "zsh": "share/zsh/site-functions/_sparktop",
    "fish": "share/fish/vendor_completions.d/sparktop.fish",
}
PAGES = "share/man/man1"


def _viewer() -> Parser:
    parser = viewer_parser()
    command_module("watch").add_arguments(parser)
    return parser


def _name_files(parser: argparse.ArgumentParser) -> None:
    """Mark the arguments whose placeholder contains FILE for completion with file names."""
    for action in parser._actions:  # noqa: SLF001  # argparse has no public list of them
        if action.metavar is not None and "FILE" in str(action.metavar):
            action.complete = shtab.FILE  # type: ignore[attr-defined]  # shtab reads it there


def completions() -> dict[str, str]:
    """Return the text of each shell's completion, by its path below the installation prefix."""
    parser = _viewer()
    # A first word that is not an option is completed as a command, since hosts cannot be listed.
    actions = parser._actions  # noqa: SLF001  # argparse has no public list of them
    actions[:] = [action for action in actions if action.dest != "targets"]
    _name_files(parser)
    commands = parser.add_subparsers(dest="command", parser_class=Parser)
    for name, summary in COMMANDS.items():
        one = commands.add_parser(name, help=summary, description=summary)
        command_module(name).add_arguments(one)
        _name_files(one)
    return {place: shtab.complete(parser, shell) for shell, place in COMPLETIONS.items()}


def _page(parser: Parser, summary: str, others: str, more: str = "") -> str:
    # With a date, builds would not be reproducible.
    data = {"description": summary, "version": __version__, "manual_title": "sparktop", "date": ""}
    page = str(Manpage(parser, _data=data))
    page = re.sub(
        r"(?m)^\.TH .*$",
        f'.TH "{parser.prog.upper().replace(" ", "-")}" "1" "" "sparktop {__version__}"',
        page,
    )
    # The usage has two forms: put the second on a line of its own.
    page = page.replace("[options] sparktop COMMAND", "[options]\n.br\n.B sparktop\nCOMMAND")
    codes = EXIT_CODES.removeprefix("exit codes: ").replace("-", r"\-")
    return f"{page.rstrip()}\n{more}.SH EXIT STATUS\n{codes}\n.SH SEE ALSO\n{others}\n"


def pages() -> dict[str, str]:
    """Return the text of each manual page, by its path below the installation prefix."""
    names = ", ".join(f"\\fBsparktop\\-{name}\\fR(1)" for name in COMMANDS)
    summary = "watch LLM servers and the machines they run on, live in a terminal"
    viewer = _viewer()
    viewer.epilog = None  # the same list of commands, unformatted
    listed = "".join(f".TP\n\\fB{name}\\fR\n{what}\n" for name, what in COMMANDS.items())
    found = {f"{PAGES}/sparktop.1": _page(viewer, summary, names, f".SH COMMANDS\n{listed}")}
    for name, what in COMMANDS.items():
        parser = parser_of(name)
        command_module(name).add_arguments(parser)
        found[f"{PAGES}/sparktop-{name}.1"] = _page(parser, what, "\\fBsparktop\\fR(1)")
    return found


def write(folder: Path) -> dict[str, str]:
    """Write all files below `folder`; return the path below the installation prefix by the path written."""
    written = {}
    for place, text in (completions() | pages()).items():
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        written[str(path)] = place
    return written


class ManualsHook(BuildHookInterface[Any]):
    """Build hook that adds the completions and manual pages to a wheel's data."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the files and register them as data; do nothing for an editable installation."""
        if version == "editable":
            return
        self.folder = tempfile.TemporaryDirectory(prefix="sparktop-manuals-")
        build_data["shared_data"].update(write(Path(self.folder.name)))

    def finalize(self, version: str, *_: object) -> None:
        """Remove the temporary files."""
        if version != "editable":
            self.folder.cleanup()


if __name__ == "__main__":
    write(Path(sys.argv[1]))
