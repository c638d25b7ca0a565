"""`sparktop agent`: serve this machine's samples to viewers on other machines."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from sparktop.commands.arguments import Listening, add_names
from sparktop.commands.output import tell, write_out, write_parts
from sparktop.errors import UsageError

if TYPE_CHECKING:
    from sparktop.agent.access import Service

DEFAULT_LISTEN = "127.0.0.1:9750"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the listening address, token and TLS, and the alternatives to serving over HTTP."""
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help=f"default {DEFAULT_LISTEN}; any address that others can reach wants a token",
    )
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        help="its first line is the token that askers must know (else $SPARKTOP_TOKEN)",
    )
    parser.add_argument("--tls-cert", metavar="FILE", help="the certificate, PEM")
    parser.add_argument("--tls-key", metavar="FILE", help="its key, PEM, without a password")
    parser.add_argument("--insecure", action="store_true", help="answer others without a token")
    add_names(parser)
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--stdio", action="store_true", help="answer on standard output, for ssh")
    way.add_argument("--systemd-unit", action="store_true", help="print a unit with these arguments")
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
    if arguments.systemd_unit:
        write_out(_unit(arguments))
        return 0
    service = _prepared(arguments)
    import asyncio  # late: --help needs no event loop

    from sparktop.agent.access import parse_listen  # as above
    from sparktop.agent.server import serve
    from sparktop.logfile import open_log

    open_log(os.environ)

    def ready() -> None:
        for line in (service.warning(), service.about()):
            if line is not None:
                tell(line)

    host, _ = parse_listen(arguments.listen or DEFAULT_LISTEN)
    names = Listening.names(arguments, host, service.token)
    return asyncio.run(serve(service, names, ready=ready))


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
    if any(
        getattr(arguments, name)
        for name in ("listen", "token_file", "tls_cert", "tls_key", "insecure", "names")
    ):
        raise UsageError(message)


def _prepared(arguments: argparse.Namespace) -> Service:
    # Late: --help needs none of them.
    from sparktop.agent.access import parse_listen, prepare, read_token

    token, warning = read_token(arguments.token_file, os.environ)
    if warning is not None:
        tell(warning)
    return prepare(
        parse_listen(arguments.listen or DEFAULT_LISTEN),
        token,
        cert=arguments.tls_cert,
        key=arguments.tls_key,
        insecure=arguments.insecure,
    )


def _unit(arguments: argparse.Namespace) -> str:
    # Late: as above.
    from sparktop.agent.access import parse_listen, reachable_from_outside
    from sparktop.agent.unit import UnitFlags, unit

    if (arguments.tls_cert is None) != (arguments.tls_key is None):
        raise UsageError("--tls-cert and --tls-key go together")
    host, _ = parse_listen(arguments.listen or DEFAULT_LISTEN)
    flags = UnitFlags(
        _program(),
        arguments.listen,
        arguments.token_file,
        arguments.tls_cert,
        arguments.tls_key,
        arguments.insecure,
        tuple(arguments.names),
    )
    return unit(flags, wants_token=reachable_from_outside(host) and not arguments.insecure)


def _program() -> Path:
    """Return the absolute path of the `sparktop` command, for use in a systemd unit."""
    started = Path(sys.argv[0])
    if started.name != "sparktop":  # python -m sparktop
        beside = Path(sys.executable).with_name("sparktop")
        found = str(beside) if beside.exists() else shutil.which("sparktop")
        started = Path(found or "/usr/bin/sparktop")
    elif not started.exists():
        started = Path(shutil.which("sparktop") or started)
    return started.absolute()
