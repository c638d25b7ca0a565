"""A real sshd on 127.0.0.1 with keys of its own, for the user that runs the tests."""

from __future__ import annotations

import getpass
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.programs import free_port, logged
from tests.sources.installed import installed

_READY_S = 20.0
_PRIVILEGES = Path("/run/sshd")
"""Root's sshd insists on it."""


@dataclass(frozen=True)
class Sshd:
    """A server that runs, and how to reach it."""

    folder: Path
    port: int

    @property
    def home(self) -> Path:
        """The home folder of whoever logs in."""
        return self.folder / "home"

    def options(self, name: str = "client", **changed: str) -> tuple[str, ...]:
        """Return options that make ssh use the keys here and no user settings; `changed` are ssh settings."""
        settings = {
            "HostName": "127.0.0.1",
            "Port": str(self.port),
            "User": getpass.getuser(),
            "IdentityFile": str(self.folder / "key"),
            "IdentitiesOnly": "yes",
            "IdentityAgent": "none",
            "UserKnownHostsFile": str(self.folder / "known_hosts"),
            "GlobalKnownHostsFile": "/dev/null",
            **changed,
        }
        config = self.folder / f"{name}.config"
        lines = [f"    {key} {value}\n" for key, value in settings.items()]
        config.write_text("Host spark\n" + "".join(lines), encoding="utf-8")
        return ("-F", str(config))

    def make_key(self, name: str) -> Path:
        """Return the path of a new key; its public half is beside it. A key of that name is replaced."""
        file = self.folder / name
        file.unlink(missing_ok=True)
        command = [
            installed("ssh-keygen", "openssh-client"),
            "-q",
            "-t",
            "ed25519",
            "-N",
            "",
            "-f",
            str(file),
        ]
        subprocess.run(command, check=True, timeout=300)  # noqa: S603 - a fixed command
        return file

    def forced(self, name: str, script: str) -> tuple[str, ...]:
        """Return options with a key for which the server always runs the shell script `script`.

        The script has ssh's request in $SSH_ORIGINAL_COMMAND, as the login shell would get it.
        """
        file = self.folder / f"{name}.sh"
        file.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        file.chmod(0o755)
        key = self.make_key(f"{name}.key")
        line = f'command="{file}" {key.with_suffix(".key.pub").read_text(encoding="utf-8")}'
        with (self.folder / "authorized_keys").open("a", encoding="utf-8") as accepted:
            accepted.write(line)
        return self.options(name, IdentityFile=str(key))

    def known_as(self, public: Path) -> str:
        """Return the line of a known_hosts file that says that this server has that key."""
        return f"[127.0.0.1]:{self.port} {public.read_text(encoding='utf-8')}"


@contextmanager
def sshd(folder: Path) -> Iterator[Sshd]:
    """Run a server whose only accepted key is `folder/key`, until the block ends."""
    program = installed("sshd", "openssh-server")
    installed("ssh", "openssh-client")
    if os.geteuid() == 0 and not _PRIVILEGES.exists():
        _PRIVILEGES.mkdir(mode=0o755)
    server = Sshd(folder, free_port())
    server.home.mkdir()
    key, host_key = server.make_key("key"), server.make_key("host_key")
    (folder / "authorized_keys").write_bytes(key.with_suffix(".pub").read_bytes())
    (folder / "known_hosts").write_text(server.known_as(host_key.with_suffix(".pub")), encoding="utf-8")
    config, log_file = folder / "sshd_config", folder / "sshd.log"
    config.write_text(_config(folder, server.port, host_key), encoding="utf-8")
    with logged([program, "-D", "-e", "-f", str(config)], log_file) as process:
        _wait_until_ready(process, log_file)
        yield server


def _config(folder: Path, port: int, host_key: Path) -> str:
    settings = {
        "ListenAddress": "127.0.0.1",
        "Port": port,
        "HostKey": host_key,
        "AuthorizedKeysFile": folder / "authorized_keys",
        "PidFile": "none",
        "UsePAM": "no",
        "StrictModes": "no",
        "PasswordAuthentication": "no",
        "KbdInteractiveAuthentication": "no",
        "PermitRootLogin": "prohibit-password",
        "PrintMotd": "no",
        "LogLevel": "VERBOSE",
        "SetEnv": f"HOME={folder / 'home'}",
    }
    return "".join(f"{key} {value}\n" for key, value in settings.items())


def _wait_until_ready(process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + _READY_S
    while b"Server listening on" not in log.read_bytes():
        # Waiting for the process to end is the pause between two reads of the log.
        try:
            process.wait(0.05)
        except subprocess.TimeoutExpired:
            if time.monotonic() < end:
                continue
        raise RuntimeError(f"sshd did not start:\n{log.read_text(errors='replace')[-2000:]}")
