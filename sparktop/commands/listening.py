"""Shared parts of commands that watch without a screen and answer HTTP: options, service, systemd unit."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from sparktop.commands.output import tell

if TYPE_CHECKING:
    from sparktop.agent.daemon import Service


def add_names(parser: argparse.ArgumentParser) -> None:
    """Add --name."""
    parser.add_argument(
        "--name",
        action="append",
        default=[],
        metavar="HOST",
        dest="names",
        help="another name of this server, such as that of a proxy before it; may be given again",
    )


class Listening(Struct, frozen=True):
    """Where a command listens unless options say otherwise, and what its token is called."""

    command: str
    port: int
    variable: str
    """Name of the environment variable that may hold the token."""
    page: str = ""
    """Path of the only page, for the printed URL; empty for a server with several."""

    @property
    def default(self) -> str:
        """The default of --listen."""
        return f"127.0.0.1:{self.port}"

    def add_options(self, parser: argparse.ArgumentParser, *, client: str, insecure: str) -> None:
        """Add --listen, --token-file, --tls-cert, --tls-key, --insecure, --name and --systemd-unit.

        `client` must know the token; `insecure` is the help of --insecure.
        """
        parser.add_argument(
            "--listen",
            metavar="HOST:PORT",
            default=self.default,
            help=f"default {self.default}; any address that others can reach wants a token",
        )
        parser.add_argument(
            "--token-file",
            metavar="FILE",
            help=f"its first line is the token that {client} must know (else ${self.variable})",
        )
        parser.add_argument("--tls-cert", metavar="FILE", help="the certificate, PEM")
        parser.add_argument("--tls-key", metavar="FILE", help="its key, PEM, without a password")
        parser.add_argument("--insecure", action="store_true", help=insecure)
        add_names(parser)
        parser.add_argument("--systemd-unit", action="store_true", help="print a unit with these arguments")

    def place(self, arguments: argparse.Namespace) -> tuple[str, int]:
        """Return (host, port) of --listen.

        Raises:
            UsageError: it is not an address.
        """
        from sparktop.agent.access import parse_listen  # late: --help needs none of it

        return parse_listen(arguments.listen, self.port)

    def token(self, arguments: argparse.Namespace) -> str | None:
        """Return the token of --token-file or of the environment; print a warning about its file.

        Raises:
            UsageError: the token cannot be used.
        """
        from sparktop.agent.access import read_token  # late: as above

        token, warning = read_token(arguments.token_file, os.environ, self.variable)
        if warning is not None:
            tell(warning)
        return token

    @staticmethod
    def names(arguments: argparse.Namespace, host: str, token: str | None) -> Collection[str] | None:
        """Return the names under which programs may ask; None for any: a web page knows no token."""
        from sparktop.agent.access import own_names  # late: as above

        return own_names(host, arguments.names) if token is None else None

    def service(self, arguments: argparse.Namespace, place: tuple[str, int], token: str | None) -> Service:
        """Return the service with its bound port.

        Raises:
            UsageError: token and address do not fit, the certificate cannot be used, or the port is taken.
        """
        from sparktop.agent.daemon import prepare  # late: as above

        return prepare(
            place,
            token,
            cert=arguments.tls_cert,
            key=arguments.tls_key,
            insecure=arguments.insecure,
            variable=self.variable,
        )

    def announce(self, service: Service) -> None:
        """Print where the service listens, and a warning if it has one."""
        for line in (service.warning(), service.about(self.command, self.page)):
            if line is not None:
                tell(line)

    def unit(self, arguments: argparse.Namespace) -> str:
        """Return a systemd unit that runs the command with these arguments."""
        from sparktop.agent.unit import (
            UnitFlags,  # late: as above
            watched_by,
            watching_unit,
        )

        flags = UnitFlags(
            Path(shutil.which("sparktop") or sys.argv[0]).absolute(),
            arguments.listen if arguments.listen != self.default else None,
            arguments.token_file,
            arguments.tls_cert,
            arguments.tls_key,
            arguments.insecure,
            tuple(arguments.names),
            command=self.command,
        )
        words, needs = watched_by(arguments.config, arguments.targets)
        return watching_unit(flags, words, needs)
