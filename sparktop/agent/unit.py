"""systemd units for the commands that serve or record, from the template `unit.service.jinja`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from sparktop.config.watch import Needs, needs_of
from sparktop.errors import UsageError
from sparktop.files import filled_template

USUAL_TOKEN_FILE = "/etc/sparktop/token"  # noqa: S105 - a place, not a token
"""The token file in the unit if a token is required and no file was given."""
CONFIG = "/etc/sparktop/sparktop.toml"
"""The configuration file in the unit if neither targets nor a file were given."""
_HOMES = (Path("/home"), Path("/root"))


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


def filled(command: str, words: str, **values: object) -> str:
    """Return the unit of a command of sparktop, which `words` start; `values` are those of the template."""
    usual = {"makes_token": False, "credentials": (), "variables": False, "home": "", "folder": ""}
    path = Path(__file__).with_name("unit.service.jinja")
    return filled_template(path, **{**usual, **values}, command=command, words=words)


def unit(flags: UnitFlags, *, wants_token: bool) -> str:
    """Return the text of the agent's systemd unit.

    `wants_token` is whether the agent requires a token. It does if its address can be reached from outside
    and --insecure was not given.
    """
    makes_token = flags.token_file is None and wants_token
    flags = replace(flags, token_file=USUAL_TOKEN_FILE) if makes_token else flags
    return watching_unit(flags, (), Needs(variables=False), makes_token=makes_token)


def watching_unit(flags: UnitFlags, more: Sequence[str], needs: Needs, *, makes_token: bool = False) -> str:
    """Return the text of the systemd unit of a command that serves.

    The words `more` follow the options of `flags` on the command line, quoted where they need it; `needs` is
    what the configuration needs. With `makes_token` a comment says how the token is made.
    """
    files = (
        ("token-file", "token", flags.token_file),
        ("tls-cert", "tls-cert", flags.tls_cert),
        ("tls-key", "tls-key", flags.tls_key),
    )
    options = [(option, name, Path(file).absolute()) for option, name, file in files if file is not None]
    words = [quote_word(str(flags.program)), flags.command]
    if flags.listen is not None:
        words += ["--listen", quote_word(flags.listen)]
    # systemd loads these files as credentials, to which the command line refers.
    for option, name, _ in options:
        words += [f"--{option}", f"${{CREDENTIALS_DIRECTORY}}/{name}"]
    if flags.insecure:
        words.append("--insecure")
    for name in flags.names:
        words += ["--name", quote_word(name)]
    return filled(
        flags.command,
        " ".join((*words, *more)),
        makes_token=makes_token,
        token_file=flags.token_file,
        token_folder=Path(flags.token_file or "/").parent,
        credentials=[(name, str(path).replace("%", "%%")) for _, name, path in options],
        variables=needs.variables,
        **_home_values(flags.program, *needs.files),
    )


def _home_values(program: Path, *files: Path) -> dict[str, str]:
    """Return the values of the template that tell of `program`, or a file that it reads, in a home directory.

    The user of the unit is the owner of the first that is there; without one, a dynamic user of systemd.
    """
    home_path = next((path for path in (program, *files) if _in_home(path)), None)
    if home_path is None:
        return {"home": ""}
    try:
        owner = home_path.owner()
    except (KeyError, OSError):
        owner = "nobody"
    shown_path = "".join(char if char.isprintable() else "?" for char in str(home_path))
    return {"home": shown_path, "program": str(program), "owner": owner}


def _in_home(path: Path) -> bool:
    """Return whether a path, or what it links to, is in a home directory."""
    return any(form.is_relative_to(home) for form in (path, path.resolve()) for home in _HOMES)


def quote_word(word: str) -> str:
    """Quote and escape a word of a command line for systemd."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    needs_quotes = escaped != word or any(char.isspace() or char in "'\";" for char in word)
    return f'"{escaped}"' if needs_quotes else word


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
