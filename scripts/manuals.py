"""Shell completions and manual pages, written from the parsers of the commands when the wheel is built.

`manuals.py FOLDER` writes them there to look at. As a build hook of the wheel it adds them to its data, so
that an installation has them below `share/`.
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
    """Complete the names of files where an argument names one."""
    for action in parser._actions:  # noqa: SLF001  # argparse has no public list of them
        if action.metavar is not None and "FILE" in str(action.metavar):
            action.complete = shtab.FILE  # type: ignore[attr-defined]  # shtab reads it there


def completions() -> dict[str, str]:
    """Return the text of each shell's completion by its place below the prefix of an installation."""
    parser = _viewer()
    # A first word that is no option is completed as a command: hosts cannot be listed.
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
    # A date would make each build another one.
    data = {"description": summary, "version": __version__, "manual_title": "sparktop", "date": ""}
    page = str(Manpage(parser, _data=data))
    page = re.sub(
        r"(?m)^\.TH .*$",
        f'.TH "{parser.prog.upper().replace(" ", "-")}" "1" "" "sparktop {__version__}"',
        page,
    )
    # The second line of the usage is a form of its own.
    page = page.replace("[options] sparktop COMMAND", "[options]\n.br\n.B sparktop\nCOMMAND")
    codes = EXIT_CODES.removeprefix("exit codes: ").replace("-", r"\-")
    return f"{page.rstrip()}\n{more}.SH EXIT STATUS\n{codes}\n.SH SEE ALSO\n{others}\n"


def pages() -> dict[str, str]:
    """Return the text of each manual page by its place below the prefix of an installation."""
    names = ", ".join(f"\\fBsparktop\\-{name}\\fR(1)" for name in COMMANDS)
    summary = "watch LLM servers and the machines they run on, live in a terminal"
    viewer = _viewer()
    viewer.epilog = None  # the same list, without a form
    listed = "".join(f".TP\n\\fB{name}\\fR\n{what}\n" for name, what in COMMANDS.items())
    found = {f"{PAGES}/sparktop.1": _page(viewer, summary, names, f".SH COMMANDS\n{listed}")}
    for name, what in COMMANDS.items():
        parser = parser_of(name)
        command_module(name).add_arguments(parser)
        found[f"{PAGES}/sparktop-{name}.1"] = _page(parser, what, "\\fBsparktop\\fR(1)")
    return found


def write(folder: Path) -> dict[str, str]:
    """Write all files below `folder`; return each one's path and its place below the prefix."""
    written = {}
    for place, text in (completions() | pages()).items():
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        written[str(path)] = place
    return written


class ManualsHook(BuildHookInterface[Any]):
    """Adds the files to the data of a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the files; an editable installation has none."""
        if version == "editable":
            return
        self.folder = tempfile.TemporaryDirectory(prefix="sparktop-manuals-")
        build_data["shared_data"].update(write(Path(self.folder.name)))

    def finalize(self, version: str, *_: object) -> None:
        """Remove the files again."""
        if version != "editable":
            self.folder.cleanup()


if __name__ == "__main__":
    write(Path(sys.argv[1]))
