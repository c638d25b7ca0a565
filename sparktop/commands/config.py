"""`sparktop config`: print the configuration file in use or an example, or check a file."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from sparktop.commands.output import tell, write_out
from sparktop.errors import ConfigError
from sparktop.model.text import clean

if TYPE_CHECKING:
    from sparktop.config.schema import Config

_IN_USE = ""
"""Value of --check without a file: the file in use."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --default and --check."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--default", action="store_true", help="print a commented example")
    which.add_argument(
        "--check",
        nargs="?",
        const=_IN_USE,
        metavar="FILE",
        help="check FILE, or the file in use; exit 2 if wrong",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print an example, print the configuration file or check it, as the arguments ask.

    Return the exit code 0.

    Warnings about the file are printed to standard error.

    Raises:
        ConfigError: the file is invalid, or there is none; with --check also if a preset's load is unusable.
    """
    from sparktop.config import schema as config  # late: it loads pydantic

    if arguments.default:
        write_out(config.default_toml())
        return 0
    path = config.find_config(arguments.check, os.environ)
    if path is None:
        places = ", ".join(clean(place, 300) for place in config.usual_places(os.environ))
        raise ConfigError(f"no configuration file: looked for {places}; sparktop config --default prints one")
    loaded = config.load(path)
    if arguments.check is not None:
        _check_sweeps(loaded)
    for line in loaded.warnings(os.environ):
        tell(line)
    write_out(
        f"{clean(path, 500)}: valid: {_summary(loaded)}\n" if arguments.check is not None else loaded.text
    )
    return 0


def _check_sweeps(loaded: Config) -> None:
    """Check the loads of all presets, with the files that they name.

    Raises:
        ConfigError: a preset cannot be used; a line for each fault.
    """
    from sparktop.config.checks import Problem, config_error
    from sparktop.sweep.plan.preset_check import preset_faults

    presets = loaded.watch(os.environ).sweeps
    faults = [
        Problem(
            ("sweeps", number, key), message if message.startswith("must") else f"is not usable: {message}"
        )
        for number, preset in enumerate(presets)
        for key, message in preset_faults(preset)
    ]
    if faults:
        raise config_error(clean(loaded.path, 500), loaded.text, faults)


def _summary(loaded: Config) -> str:
    settings = loaded.settings
    parts = (
        ("node", settings.nodes),
        ("backend", settings.backends),
        ("router", settings.routers),
        ("sweep", settings.sweeps),
    )
    return ", ".join(
        f"{len(found)} {noun}{'' if len(found) == 1 else 's'}" for noun, found in parts if found
    ) or ("nothing to watch, so this machine is")
