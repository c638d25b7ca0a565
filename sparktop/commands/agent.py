"""`sparktop agent`: serve this machine's samples to viewers on other machines."""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial

from sparktop.commands.arguments import Listening
from sparktop.commands.output import write_out, write_parts
from sparktop.errors import UsageError

LISTENING = Listening("agent", 9750, "SPARKTOP_TOKEN")
"""Where the agent listens."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the listening address, token and TLS, and the alternatives to serving over HTTP."""
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--stdio", action="store_true", help="answer on standard output, for ssh")
    way.add_argument(
        "--print-bundle",
        action="store_true",
        help='print the reader that nodes with via = "ssh" are sent, a zip file (> reader.pyz)',
    )
    parser.add_argument(
        "--digest",
        action="store_true",
        help="with --print-bundle: print its SHA-256 instead, as on a node's screen",
    )
    LISTENING.add_options(
        parser, client="askers", insecure="answer others without a token", exclusive_group=way
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve samples until a signal arrives or standard input of `--stdio` closes.

    Or print the systemd unit or the reader that is sent over ssh. Return the exit code.

    Raises:
        UsageError: an argument, the token or the certificate cannot be used, or the port is taken.
        OutputError: what is to be printed cannot be written.
    """
    if arguments.digest and not arguments.print_bundle:
        raise UsageError("--digest goes with --print-bundle")
    if arguments.print_bundle:
        return _print_bundle(arguments)
    if arguments.stdio:
        return _run_stdio(arguments)
    address = LISTENING.address(arguments)
    if arguments.systemd_unit:
        # Late: as below.
        from sparktop.agent.access import is_reachable_from_outside
        from sparktop.agent.unit import unit

        has_certificate, has_key = arguments.tls_cert is not None, arguments.tls_key is not None
        if has_certificate is not has_key:
            raise UsageError("--tls-cert and --tls-key go together")
        wants_token = is_reachable_from_outside(address[0]) and not arguments.insecure
        write_out(unit(LISTENING.flags(arguments), wants_token=wants_token))
        return 0
    token = LISTENING.token(arguments)
    service = LISTENING.service(arguments, address, token)
    # Late: --help needs none of them.
    import asyncio

    from sparktop.agent.server import serve
    from sparktop.logfile import open_log

    open_log(os.environ)
    names = LISTENING.names(arguments, address[0], token)
    return asyncio.run(serve(service, names, ready=partial(LISTENING.announce, service)))


def _run_stdio(arguments: argparse.Namespace) -> int:
    """Serve samples over standard input and output, for ssh; return the exit code.

    Write nothing but replies, not even a log.

    Raises:
        UsageError: other arguments were given, or standard input or output is closed.
    """
    _need_no_others(arguments, "--stdio goes without other arguments: ssh says who may ask")
    try:
        source, sink = sys.stdin.fileno(), sys.stdout.fileno()
    except (AttributeError, OSError, ValueError):  # closed before the start
        raise UsageError("--stdio needs standard input and output") from None
    from sparktop.agent.reader import run as run_reader  # late: --help does not need it

    return run_reader(source, sink)


def _print_bundle(arguments: argparse.Namespace) -> int:
    """Print the reader that is sent over ssh, or its digest; return the exit code.

    Raises:
        UsageError: other arguments were given, or the zip file would go to a terminal.
        OutputError: it cannot be written.
    """
    _need_no_others(arguments, "--print-bundle goes without other arguments than --digest")
    from sparktop.sources.ssh_remote import reader_bundle  # late: --help does not need it

    if arguments.digest:
        write_out(f"{reader_bundle().sha256}\n")
        return 0
    if sys.stdout is not None and sys.stdout.isatty():
        raise UsageError("--print-bundle writes a zip file: send it to one (> reader.pyz), or add --digest")
    write_parts(None, [reader_bundle().data])
    return 0


def _need_no_others(arguments: argparse.Namespace, message: str) -> None:
    """Raise `UsageError` with `message` if an option for serving over HTTP was given."""
    values = (getattr(arguments, name) for name in ("token_file", "tls_cert", "tls_key", "insecure", "names"))
    if arguments.listen != LISTENING.default or any(values):
        raise UsageError(message)
