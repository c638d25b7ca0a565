"""systemd units for the commands that serve: the agent, `sparktop export` and `sparktop serve`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from sparktop.config.watch import Needs, needs_of
from sparktop.errors import UsageError

USUAL_TOKEN_FILE = "/etc/sparktop/token"  # noqa: S105 - a place, not a token
"""The token file in the unit if a token is required and no file was given."""
ENVIRONMENT_FILE = "/etc/sparktop/environment"
"""The file in the unit that holds the values of the environment variables that a configuration names."""
_HOMES = (Path("/home"), Path("/root"))

HARDENING = """\
# It only reads: no way to get a capability, nothing to write to but what is named here.
NoNewPrivileges=yes
AmbientCapabilities=
ProtectSystem=strict
PrivateTmp=yes
UMask=0077
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectControlGroups=yes
ProtectClock=yes
ProtectHostname=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RestrictNamespaces=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources
SystemCallErrorNumber=EPERM
# Netlink tells the addresses of the interfaces; the journal is a Unix socket.
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK
# The process table is of all users, so neither ProtectProc= nor PrivateUsers= is set.
# NVML opens /dev/nvidiactl and /dev/nvidia*, so PrivateDevices= must stay off: these devices and no others.
# The nodes must exist beforehand (nvidia-persistenced makes them): setuid helpers are shut off above.
PrivateDevices=no
DevicePolicy=closed
DeviceAllow=char-nvidia rw
DeviceAllow=char-nvidiactl rw
DeviceAllow=char-nvidia-frontend rw
DeviceAllow=char-nvidia-uvm rw
DeviceAllow=char-nvidia-caps rw"""
"""What every unit has; the recorder alone keeps capabilities."""
_NO_CAPABILITY = """\
CapabilityBoundingSet=
ProtectKernelLogs=yes"""
_AGENT = """\
StateDirectory=sparktop
Environment=XDG_STATE_HOME=%S
# It takes 50 to 80 MB; a leak or a flood must not take memory from the engines.
MemoryMax=256M
MemorySwapMax=0
TasksMax=32
CPUWeight=20
OOMScoreAdjust=500"""


class UnitFlags(Struct, frozen=True):
    """Command-line options of the server that the unit starts."""

    program: Path
    """Absolute path of the `sparktop` program that the unit starts."""
    listen: str | None = None
    token_file: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    insecure: bool = False
    names: tuple[str, ...] = ()
    """Further names of the server."""
    command: str = "agent"
    """The command of sparktop that serves: agent, export or serve."""


def unit_text(
    command: str,
    about: str,
    words: str,
    lines: Iterable[str],
    *,
    after: str = "network-online.target",
    notes: Iterable[str] = (),
    restart_s: int = 10,
) -> str:
    """Return the text of the systemd unit of a command of sparktop.

    `about` describes it, `words` are its command line, and `lines` follow in [Service]. `notes` are comments
    at its top, below the one that says where the unit goes.
    """
    return "\n".join(
        (
            f"# sparktop {command} --systemd-unit > /etc/systemd/system/sparktop-{command}.service",
            *notes,
            *("", "[Unit]", f"Description=sparktop {about}", f"After={after}"),
            f"Wants={' '.join(target for target in after.split() if target.endswith('.target'))}",
            *("", "[Service]", "Type=exec", f"ExecStart={words}"),
            *("Restart=on-failure", f"RestartSec={restart_s}"),
            *lines,
            *("", "[Install]", "WantedBy=multi-user.target", ""),
        )
    )


def start_note(command: str) -> str:
    """Return the comment of a unit that says how it is started."""
    return f"# systemctl daemon-reload && systemctl enable --now sparktop-{command}"


def unit(flags: UnitFlags, *, wants_token: bool) -> str:
    """Return the text of the agent's systemd unit.

    `wants_token` is whether the agent requires a token. It does if its address can be reached from outside
    and --insecure was not given.
    """
    token_file, notes = flags.token_file, []
    if token_file is None and wants_token:
        token_file = USUAL_TOKEN_FILE
        notes = [
            f"# the token: install -d -m 700 {Path(token_file).parent}",
            f"#            (umask 077; openssl rand -hex 32 > {token_file})",
        ]
    credentials, words = command_line(flags, token_file)
    return unit_text(
        "agent",
        "agent: what this machine does, for viewers elsewhere",
        words,
        (*credentials, *user_lines(flags.program), HARDENING, _NO_CAPABILITY, _AGENT),
        after="network-online.target nvidia-persistenced.service",
        notes=(*notes, start_note("agent")),
        restart_s=5,
    )


def command_line(flags: UnitFlags, token_file: str | None) -> tuple[list[str], str]:
    """Return the LoadCredential lines of the unit, and the command line for ExecStart.

    systemd loads the token and certificate files as credentials. The command line refers to the credentials
    instead of the files.
    """
    credentials: list[str] = []
    words = [quote_word(str(flags.program)), flags.command]
    if flags.listen is not None:
        words += ["--listen", quote_word(flags.listen)]
    files = (
        ("--token-file", "token", token_file),
        ("--tls-cert", "tls-cert", flags.tls_cert),
        ("--tls-key", "tls-key", flags.tls_key),
    )
    for option, name, file in files:
        if file is not None:
            path = str(Path(file).absolute()).replace("%", "%%")
            credentials.append(f"LoadCredential={name}:{path}")
            words += [option, f"${{CREDENTIALS_DIRECTORY}}/{name}"]
    if flags.insecure:
        words.append("--insecure")
    words += [word for name in flags.names for word in ("--name", quote_word(name))]
    return credentials, " ".join(words)


def user_lines(program: Path, *files: Path) -> Iterator[str]:
    """Yield the unit's lines that set the user of the service.

    The user is a dynamic user of systemd. If `program`, or one of the `files` that it reads, lies in a home
    directory, it is the owner of the first that does.
    """
    home_path = next((path for path in (program, *files) if _in_home(path)), None)
    if home_path is None:
        yield "# A user that exists only while it runs."
        yield from ("DynamicUser=yes", "ProtectHome=yes")
        return
    try:
        owner = home_path.owner()
    except (KeyError, OSError):
        owner = "nobody"
    if home_path == program:
        yield "# The program lies in a home: no other user can be counted on to reach it. Installed elsewhere"
        yield "# (a virtual environment below /opt), DynamicUser=yes and ProtectHome=yes would do."
    else:
        shown = "".join(char if char.isprintable() else "?" for char in str(home_path))
        yield f"# {shown} lies in a home: no other user can be counted on to read it."
        yield "# With all files below /etc/sparktop, DynamicUser=yes and ProtectHome=yes would do."
    yield from (f"User={owner}", "ProtectHome=read-only")


def _in_home(path: Path) -> bool:
    return any(form.is_relative_to(home) for form in (path, path.resolve()) for home in _HOMES)


def environment_lines(*, named: bool | None) -> Iterator[str]:
    """Yield the unit's lines that load environment variables from a file, which need not exist.

    `named` is whether the configuration or an option names variables; None if the file cannot be read here.
    """
    if named is False:
        return
    yield "# Variables of the configuration and of --api-key-env belong in this file, a line NAME=value each."
    yield f"# install -m 600 /dev/null {ENVIRONMENT_FILE} makes it; without the file they are not set."
    yield f"EnvironmentFile=-{ENVIRONMENT_FILE}"


def quote_word(word: str) -> str:
    """Quote and escape a word of a command line for systemd."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return (
        f'"{escaped}"' if escaped != word or any(char.isspace() or char in "'\";" for char in word) else word
    )


