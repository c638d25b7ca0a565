"""Reads the configuration file, and makes a `Watch` of it: the targets and settings for watching."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

from sparktop.errors import ConfigError
from sparktop.files import read_bounded
from sparktop.model.event import Severity
from sparktop.model.targets import (
    BackendTarget,
    EventSettings,
    GuardLimits,
    ModelFacts,
    NodeTarget,
    NodeThresholds,
    PrometheusTarget,
    RouterTarget,
    StateThresholds,
    SweepSpec,
    ViewSettings,
    Watch,
)
from sparktop.model.text import clean, reason_of

MOST_BYTES = 1 << 20
"""Most bytes of a configuration file."""
_WORDS = re.compile(r"[A-Z][A-Z0-9]{0,15}(_[A-Z0-9]{1,15})*")
"""A name of a variable that is no key by mistake."""
DEMO_KEY, DEMO_KEY_VARIABLE = "sk-simulated", "SPARKTOP_DEMO_KEY"
"""The key of the demo's simulated router, and the variable that its configuration names for it."""
PUBLIC_KEYS = {DEMO_KEY_VARIABLE: DEMO_KEY}
"""Values of variables that are no secrets and need not be set."""

FILES = frozenset({"token_file", "bearer_file", "tls_ca", "tls_cert", "tls_key", "trace", "prompts"})
"""Keys whose values name files."""
T = TypeVar("T")
Plain = Mapping[str, Any]
"""A table of the configuration file: the values of the keys that it has, validated."""


def read_config(path: Path) -> tuple[str, os.stat_result]:
    """Return the text of a configuration file, and what the system says of the file that was read.

    Raises:
        ConfigError: it cannot be read, is too large or is not UTF-8.
    """
    file = clean(path, 500)
    try:
        body, status = read_bounded(path, MOST_BYTES)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file}: cannot be read: {reason_of(error)}") from None
    if len(body) > MOST_BYTES:
        raise ConfigError(f"{file}: is larger than {MOST_BYTES >> 20} MiB: no configuration file")
    try:
        return body.decode("utf-8-sig"), status
    except UnicodeDecodeError as error:
        line = body.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{file}:{line}: is not UTF-8 text") from None


def watch_of(settings: Plain, path: Path, env: Mapping[str, str]) -> Watch:
    """Return the targets and settings for watching, from the validated settings of the file `path`.

    API keys and tokens come from `env`.
    """

    def make_each(kind: type[T], tables: Iterable[Plain]) -> tuple[T, ...]:
        return tuple(_make(kind, table, path, env) for table in tables)

    def table(name: str) -> Plain:
        settings_of_table: Plain = settings.get(name, {})
        return settings_of_table

    routers, files = settings.get("routers", ()), settings.get("target_files", ())
    watched = [router for router in routers if router.get("watched", True)]
    others = [router for router in routers if not router.get("watched", True)]
    # The keys of these tables are fields of `Watch` itself.
    flat_tables = {**table("recorder"), **table("diagnosis")}
    return _make(
        Watch,
        {**settings, **flat_tables},
        path,
        env,
        nodes=make_each(NodeTarget, settings.get("nodes", ())),
        backends=make_each(BackendTarget, settings.get("backends", ())),
        routers=make_each(RouterTarget, watched),
        sweep_routers=make_each(RouterTarget, others),
        target_files=tuple(absolute_path(name, path, env) for name in files),
        prometheus=make_each(
            PrometheusTarget, ({"name": "prometheus", **given} for given in settings.get("prometheus", ()))
        ),
        thresholds=StateThresholds(**table("thresholds")),
        node_thresholds=NodeThresholds(**table("alerts")),
        source=clean(path, 500),
        models={name: _make(ModelFacts, facts, path, env) for name, facts in table("models").items()},
        sweeps=tuple(_sweep_spec(sweep, path, env) for sweep in settings.get("sweeps", ())),
        guard=GuardLimits(**table("guard")),
        events=_event_settings(table("events"), path, env),
        view=ViewSettings(**table("view")),
    )


_RENAMED = {"capture_sizes": "cudagraph_capture_sizes"}
"""Keys of tables whose fields have other names."""


def _make(kind: type[T], table: Plain, path: Path, env: Mapping[str, str], **others: Any) -> T:  # noqa: ANN401 - of any field
    """Return the target or settings that a table of the file stands for, field by field of the same name.

    The value of a field KEY whose table has KEY_env is that of the environment variable. `others` are values
    of fields that the table has in another form.
    """
    values: dict[str, Any] = {}
    for name in kind.__annotations__:
        key = name if name in table else _RENAMED.get(name, name)
        if f"{name}_env" in table:
            values[name] = _variable_value(table[f"{name}_env"], env)
        elif key in table:
            values[name] = absolute_path(table[key], path, env) if name in FILES else _with_tuples(table[key])
    return kind(**{**values, **others})


def _with_tuples(value: Any) -> Any:  # noqa: ANN401 - any value of the file
    """Return a list as a tuple, and a table of lists as one of tuples."""
    if isinstance(value, dict):
        return {key: _with_tuples(part) for key, part in value.items()}
    return tuple(value) if isinstance(value, list) else value


