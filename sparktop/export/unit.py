"""Writes a systemd unit for `sparktop export` or `sparktop serve`, which watch servers and serve pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from sparktop.agent.unit import UnitFlags, command_line, environment_lines, quoted, user_lines
from sparktop.config.watch import Needs, needs_of
from sparktop.errors import UsageError

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


def watched_by(config: str | None, targets: Sequence[str]) -> tuple[list[str], Needs]:
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
    names = [quoted(target) for target in targets]
    if config is None and targets:
        return names, Needs(variables=False)
    path = Path(config or CONFIG).absolute()
    return ["--config", quoted(str(path)), *names], needs_of(path)


def unit(flags: UnitFlags, words: Sequence[str], needs: Needs) -> str:
    """Return the text of the systemd unit.

    `words` follow the options of `flags` on the command line, quoted where they need it; `needs` is what the
    configuration needs.
    """
    return "\n".join((*_lines(flags, words, needs), ""))


def _lines(flags: UnitFlags, more: Sequence[str], needs: Needs) -> Iterator[str]:
    name = f"sparktop-{flags.command}"
    yield f"# sparktop {flags.command} --systemd-unit > /etc/systemd/system/{name}.service"
    yield f"# systemctl daemon-reload && systemctl enable --now {name}"
    yield "# Where machines are read over ssh, it needs User= with a user whose keys open them."
    yield from ("", "[Unit]", f"Description=sparktop {flags.command}: {_ABOUT[flags.command]}")
    yield from ("After=network-online.target", "Wants=network-online.target", "", "[Service]", "Type=exec")
    credentials, words = command_line(flags, flags.token_file)
    yield f"ExecStart={' '.join((words, *more))}"
    yield from ("Restart=on-failure", "RestartSec=10")
    yield from credentials
    yield from environment_lines(named=needs.variables)
    yield from user_lines(flags.program, *needs.files)
    yield _SERVICE.replace("sparktop-COMMAND", name)
    yield from ("", "[Install]", "WantedBy=multi-user.target")
