"""`sparktop serve`: watch without a screen, and show the board in web browsers."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sparktop.commands.arguments import add_interval, add_targets
from sparktop.commands.demo import SCENARIOS
from sparktop.commands.output import tell, write_out
from sparktop.errors import UsageError
from sparktop.model.targets import Watch

if TYPE_CHECKING:
    from sparktop.agent.daemon import Service

DEFAULT_LISTEN = "127.0.0.1:9752"
USUAL_PORT = 9752
TOKEN_VARIABLE = "SPARKTOP_SERVE_TOKEN"  # noqa: S105 - the variable's name, not a token
_FIRST_SCENARIO = next(iter(SCENARIOS))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the targets, and the options for the listening address, token, TLS, theme and demo."""
    add_targets(parser)
    add_interval(parser)
    parser.add_argument("--theme", metavar="NAME", help="one of those that sparktop themes lists")
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        default=DEFAULT_LISTEN,
        help=f"default {DEFAULT_LISTEN}; any address that others can reach wants a token",
    )
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        help=f"its first line is the token that viewers must know (else ${TOKEN_VARIABLE})",
    )
    parser.add_argument("--tls-cert", metavar="FILE", help="the certificate, PEM")
    parser.add_argument("--tls-key", metavar="FILE", help="its key, PEM, without a password")
    parser.add_argument("--insecure", action="store_true", help="show it to others without a token")
    parser.add_argument(
        "--name",
        action="append",
        default=[],
        metavar="HOST",
        dest="names",
        help="another name of this server, such as that of a proxy before it; may be given again",
    )
    parser.add_argument("--systemd-unit", action="store_true", help="print a unit with these arguments")
    parser.add_argument(
        "--demo",
        nargs="?",
        const=_FIRST_SCENARIO,
        choices=SCENARIOS,
        metavar="SCENARIO",
        help=f"simulated servers instead of targets (default scenario: {_FIRST_SCENARIO})",
    )
    parser.epilog = (
        "Open the printed address in a browser. Through ssh: ssh -L 9752:127.0.0.1:9752 HOST.\n"
        "docs/browser.md in the repository has more."
    )


def run(arguments: argparse.Namespace) -> int:
    """Watch and serve until a signal arrives, or print the systemd unit; return the exit code.

    Raises:
        UsageError: an argument, the token or the certificate cannot be used, or the port is taken.
        ConfigError: the configuration file cannot be used.
    """
    # Late: --help needs none of them.
    from sparktop.agent.access import parse_listen, read_token
    from sparktop.agent.daemon import prepare
    from sparktop.commands.choice import choose
    from sparktop.logfile import open_log

    place = parse_listen(arguments.listen, USUAL_PORT)
    if arguments.demo is not None and (arguments.targets or arguments.config):
        raise UsageError("--demo shows simulated servers: leave out targets and --config")
    if arguments.systemd_unit:
        write_out(_unit(arguments))
        return 0
    token, warning = read_token(arguments.token_file, os.environ, TOKEN_VARIABLE)
    if warning is not None:
        tell(warning)
    watch = None if arguments.demo is not None else choose(arguments, os.environ)
    service = prepare(
        place,
        token,
        cert=arguments.tls_cert,
        key=arguments.tls_key,
        insecure=arguments.insecure,
        variable=TOKEN_VARIABLE,
    )
    open_log(os.environ)
    show = partial(_serve, arguments=arguments, service=service, host=place[0])
    return _on_demo(arguments, show) if watch is None else show(watch)


def _serve(
    watch: Watch,
    *,
    arguments: argparse.Namespace,
    service: Service,
    host: str,
    simulated: bool = False,
) -> int:
    import asyncio

    from sparktop.browser.serving import (
        Place,
        serve,
    )  # late: the port is bound before half a second of imports
    from sparktop.sweep.result.store import sweeps_folder

    def ready() -> None:
        for line in (service.warning(), service.about("serve")):
            if line is not None:
                tell(line)

    place = Place(service, host, arguments.names)
    return asyncio.run(serve(place, watch, sweeps_folder(os.environ), ready=ready, simulated=simulated))


def _unit(arguments: argparse.Namespace) -> str:
    from sparktop.agent.unit import UnitFlags, quoted  # late: as above
    from sparktop.export.unit import unit

    flags = UnitFlags(
        Path(shutil.which("sparktop") or sys.argv[0]).absolute(),
        arguments.listen if arguments.listen != DEFAULT_LISTEN else None,
        arguments.token_file,
        arguments.tls_cert,
        arguments.tls_key,
        arguments.insecure,
        command="serve",
    )
    config = None if arguments.config is None else str(Path(arguments.config).absolute())
    return unit(flags, config, arguments.targets, [f"--name {quoted(name)}" for name in arguments.names])


def _on_demo(arguments: argparse.Namespace, show: partial[int]) -> int:
    """Start the simulated servers, and serve a board of them; return the exit code."""
    from sparktop.commands.choice import checked_theme
    from sparktop.demo.command import run_demo

    return run_demo(
        serve=False,
        backends=2,
        seed=0,
        scenario=arguments.demo,
        strategy=None,
        load=None,
        theme=checked_theme(arguments.theme),
        interval_s=arguments.interval,
        show=partial(show, simulated=True),
    )
