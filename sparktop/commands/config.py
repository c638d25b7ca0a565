"""`sparktop config`: print the configuration file in use or an example, or check a file."""

from __future__ import annotations

import argparse
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sparktop.commands.output import check_file, tell, write_file, write_out
from sparktop.ending import INTERRUPTED
from sparktop.errors import ConfigError, UnreachableError, UsageError
from sparktop.files import FILE_NAME
from sparktop.model.text import clean

if TYPE_CHECKING:
    from sparktop.config.schema import Config
    from sparktop.model.targets import Watch

_IN_USE = ""
"""Value of --check without a file: the file in use."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --default, --check, --trust and the word for the themes."""
    parser.add_argument(
        "what", nargs="?", metavar="themes", choices=("themes",), help="themes: list the themes"
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--default", action="store_true", help="print a commented example")
    which.add_argument(
        "--check",
        nargs="?",
        const=_IN_USE,
        metavar="FILE",
        help="check FILE, or the file in use; exit 2 if wrong",
    )
    which.add_argument(
        "--trust",
        nargs="?",
        const=_IN_USE,
        metavar="FILE",
        help="let FILE, or the sparktop.toml in this folder, do what it says where it is found, "
        "until it is changed",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print an example, print the configuration file, check or approve it, as the arguments ask.

    Return the exit code 0.

    Warnings about the file are printed to standard error.

    Raises:
        UntrustedError: the file was only found, and somebody else could have written it.
        ConfigError: the file is invalid, or there is none; with --check also if a preset's load is unusable.
    """
    if arguments.what == "themes":
        return _list_themes()
    # Late: --help needs none of them.
    from sparktop.config import trust
    from sparktop.config.schema import check
    from sparktop.config.watch import default_toml
    from sparktop.files import find_config, usual_places

    if arguments.default:
        write_out(default_toml())
        return 0
    if arguments.trust is not None:
        return _approve(Path(arguments.trust or FILE_NAME))
    named: str | None = arguments.check or None  # the file in use is looked for, as without --check
    path = find_config(named, os.environ)
    if path is None:
        places = ", ".join(clean(location, 300) for location in usual_places(os.environ))
        raise ConfigError(f"no configuration file: looked for {places}; sparktop config --default prints one")
    text, status, was_discovered = trust.read_checked(named, path, os.environ)
    loaded = check(path, text)
    if was_discovered:
        sensitive = loaded.sensitive_settings()
        if sensitive and not trust.Approvals(os.environ).has(path, status, text):
            tell(trust.untrusted_message(path, sensitive))
    if arguments.check is not None:
        _check_sweeps(loaded)
    for line in loaded.warnings(os.environ):
        tell(line)
    write_out(
        f"{clean(path, 500)}: valid: {_summary(loaded)}\n" if arguments.check is not None else loaded.text
    )
    return 0


def _list_themes() -> int:
    """Print the name, kind (dark, light or terminal) and title of each theme; return the exit code 0.

    For a user's own theme, its file is printed too. Problems with theme files are printed to standard error.
    """
    from sparktop.colors.palette import palettes, theme_problems  # late: --help loads no theme

    themes = palettes()
    width = max((len(name) for name in themes), default=0)
    lines = []
    for name, theme in themes.items():
        kind = "dark" if theme.dark else "light"
        if theme.ansi:
            kind = "terminal"
        # A title that only repeats the name, as of each btop theme, is left out in favour of the file.
        about = "  ".join(part for part in (theme.title if theme.title != name else "", theme.source) if part)
        lines.append(f"{name:<{width}}  {kind:<8}  {about}\n")
    write_out("".join(lines))
    for problem in theme_problems():
        tell(problem)
    return 0


def _approve(path: Path) -> int:
    """Approve a configuration file as it is, and print what it may do; return the exit code 0.

    Raises:
        ConfigError: the file is invalid, somebody else could have written it, or the approval is not stored.
    """
    from sparktop.config import trust
    from sparktop.config.schema import check

    text, status = trust.read_discovered(path)
    sensitive = check(path, text).sensitive_settings()
    trust.Approvals(os.environ).add(path, status, text)
    allowed = f", {len(sensitive)} of its settings needed it:" if sensitive else "; it needed no approval"
    approved = f"{clean(path.absolute(), 500)}: approved until it is changed{allowed}"
    lines = [approved, *trust.sensitive_lines(sensitive)]
    write_out("".join(f"{line}\n" for line in lines))
    return 0


def _check_sweeps(loaded: Config) -> None:
    """Check the loads of all presets, with the files that they name.

    Raises:
        ConfigError: a preset cannot be used; a line for each fault.
    """
    from sparktop.config.checks import Mistake, config_error
    from sparktop.sweep.plan.presets import preset_faults

    presets = loaded.watch(os.environ).sweeps
    faults = [
        Mistake(
            ("sweeps", number, key), message if message.startswith("must") else f"is not usable: {message}"
        )
        for number, preset in enumerate(presets)
        for key, message in preset_faults(preset)
    ]
    if faults:
        raise config_error(clean(loaded.path, 500), loaded.text, faults)


def _summary(loaded: Config) -> str:
    """Return what a file defines, in words: "2 nodes, 1 backend"."""
    settings = loaded.settings
    nouns = {
        "nodes": "node",
        "backends": "backend",
        "routers": "router",
        "prometheus": "Prometheus",
        "sweeps": "sweep",
    }
    lists = {"target_files": "target files", "sparkrun": "sparkrun's jobs"}
    tables_of = [(settings.get(key) or [], noun) for key, noun in nouns.items()]
    counts = [
        f"{len(tables)} {noun}{'' if len(tables) == 1 or noun.endswith('s') else 's'}"
        for tables, noun in tables_of
        if tables
    ]
    list_nouns = [noun for key, noun in lists.items() if settings.get(key)]
    return ", ".join([*counts, *list_nouns]) or "nothing to watch, so this machine is"


def write_targets(watch: Watch, name: str, seconds: float) -> int:
    """Watch for `seconds`, and write the targets found into a new configuration file; return the exit code.

    `name` is the file's name, "-" for standard output. An existing file is not changed.

    Raises:
        UsageError: the name does not end in .toml.
        ConfigError: the file exists, or the configuration file in use names the targets.
        UnreachableError: nothing answered.
        OutputError: the file cannot be written.
    """
    # Late: --help needs none of them.
    import asyncio

    from sparktop.commands.observation import observe, why_nothing
    from sparktop.config import trust
    from sparktop.config.from_targets import check_origin, toml_of_targets, without_router
    from sparktop.config.schema import check

    path = None if name == "-" else Path(name)
    if path is not None:
        if path.suffix != ".toml":
            raise UsageError(
                f"--write-config takes FILE.toml, not '{clean(name, 100)}': TARGETs stand before it"
            )
        if path.exists():
            raise ConfigError(
                f"{clean(path, 300)} exists: edit or remove it, or name another file "
                "(--write-config FILE.toml), or - to print it"
            )
        check_file(path)
    check_origin(watch)
    snapshot, interrupted, targets = asyncio.run(observe(watch, seconds))
    for event in reversed(snapshot.events):
        if event.subject == "discovery":
            tell(event.message)
    answered = (view.ok for views in (snapshot.nodes, snapshot.backends, snapshot.routers) for view in views)
    if not any(answered):
        raise UnreachableError(f"nothing written, {why_nothing(snapshot)}")
    text = toml_of_targets(targets, snapshot)
    written = check(path or Path(name), text)
    if path is None:
        write_out(text)
    else:
        write_file(path, text)
        with suppress(ConfigError):  # where that cannot be stored
            content, status = trust.read_discovered(path)
            trust.Approvals(os.environ).add(path, status, content)
        shown_path = clean(path, 300)
        start = "sparktop" if name == FILE_NAME else f"sparktop --config {shown_path}"
        tell(f"{shown_path}: written: {_summary(written)}; edit it, then start: {start}")
    tell(without_router(targets) or "")
    return INTERRUPTED if interrupted else 0