def _event_settings(table: Plain, path: Path, env: Mapping[str, str]) -> EventSettings:
    """Return the settings in `table`, which is `[events]` of the file; the webhook's token comes from `env`.

    A hook program with a slash in its name is a path, relative to the folder of the configuration file
    `path`. Other programs are searched on the PATH when the hook runs.
    """
    program, *arguments = table.get("hook") or [""]
    if "/" in program:
        program = absolute_path(program, path, env)
    hook = (program, *arguments) if program else ()
    severity = Severity(table["severity"]) if "severity" in table else EventSettings().severity
    return _make(EventSettings, table, path, env, severity=severity, hook=hook)


def _sweep_spec(table: Plain, path: Path, env: Mapping[str, str]) -> SweepSpec:
    """Return a preset of the load generator; files are relative to the folder of the file `path`."""
    workload = table.get("workload")
    if workload is not None and workload.endswith(".toml"):
        workload = absolute_path(workload, path, env)
    return _make(
        SweepSpec,
        table,
        path,
        env,
        prompt_lengths=tuple(table.get("prompt_lengths") or ([table["pp"]] if "pp" in table else ())),
        depths=tuple(dict.fromkeys(table.get("depths", ()))),
        workload=workload,
        extra_body=table.get("extra_body", {}),
    )


def _variable_value(variable: str | None, env: Mapping[str, str]) -> str | None:
    """Return the value of a variable, of `PUBLIC_KEYS` if it is not set; None without a value."""
    return (env.get(variable) or PUBLIC_KEYS.get(variable)) if variable else None


def absolute_path(name: str, path: Path, env: Mapping[str, str]) -> str:
    """Return the absolute path of a file that the configuration file `path` names.

    A relative name is relative to the configuration's folder; "~/" stands for the home directory.
    """
    home = env.get("HOME", "")
    if name.startswith("~/") and home.startswith("/"):
        return str(Path(home, name[2:]))
    return str(path.absolute().parent / name)


def warnings_of(settings: Plain, path: Path, text: str, env: Mapping[str, str]) -> list[str]:
    """Return a warning for each environment variable that `env` lacks, and each server that is listed twice.

    `path` and `text` of the configuration file provide the file name and line number in the warnings.
    """
    tables: list[tuple[tuple[str | int, ...], Plain]] = [
        ((kind, number), table)
        for kind in ("nodes", "backends", "routers", "prometheus")
        for number, table in enumerate(settings.get(kind, ()))
    ]
    found: list[tuple[tuple[str | int, ...], str]] = [
        ((*key_path, key), f"names {variable_words(variable)}, which is not set")
        for key_path, table in [*tables, (("events",), settings.get("events", {}))]
        for key, variable in table.items()
        if key.endswith("_env") and _variable_value(variable, env) is None
    ]
    first_with: dict[tuple[object, object], tuple[str | int, ...]] = {}
    for key_path, table in tables:
        kind = key_path[0]
        if not table.get("watched", True):
            continue
        first = first_with.setdefault((kind, table.get("url")), key_path)
        if kind in {"backends", "routers"} and first != key_path:
            found.append(((*key_path, "url"), f"is that of {kind}[{first[1]}], too: its figures count twice"))
    if not found:
        return []
    from sparktop.config.toml_text import (  # late: most starts have nothing to report
        key_lines,
        key_name,
        line_of,
    )

    lines = key_lines(text)
    return [
        f"{clean(path, 500)}:{line_of(lines, key_path)}: key '{key_name(key_path)}' {message}"
        for key_path, message in found
    ]


def variable_words(variable: str) -> str:
    """Return which environment variable is meant, without its name where it may be a misplaced key.

    Names of variables are words in capitals; keys have small letters or are one long word.
    """
    words = _WORDS.fullmatch(variable)
    return f"the environment variable {variable}" if words else "an environment variable"


def default_toml() -> str:
    """Return a commented example of the configuration file, as TOML."""
    return Path(__file__).with_name("default.toml").read_text(encoding="utf-8")


_CERTIFICATES_AND_KEYS = FILES - {"trace", "prompts"}
"""Keys whose files a service needs."""


class Needs(Struct, frozen=True):
    """What a service that reads a configuration file needs beside it."""

    variables: bool | None = None
    """Whether the configuration names environment variables; None if the file cannot be read here."""
    files: tuple[Path, ...] = ()
    """The configuration file itself and the files of keys and certificates that it names."""


def needs_of(path: Path) -> Needs:
    """Return what the configuration file `path` needs; invalid settings are passed over.

    Names of files are as of `absolute_path`, for the user who runs this.
    """
    config_path = path.absolute()
    try:
        values = [*_texts_in(tomllib.loads(read_config(config_path)[0]))]
    except (ConfigError, ValueError, RecursionError):
        return Needs(files=(config_path,))
    names = [value for key, value in values if key in _CERTIFICATES_AND_KEYS]
    files = [Path(absolute_path(name, config_path, os.environ)) for name in names]
    return Needs(any(key.endswith("_env") for key, _ in values), (config_path, *files))


def _texts_in(table: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (key, text) for each text in a table and in the tables below it."""
    for key, value in table.items():
        if isinstance(value, str):
            yield key, value
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, dict):
                yield from _texts_in(item)