# Writes a systemd unit for `sparktop export` or `sparktop serve`, which watch servers and serve pages.


CONFIG = "/etc/sparktop/sparktop.toml"
"""The configuration file in the unit if neither targets nor a file were given."""

_ABOUT = {
    "export": "servers and machines as metrics for Prometheus",
    "serve": "the board in web browsers",
}
"""Descriptions by command."""

_SERVICE = """\
# What it learns about starts of servers is kept there; it writes nothing else.
StateDirectory=sparktop-COMMAND
Environment=XDG_STATE_HOME=%S/sparktop-COMMAND
MemoryMax=512M
CPUWeight=20"""


def unit_watch_words(config: str | None, targets: Sequence[str]) -> tuple[list[str], Needs]:
    """Return the unit's words that name what is watched, quoted for systemd, and what that needs.

    These are `targets`, else the configuration file `config`, else the usual file.

    Raises:
        UsageError: a target holds a password.
    """
    if any("@" in target for target in targets):
        raise UsageError(
            "a TARGET with a user or password would stand in the unit: name it in a configuration file, "
            "with api_key_env, and give --config FILE"
        )
    names = [quote_word(target) for target in targets]
    if config is None and targets:
        return names, Needs(variables=False)
    path = Path(config or CONFIG).absolute()
    return ["--config", quote_word(str(path)), *names], needs_of(path)


def watching_unit(flags: UnitFlags, more: Sequence[str], needs: Needs) -> str:
    """Return the text of the systemd unit.

    The words `more` follow the options of `flags` on the command line, quoted where they need it; `needs` is
    what the configuration needs.
    """
    command = flags.command
    credentials, words = command_line(flags, flags.token_file)
    ssh = "# Where machines are read over ssh, it needs User= with a user whose keys open them."
    return unit_text(
        command,
        f"{command}: {_ABOUT[command]}",
        " ".join((words, *more)),
        (
            *credentials,
            *environment_lines(named=needs.variables),
            *user_lines(flags.program, *needs.files),
            HARDENING,
            _NO_CAPABILITY,
            _SERVICE.replace("COMMAND", command),
        ),
        notes=(start_note(command), ssh),
    )
