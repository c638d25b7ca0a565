"""`sparktop export`: watch without a screen, and serve what is known to Prometheus."""

from __future__ import annotations

import argparse
import os
from functools import partial

from sparktop.commands.arguments import Listening, add_interval, add_targets, add_timeout
from sparktop.commands.output import tell, write_out

LISTENING = Listening("export", 9751, "SPARKTOP_EXPORT_TOKEN", "/metrics")
"""Where the page of metrics is served."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the targets, and the options for the listening address, token and TLS."""
    add_targets(parser)
    add_interval(parser)
    add_timeout(parser)
    LISTENING.add_options(parser, client="Prometheus", insecure="answer others without a token")
    parser.epilog = (
        "The page is /metrics, in Prometheus' text format. docs/figures.md in the repository\n"
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

    from sparktop.commands.choice import choose
    from sparktop.logfile import open_log
    from sparktop.sweep.result.store import sweeps_folder

    address = LISTENING.address(arguments)
    if arguments.systemd_unit:
        write_out(LISTENING.unit(arguments))
        return 0
    token = LISTENING.token(arguments)
    watch = choose(arguments, os.environ)
    service = LISTENING.service(arguments, address, token)
    open_log(os.environ)

    from sparktop.export.server import serve  # late: the port is bound before half a second of imports

    names = LISTENING.names(arguments, address[0], token)
    ready = partial(LISTENING.announce, service)
    return asyncio.run(serve(service, watch, sweeps_folder(os.environ), names, ready=ready, report=tell))
