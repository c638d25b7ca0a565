"""`sparktop serve`: watch without a screen, and show the board in web browsers."""

from __future__ import annotations

import argparse
import os
from functools import partial
from typing import TYPE_CHECKING

from sparktop.commands.arguments import (
    Listening,
    add_interval,
    add_targets,
    add_theme,
    add_timeout,
    refuse_beside,
)
from sparktop.commands.demo import SCENARIOS
from sparktop.commands.output import write_out
from sparktop.model.targets import Watch

if TYPE_CHECKING:
    from sparktop.agent.access import Service

LISTENING = Listening("serve", 9752, "SPARKTOP_SERVE_TOKEN")
"""Where the board is served."""
_FIRST_SCENARIO = next(iter(SCENARIOS))
"""The demo's scenario, if none is named."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the targets, and the options for the listening address, token, TLS, theme and demo."""
    add_targets(parser)
    add_interval(parser)
    add_timeout(parser)
    add_theme(parser)
    source = parser.add_mutually_exclusive_group()
    LISTENING.add_options(
        parser, client="viewers", insecure="show it to others without a token", exclusive_group=source
    )
    source.add_argument(
        "--demo",
        nargs="?",
        const=_FIRST_SCENARIO,
        choices=SCENARIOS,
        metavar="SCENARIO",
        help=f"simulated servers instead of targets (default: {_FIRST_SCENARIO}; see sparktop demo --help)",
    )
    parser.epilog = (
        "Open the printed address in a browser. Through ssh: ssh -L 9752:127.0.0.1:9752 HOST.\n"
        "?sort=, ?filter= and ?list= in it choose what a board shows and can be bookmarked:\n"
        "name, tokens, load, memory or state; words; waiting, kv, ttft or clock."
    )


def run(arguments: argparse.Namespace) -> int:
    """Watch and serve until a signal arrives, or print the systemd unit; return the exit code.

    Raises:
        UsageError: an argument, the token or the certificate cannot be used, or the port is taken.
        ConfigError: the configuration file cannot be used.
    """
    # Late: --help needs none of them.
    from sparktop.commands.choice import choose
    from sparktop.logfile import open_log

    address = LISTENING.address(arguments)
    if arguments.demo is not None:
        refuse_beside("--demo shows simulated servers", arguments, "targets", "config", "api_key_env")
    if arguments.systemd_unit:
        write_out(LISTENING.unit(arguments))
        return 0
    token = LISTENING.token(arguments)
    watch = None if arguments.demo is not None else choose(arguments, os.environ)
    service = LISTENING.service(arguments, address, token)
    open_log(os.environ)
    show = partial(_serve, arguments=arguments, service=service, host=address[0])
    return _on_demo(arguments, show) if watch is None else show(watch)


def _serve(
    watch: Watch,
    *,
    arguments: argparse.Namespace,
    service: Service,
    host: str,
    simulated: bool = False,
) -> int:
    """Serve the board of what is watched until a signal arrives; return the exit code."""
    import asyncio

    # Late: the port is bound before half a second of imports.
    from sparktop.agent.access import own_names
    from sparktop.browser.server import serve
    from sparktop.sweep.result.store import sweeps_folder

    ready = partial(LISTENING.announce, service)
    names = own_names(host, arguments.names)
    return asyncio.run(
        serve(service, names, watch, sweeps_folder(os.environ), ready=ready, simulated=simulated)
    )


def _on_demo(arguments: argparse.Namespace, show: partial[int]) -> int:
    """Start the simulated servers, and serve a board of them; return the exit code."""
    from sparktop.commands.choice import checked_theme
    from sparktop.demo.command import run_demo
    from sparktop.demo.scenario import DemoPlan

    return run_demo(
        DemoPlan(arguments.demo),
        serve=False,
        theme=checked_theme(arguments.theme),
        interval_s=arguments.interval,
        show=partial(show, simulated=True),
    )
