"""One file to attach to a report of a fault: the doctor's checks, versions, configuration, last log lines.

It names nobody: hosts, addresses, servers, machines and users have stand-ins, such as "host-1", the same one
wherever they occur. Secrets, and whatever may be one, are left out.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from sparktop import __version__
from sparktop.analysis.placement import url_host
from sparktop.config.schema import SETTINGS, Config, ValueKind
from sparktop.config.watch import absolute_path, variable_words
from sparktop.doctor.check import Check
from sparktop.doctor.machine import installed_version
from sparktop.files import read_bounded
from sparktop.model.targets import Target, Watch
from sparktop.model.text import clean, lines_of
from sparktop.report.privacy import BACKEND, ROUTER, SECRET, Privacy

SCHEMA = "sparktop.bundle/1"
"""Name and number of the format."""
_PACKAGES = (
    *("aiohttp", "backports.zstd", "httptools", "httpx", "jinja2", "msgspec", "nvidia-ml-py", "plotext"),
    *("prometheus_client", "psutil", "pydantic", "textual", "tomlkit", "uvloop", "yarl"),
)
"""What sparktop needs, as in pyproject.toml."""
_MOST_LOG_BYTES, _MOST_LOG_LINES, _LONGEST_LINE = 64 << 10, 200, 1000
"""Bytes at the end of the log that are read; lines that are taken of them, and characters of each."""
_SECRET_VARIABLE = re.compile(r"(?i)key|token|secret|passw|credential|auth")
"""Names of environment variables whose values may be secrets."""
_SHORTEST_SECRET = 6
"""Characters: shorter values of such variables, such as "1", occur in any text."""
_SECRET_KEYS = frozenset({"headers", "webhook", "hook", "extra_body"})
"""Settings whose texts may be secrets, whatever they are called."""
_TOKEN_FILES = frozenset({"token_file", "bearer_file"})
"""Settings that name files with a secret in the first line."""


def _check(check: Check, privacy: Privacy) -> Check:
    name, message, advice = map(privacy.text, (check.name, check.message, check.advice))
    return replace(check, name=name, message=message, advice=advice)


def _settings(kind: ValueKind, value: Any, privacy: Privacy) -> object:  # noqa: ANN401 - of any kind
    """Return a value of the configuration file, of this kind, redacted; keys of fixed tables stay."""
    if isinstance(value, dict):
        if kind.table is None:
            items = kind.items or kind
            return {privacy.text(key): _settings(items, part, privacy) for key, part in value.items()}
        return {key: _setting(key, kind.table[key].kind, part, privacy) for key, part in value.items()}
    if isinstance(value, list):
        return [_settings(kind.items or kind, part, privacy) for part in value]
    return privacy.text(value) if isinstance(value, str) else value


def _setting(key: str, kind: ValueKind, value: Any, privacy: Privacy) -> object:  # noqa: ANN401 - as above
    if key == "hook":
        return [privacy.text(value[0]), *(SECRET for _ in value[1:])] if value else []
    if key in _SECRET_KEYS:
        return SECRET
    if key.endswith("_env"):
        return privacy.text(value) if value in variable_words(value) else SECRET
    return _settings(kind, value, privacy)


def bundle_privacy(
    watch: Watch,
    config: Config | None,
    env: Mapping[str, str],
    *,
    own_names: Iterable[str],
    users: Iterable[str],
) -> Privacy:
    """Return what hides all that the targets, the configuration and the environment name.

    `own_names` are this machine's, `users` the names of who runs the program.
    """
    targets: tuple[tuple[Target, str], ...] = (
        *((target, BACKEND) for target in watch.backends),
        *((target, ROUTER) for target in (*watch.routers, *watch.sweep_routers)),
        *((target, "prometheus") for target in watch.prometheus),
    )
    urls = (url_host(target.url) for target in (*watch.nodes, *(target for target, _ in targets)))
    of_environment = [value for name, value in env.items() if _SECRET_VARIABLE.search(name)]
    of_file = () if config is None else _secrets_of(config.settings, config.path, env)
    privacy = Privacy(anonymous=True, numbered=True)
    privacy.know(
        [(target.name, kind) for target, kind in targets],
        [target.name for target in watch.nodes],
        hosts=(*own_names, *urls, *watch.discover, *(node.ssh for node in watch.nodes)),
        users=users,
        secrets=[*(value for value in of_environment if len(value) >= _SHORTEST_SECRET), *of_file],
    )
    return privacy


def _secrets_of(value: object, path: Path, env: Mapping[str, str], key: str = "") -> Iterable[str]:
    """Yield the secrets that settings of the file `path` hold or name.

    These are values of variables, first lines of files, and headers.
    """
    if isinstance(value, dict):
        for name, part in value.items():
            yield from _secrets_of(part, path, env, key if key in _SECRET_KEYS else str(name))
    elif isinstance(value, list):
        for part in value[1:] if key == "hook" else value:  # the first word of a hook is its program
            yield from _secrets_of(part, path, env, key)
    elif isinstance(value, str):
        yield from _secrets_of_text(value, path, env, key)


def _secrets_of_text(text: str, path: Path, env: Mapping[str, str], key: str) -> list[str]:
    """Return the secrets that a text of the settings, under `key`, holds or names."""
    if key in _SECRET_KEYS or key == "basic_user":
        return [text] if len(text) >= _SHORTEST_SECRET else []
    if key.endswith("_env"):
        return [env[text]] if env.get(text) else []
    return _first_line(Path(absolute_path(text, path, env))) if key in _TOKEN_FILES else []


def _first_line(path: Path) -> list[str]:
    try:
        content, _ = read_bounded(path, _MOST_LOG_BYTES)
    except OSError:
        return []
    return [line for line in lines_of(content.decode(errors="replace"))[:1] if line.strip()]


def last_lines(path: Path) -> list[str]:
    """Return the last lines of the log, none if there is no log."""
    try:
        with path.open("rb") as log:
            size = log.seek(0, 2)
            log.seek(max(0, size - _MOST_LOG_BYTES))
            text = log.read(_MOST_LOG_BYTES).decode(errors="replace")
    except OSError:
        return []
    lines = lines_of(text)
    return lines[1 if size > _MOST_LOG_BYTES else 0 :][-_MOST_LOG_LINES:]


def bundle(
    checks: Sequence[Check],
    report: Callable[[Sequence[Check]], Mapping[str, object]],
    config: Config | None,
    log: Sequence[str],
    privacy: Privacy,
) -> dict[str, object]:
    """Return the bundle as JSON-ready values; `report` makes the doctor's report of the redacted checks.

    The configuration is null without a file, and where the checks say what is wrong with it.
    """

    def redact_parts() -> dict[str, object]:
        return {
            "doctor": report([_check(check, privacy) for check in checks]),
            "configuration": None if config is None else _settings(SETTINGS, config.settings, privacy),
            "log": [_log_line(privacy.text(line)) for line in log],
        }

    # A host that one text shows by its form may stand bare in an earlier one: first all are found.
    redact_parts()
    versions = {
        "sparktop": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "packages": {name: installed_version(name) for name in _PACKAGES},
    }
    return {"schema": SCHEMA, "versions": versions, **redact_parts()}


def _log_line(line: str) -> str:
    """Return a line without control characters; the indentation of a traceback stays."""
    indent = " " * min(80, len(line) - len(line.lstrip(" ")))
    return indent + clean(line, _LONGEST_LINE)
