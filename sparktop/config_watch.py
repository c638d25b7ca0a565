"""What a checked configuration says is to be watched; without pydantic, for starts from the cache."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sparktop.errors import ConfigError
from sparktop.model.targets import (
    BackendTarget,
    ModelFacts,
    NodeTarget,
    RouterTarget,
    StateThresholds,
    Watch,
)
from sparktop.model.text import clean

MOST_BYTES = 1 << 20
"""A larger file is no configuration, whatever it is."""

Plain = Mapping[str, Any]
"""Checked settings as plain values: what `Settings.model_dump()` gives, and the cache gives back."""


def read_config(path: Path) -> str:
    """Give the text of a configuration file.

    Raises:
        ConfigError: it cannot be read, is too large or no UTF-8.
    """
    file = clean(path, 500)
    try:
        with path.open("rb") as stream:
            body = stream.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"{file}: cannot be read: {clean(reason)}") from None
    if len(body) > MOST_BYTES:
        raise ConfigError(f"{file}: is larger than {MOST_BYTES >> 20} MiB: no configuration file")
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        line = body.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{file}:{line}: is not UTF-8 text") from None


def watch_of(settings: Plain, path: Path, env: Mapping[str, str]) -> Watch:
    """Give what the settings of `path` say is to be watched; API keys come from `env`."""
    return Watch(
        nodes=tuple(NodeTarget(one["name"], one["via"], one["url"], one["ssh"]) for one in settings["nodes"]),
        backends=tuple(
            BackendTarget(
                name=one["name"],
                url=one["url"],
                engine=one["engine"],
                nodes=tuple(one["nodes"]),
                slots=one["slots"],
                api_key=_value(one["api_key_env"], env),
            )
            for one in settings["backends"]
        ),
        routers=tuple(
            RouterTarget(
                name=one["name"],
                url=one["url"],
                strategy=one["strategy"],
                backends=tuple(one["backends"]),
                deployments=dict(one["deployments"]),
                api_key=_value(one["api_key_env"], env),
            )
            for one in settings["routers"]
        ),
        interval_s=settings["interval_s"],
        theme=settings["theme"],
        thresholds=StateThresholds(**settings["thresholds"]),
        low_bandwidth=settings["low_bandwidth"],
        keys=dict(settings["keys"]),
        source=clean(path, 500),
        models={name: ModelFacts(one["bytes_per_token_gb"]) for name, one in settings["models"].items()},
    )


def _value(variable: str | None, env: Mapping[str, str]) -> str | None:
    return (env.get(variable) or None) if variable else None


def _variables(settings: Plain) -> Iterator[tuple[tuple[str | int, ...], str]]:
    for table, key in (("nodes", "token_env"), ("backends", "api_key_env"), ("routers", "api_key_env")):
        for number, one in enumerate(settings[table]):
            if one[key] is not None:
                yield (table, number, key), one[key]


def unset_variables(settings: Plain, path: Path, text: str, env: Mapping[str, str]) -> list[str]:
    """Give a line for each environment variable that the settings name and `env` lacks."""
    unset = [place for place, variable in _variables(settings) if not env.get(variable)]
    if not unset:
        return []
    from sparktop.toml_lines import key_lines, key_name, line_of  # late: most starts have nothing to tell

    lines = key_lines(text)
    return [
        f"{clean(path, 500)}:{line_of(lines, place)}: "
        f"key '{key_name(place)}' names an environment variable that is not set"
        for place in unset
    ]
