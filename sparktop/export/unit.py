"""Writes a systemd unit for `sparktop export` or `sparktop serve`, which watch servers and serve pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sparktop.agent.unit import UnitFlags, command_line, quoted, user_lines

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
UMask=0077
NoNewPrivileges=yes
ProtectSystem=strict
PrivateTmp=yes
MemoryMax=512M
CPUWeight=20"""


def unit(flags: UnitFlags, config: str | None, targets: Sequence[str], options: Sequence[str] = ()) -> str:
    """Return the text of the systemd unit.

    It watches `targets`, else what the configuration file `config` lists. `options` are further options of
    the command, quoted where they need it.
    """
    return "\n".join((*_lines(flags, config, targets, options), ""))


def _lines(
    flags: UnitFlags, config: str | None, targets: Sequence[str], options: Sequence[str]
) -> Iterator[str]:
    name = f"sparktop-{flags.command}"
    yield f"# sparktop {flags.command} --systemd-unit > /etc/systemd/system/{name}.service"
    yield f"# systemctl daemon-reload && systemctl enable --now {name}"
    yield "# Where machines are read over ssh, it needs User= with a user whose keys open them."
    yield from ("", "[Unit]", f"Description=sparktop {flags.command}: {_ABOUT[flags.command]}")
    yield from ("After=network-online.target", "Wants=network-online.target", "", "[Service]", "Type=exec")
    credentials, words = command_line(flags, flags.token_file)
    named = [] if config is None and targets else ["--config", quoted(config or CONFIG)]
    yield f"ExecStart={' '.join((words, *options, *named, *map(quoted, targets)))}"
    yield from ("Restart=on-failure", "RestartSec=10")
    yield from credentials
    yield from user_lines(flags.program)
    yield _SERVICE.replace("sparktop-COMMAND", name)
    yield from ("", "[Install]", "WantedBy=multi-user.target")
