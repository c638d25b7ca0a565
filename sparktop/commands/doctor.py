"""`sparktop doctor`: check installation, configuration and targets, and print what to do about problems."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec.structs import replace

from sparktop.commands.arguments import add_targets
from sparktop.commands.output import write_out

if TYPE_CHECKING:
    from sparktop.doctor.check import Check
    from sparktop.model.targets import Watch

FORMATS = ("txt", "json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the TARGET arguments, --config, --start and --format."""
    add_targets(parser)
    parser.add_argument(
        "--start",
        metavar="COMMAND",
        help='only whether this command, such as "vllm serve MODEL", would start a server here',
    )
    parser.add_argument("--format", choices=FORMATS, default="txt", dest="form", help="default: txt")


def run(arguments: argparse.Namespace) -> int:
    """Run all checks and print a line for each; return the exit code: 1 if any check failed, else 0.

    Raises:
        UsageError: a target cannot be used.
        OutputError: the lines cannot be written.
    """
    # Late: --help needs none of them.
    import asyncio

    if arguments.start is not None:
        return _run_start(arguments.start, arguments.form)
    from sparktop.commands.choice import chosen_of
    from sparktop.doctor.check import Status, failed, next_step, to_json, to_text
    from sparktop.doctor.machine import check_open_files, check_recorder, check_versions, open_file_limits
    from sparktop.doctor.terminal import check_terminal, look_at_terminal
    from sparktop.logfile import open_log

    open_log(os.environ)
    file_checks, from_file, wanted = read_configuration(
        arguments.config, os.environ, named=bool(arguments.targets)
    )
    watch = chosen_of(from_file, arguments, os.environ, has_file=from_file.source != "defaults")
    own = [
        *check_versions(),
        *file_checks,
        # With JSON, standard output must hold nothing else, so the terminal is not queried.
        *check_terminal(look_at_terminal(os.environ, ask=arguments.form == "txt")),
        check_open_files(*open_file_limits(), wanted),
        *check_recorder(watch, os.environ),
    ]
    machine, servers = asyncio.run(_examine(watch, named=bool(arguments.targets)))
    checks = [*own, *machine, *servers]
    then = next_step(
        checks,
        targets=arguments.targets,
        config=arguments.config,
        has_file=from_file.source != "defaults",
        found=any(check.status is Status.OK for check in servers),
    )
    if arguments.form == "json":
        write_out(json.dumps(to_json(checks, datetime.now(UTC), then), indent=2) + "\n")
    else:
        groups = {"sparktop": own, "this machine": machine, "nodes and servers": servers}
        width, color = _terminal(os.environ)
        write_out(to_text(groups, then, width=width, color=color))
    return 1 if failed(checks) else 0


def _run_start(command: str, form: str) -> int:
    """Check whether the server that `command` starts would start on this machine; return the exit code."""
    # Late: as above.
    import asyncio

    from sparktop.doctor.check import failed, to_json, to_text
    from sparktop.doctor.machine import check_machine, look_at_machine
    from sparktop.doctor.start import check_start, parse_start
    from sparktop.watch.state_files import read_starts, starts_file

    parse_start(command)
    reading, identity = asyncio.run(look_at_machine())
    starts, _ = read_starts(starts_file(os.environ))
    start = check_start(command, reading, identity, starts, os.environ)
    checks = [*check_machine(reading, identity), *start]
    if form == "json":
        write_out(json.dumps(to_json(checks, datetime.now(UTC)), indent=2) + "\n")
    else:
        width, color = _terminal(os.environ)
        groups = {"this machine": checks[: -len(start)], "start": start}
        write_out(to_text(groups, width=width, color=color))
    return 1 if failed(start) else 0


def _terminal(env: Mapping[str, str]) -> tuple[int | None, bool]:
    """Return (width of the terminal, whether to use colours); (None, False) if there is no terminal."""
    if sys.stdout is None or not sys.stdout.isatty():
        return None, False
    return shutil.get_terminal_size().columns, not env.get("NO_COLOR") and env.get("TERM") != "dumb"


def read_configuration(
    name: str | None, env: Mapping[str, str], *, named: bool = False
) -> tuple[list[Check], Watch, int]:
    """Check the configuration file; return (checks, targets and settings, highest concurrency of its sweeps).

    `name` is the file's path, None for the usual places; `named` is True if targets are arguments. For an
    invalid file, return a failed check for each error, an empty `Watch` and 0.
    """
    # Late: as above.
    from sparktop.config import trust
    from sparktop.config.schema import check, find_config
    from sparktop.doctor.check import Check, Status
    from sparktop.doctor.machine import check_hook
    from sparktop.errors import ConfigError
    from sparktop.model.targets import Watch
    from sparktop.model.text import clean

    path = find_config(name, env)
    title = "config"
    if path is None:
        said = "no file" if named else "no file: this machine's usual ports are tried"
        return [Check(title, Status.SKIP, said)], Watch(), 0
    is_trusted = True
    try:
        text, about, is_found = trust.read_used(name, path, env)
        config = check(path, text)
        if is_found and not trust.Approvals(env).has(path, about, text):
            is_trusted = False
            if powers := config.powers():
                said = f"{clean(path, 300)}: found in this folder and not used, because of {powers[0]}"
                more = f", and {len(powers) - 1} more" if powers[1:] else ""
                advice = "read it, then sparktop config --trust, or name it with --config"
                return [Check(title, Status.FAIL, f"{said}{more}", advice)], Watch(), 0
    except ConfigError as error:
        advice = "sparktop config --default prints an example"
        return [Check(title, Status.FAIL, line, advice) for line in str(error).splitlines()], Watch(), 0
    checks = [Check(title, Status.OK, f"{clean(path, 300)}: valid")]
    checks += [Check(title, Status.WARN, line, "export it") for line in config.warnings(env)]
    watch = replace(config.watch(env), is_trusted=is_trusted)
    if watch.events.hook:
        checks.append(check_hook(watch.events.hook, env))
    highest = max((c for sweep in watch.sweeps for c in sweep.concurrency), default=0)
    return checks, watch, highest


async def _examine(watch: Watch, *, named: bool) -> tuple[list[Check], list[Check]]:
    """Return (checks of this machine, checks of nodes and servers).

    `named` is whether the user named the targets as arguments.
    """
    # Late: as above.
    from sparktop.doctor.examination import examine_network
    from sparktop.doctor.machine import check_machine, look_at_machine
    from sparktop.doctor.network import open_network

    routers = (*watch.routers, *watch.sweep_routers)
    urls = [*(target.url for target in watch.backends), *(target.url for target in routers)]
    own = await look_at_machine()
    machine = check_machine(*own)
    async with open_network(secure=any(url.startswith("https:") for url in urls)) as network:
        return machine, await examine_network(watch, network, wanted=named, own=own)
