"""Writes a systemd unit for `sparktop export`, which watches servers and serves the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sparktop.agent.unit import UnitFlags, command_line, quoted, user_lines

CONFIG = "/etc/sparktop/sparktop.toml"
"""The configuration file in the unit if neither targets nor a file were given."""

_SERVICE = """\
# What it learns about starts of servers is kept there; it writes nothing else.
StateDirectory=sparktop-export
Environment=XDG_STATE_HOME=%S/sparktop-export
UMask=0077
NoNewPrivileges=yes
ProtectSystem=strict
PrivateTmp=yes
MemoryMax=512M
CPUWeight=20"""


def unit(flags: UnitFlags, config: str | None, targets: Sequence[str]) -> str:
    """Return the text of the systemd unit.

    It watches `targets`, else what the configuration file `config` lists.
    """
    return "\n".join((*_lines(flags, config, targets), ""))


def _lines(flags: UnitFlags, config: str | None, targets: Sequence[str]) -> Iterator[str]:
    yield "# sparktop export --systemd-unit > /etc/systemd/system/sparktop-export.service"
    yield "# systemctl daemon-reload && systemctl enable --now sparktop-export"
    yield "# Where machines are read over ssh, it needs User= with a user whose keys open them."
    yield from ("", "[Unit]", "Description=sparktop export: servers and machines as metrics for Prometheus")
    yield from ("After=network-online.target", "Wants=network-online.target", "", "[Service]", "Type=exec")
    credentials, words = command_line(flags, flags.token_file)
    named = [] if config is None and targets else ["--config", quoted(config or CONFIG)]
    yield f"ExecStart={' '.join((words, *named, *map(quoted, targets)))}"
    yield from ("Restart=on-failure", "RestartSec=10")
    yield from credentials
    yield from user_lines(flags.program)
    yield _SERVICE
    yield from ("", "[Install]", "WantedBy=multi-user.target")
