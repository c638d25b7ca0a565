"""`sparktop export`: watch without a screen, and serve what is known to Prometheus."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

from sparktop.commands.arguments import add_interval, add_targets
from sparktop.commands.output import tell, write_out

DEFAULT_LISTEN = "127.0.0.1:9751"
USUAL_PORT = 9751
TOKEN_VARIABLE = "SPARKTOP_EXPORT_TOKEN"  # noqa: S105 - the variable's name, not a token


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the targets, and the options for the listening address, token and TLS."""
    add_targets(parser)
    add_interval(parser)
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        default=DEFAULT_LISTEN,
        help=f"default {DEFAULT_LISTEN}; any address that others can reach wants a token",
    )
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        help=f"its first line is the token that Prometheus must know (else ${TOKEN_VARIABLE})",
    )
    parser.add_argument("--tls-cert", metavar="FILE", help="the certificate, PEM")
    parser.add_argument("--tls-key", metavar="FILE", help="its key, PEM, without a password")
    parser.add_argument("--insecure", action="store_true", help="answer others without a token")
    parser.add_argument("--systemd-unit", action="store_true", help="print a unit with these arguments")
    parser.epilog = (
        "The page is /metrics, as text or OpenMetrics. docs/prometheus.md in the repository\n"
        "lists its metrics; rules for Prometheus and a dashboard for Grafana are beside it."
    )


def run(arguments: argparse.Namespace) -> int:
    """Watch and serve until a signal arrives, or print the systemd unit; return the exit code.

    Raises:
        UsageError: an argument, the token or the certificate cannot be used, or the port is taken.
        ConfigError: the configuration file cannot be used.
    """
    # Late: --help needs none of them.
    import asyncio

    from sparktop.agent.access import parse_listen, read_token
    from sparktop.agent.daemon import prepare
    from sparktop.commands.choice import choose
    from sparktop.logfile import open_log
    from sparktop.sweep.result.store import sweeps_folder

    place = parse_listen(arguments.listen, USUAL_PORT)
    if arguments.systemd_unit:
        write_out(_unit(arguments))
        return 0
    token, warning = read_token(arguments.token_file, os.environ, TOKEN_VARIABLE)
    if warning is not None:
        tell(warning)
    watch = choose(arguments, os.environ)
    service = prepare(
        place,
        token,
        cert=arguments.tls_cert,
        key=arguments.tls_key,
        insecure=arguments.insecure,
        variable=TOKEN_VARIABLE,
    )
    open_log(os.environ)

    from sparktop.export.server import serve  # late: the port is bound before half a second of imports

    def ready() -> None:
        for line in (service.warning(), service.about("export")):
            if line is not None:
                tell(line)

    return asyncio.run(serve(service, watch, sweeps_folder(os.environ), place[0], ready=ready))


def _unit(arguments: argparse.Namespace) -> str:
    from sparktop.agent.unit import UnitFlags  # late: as above
    from sparktop.export.unit import unit

    flags = UnitFlags(
        Path(shutil.which("sparktop") or sys.argv[0]).absolute(),
        arguments.listen if arguments.listen != DEFAULT_LISTEN else None,
        arguments.token_file,
        arguments.tls_cert,
        arguments.tls_key,
        arguments.insecure,
        command="export",
    )
    config = None if arguments.config is None else str(Path(arguments.config).absolute())
    return unit(flags, config, arguments.targets)
