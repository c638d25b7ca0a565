"""`sparktop doctor`: check installation, configuration and targets, and print what to do about problems."""

from __future__ import annotations

import argparse
import getpass
import json
import os
import shutil
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec.structs import replace

from sparktop.commands.arguments import add_targets, refuse_beside
from sparktop.commands.output import write_out
from sparktop.errors import OutputError

if TYPE_CHECKING:
    from sparktop.config.schema import Config
    from sparktop.doctor.check import Check
    from sparktop.model.targets import Watch

FORMATS = ("txt", "json")
"""Output formats."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the TARGET arguments, --config, --start, --format and --bundle."""
    add_targets(parser)
    parser.add_argument(
        "--start",
        metavar="COMMAND",
        help='only whether this command, such as "vllm serve MODEL", would start a server here: weights by '
        "their files (a path, a folder of docker run -v, Hugging Face's cache), memory options, and which of "
        "earlyoom and systemd-oomd would act",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--format", choices=FORMATS, default="txt", dest="form", help="default: txt")
    form.add_argument(
        "--bundle",
        action="store_true",
        help="write a file here for a report of a fault: checks, versions, configuration and last log lines, "
        "without secrets, and with stand-ins for names, hosts, addresses and users",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run all checks and print a line for each, or write the bundle.

    Return the exit code: 1 if any check failed (with --start, one of the start), else 0.

    Raises:
        UsageError: a target cannot be used, or an argument does not fit --start.
        OutputError: the lines or the file cannot be written.
    """
    # Late: --help needs none of them.
    import asyncio

    if arguments.start is not None:
        reason = "--start checks a command on this machine alone"
        refuse_beside(reason, arguments, "targets", "config", "api_key_env", "bundle")
        return _run_start(arguments.start, arguments.form)
    from sparktop.commands.choice import apply_arguments
    from sparktop.doctor.check import Status, any_failed, next_step
    from sparktop.doctor.machine import (
        check_open_files,
        check_recorder,
        check_terminal,
        check_versions,
        open_file_limits,
        terminal_size,
    )
    from sparktop.logfile import open_log

    open_log(os.environ)
    file_checks, config, from_file = read_configuration(
        arguments.config, os.environ, named=bool(arguments.targets)
    )
    highest_concurrency = max((count for sweep in from_file.sweeps for count in sweep.concurrency), default=0)
    watch = apply_arguments(from_file, arguments, os.environ, has_file=from_file.source != "defaults")
    own_checks = [
        *check_versions(),
        *file_checks,
        *check_terminal(os.environ, terminal_size(), getattr(sys.stdout, "encoding", "")),
        check_open_files(*open_file_limits(), highest_concurrency),
        *check_recorder(watch, os.environ),
    ]
    machine, servers = asyncio.run(_examine(watch, named=bool(arguments.targets)))
    checks = [*own_checks, *machine, *servers]
    advice = next_step(
        checks,
        targets=arguments.targets,
        config=arguments.config,
        has_file=from_file.source != "defaults",
        results=any(check.status is Status.OK for check in servers),
    )
    if arguments.bundle:
        _write_bundle(checks, watch, config)
    else:
        groups = {"sparktop": own_checks, "this machine": machine, "nodes and servers": servers}
        _write_report(groups, advice, arguments.form)
    return 1 if any_failed(checks) else 0


def _write_bundle(checks: list[Check], watch: Watch, config: Config | None) -> None:
    """Write the bundle to a new file in the current folder, and print its path.

    Raises:
        OutputError: the file cannot be written.
    """
    # Late: as above.
    from pathlib import Path

    from sparktop.doctor.bundle import bundle, bundle_privacy, last_lines
    from sparktop.doctor.check import to_json
    from sparktop.files import write_whole
    from sparktop.logfile import log_path
    from sparktop.model.text import clean, reason_of

    now, host = datetime.now(UTC), socket.gethostname()
    users = [os.environ.get(name, "") for name in ("USER", "LOGNAME", "SUDO_USER")]
    with suppress(KeyError, OSError):  # a user without an entry in the list of users
        users.append(getpass.getuser())
    privacy = bundle_privacy(
        watch,
        config,
        os.environ,
        own_names=(host, host.partition(".")[0], socket.getfqdn()),
        users=users,
    )
    document = bundle(
        checks, lambda redacted: to_json(redacted, now), config, last_lines(log_path(os.environ)), privacy
    )
    path = Path(f"sparktop-bundle-{now:%Y%m%dT%H%M%SZ}.json").absolute()
    try:
        write_whole(path, json.dumps(document, indent=1) + "\n")
    except OSError as error:
        raise OutputError(f"{clean(path)}: cannot be written: {reason_of(error)}") from None
    write_out(f"{clean(path, 1000)}: read it before you share it\n")


def _run_start(command: str, form: str) -> int:
    """Check whether the server that `command` starts would start on this machine; return the exit code."""
    # Late: as above.
    import asyncio

    from sparktop.doctor.check import any_failed
    from sparktop.doctor.machine import check_machine, read_machine
    from sparktop.doctor.start import check_start, parse_start
    from sparktop.watch.state_files import read_starts, starts_file

    parse_start(command)
    reading, identity = asyncio.run(read_machine())
    starts, _ = read_starts(starts_file(os.environ))
    start = check_start(command, reading, identity, starts, os.environ)
    _write_report({"this machine": check_machine(reading, identity), "start": start}, "", form)
    return 1 if any_failed(start) else 0


def _write_report(groups: Mapping[str, list[Check]], following: str, form: str) -> None:
    """Print the checks, by heading, and the next step `following`."""
    from sparktop.doctor.check import to_json, to_text  # late: as above

    if form == "json":
        checks = [check for group in groups.values() for check in group]
        write_out(json.dumps(to_json(checks, datetime.now(UTC), following), indent=2) + "\n")
        return
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if is_terminal else None
    has_color = is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    write_out(to_text(groups, following, width=width, color=has_color))


def read_configuration(
    name: str | None, env: Mapping[str, str], *, named: bool = False
) -> tuple[list[Check], Config | None, Watch]:
    """Check the configuration file; return (checks, the file, targets and settings).

    `name` is the file's path, None for the usual places; `named` is True if targets are arguments. For an
    invalid file, return a failed check for each error, None and an empty `Watch`.
    """
    # Late: as above.
    from sparktop.config import trust
    from sparktop.config.schema import check
    from sparktop.doctor.check import Check, Status
    from sparktop.doctor.machine import check_hook
    from sparktop.errors import ConfigError
    from sparktop.files import find_config
    from sparktop.model.targets import Watch
    from sparktop.model.text import clean

    path = find_config(name, env)
    title = "config"
    if path is None:
        reason = "no file" if named else "no file: this machine's usual ports are tried"
        return [Check(title, Status.SKIP, reason)], None, Watch()
    is_trusted = True
    try:
        text, status, was_discovered = trust.read_checked(name, path, env)
        config = check(path, text)
        if was_discovered and not trust.Approvals(env).has(path, status, text):
            is_trusted = False
            if sensitive := config.sensitive_settings():
                reason = f"{clean(path, 300)}: found in this folder and not used, because of {sensitive[0]}"
                more = f", and {len(sensitive) - 1} more" if sensitive[1:] else ""
                advice = "read it, then sparktop config --trust, or name it with --config"
                return [Check(title, Status.FAIL, f"{reason}{more}", advice)], None, Watch()
    except ConfigError as error:
        advice = "sparktop config --default prints an example"
        return [Check(title, Status.FAIL, line, advice) for line in str(error).splitlines()], None, Watch()
    checks = [Check(title, Status.OK, f"{clean(path, 300)}: valid")]
    checks += [Check(title, Status.WARN, line, "export it") for line in config.warnings(env)]
    watch = replace(config.watch(env), is_trusted=is_trusted)
    if watch.events.hook:
        checks.append(check_hook(watch.events.hook, env))
    return checks, config, watch


async def _examine(watch: Watch, *, named: bool) -> tuple[list[Check], list[Check]]:
    """Return (checks of this machine, checks of nodes and servers).

    `named` is whether the user named the targets as arguments.
    """
    # Late: as above.
    from sparktop.doctor.examination import examine_network
    from sparktop.doctor.machine import check_machine, read_machine
    from sparktop.doctor.network import Network

    reading_and_identity = await read_machine()
    machine = check_machine(*reading_and_identity)
    return machine, await examine_network(watch, Network(), wanted=named, this_machine=reading_and_identity)
