"""Errors in a configuration file: checks across keys, and error messages with file, line, key and fault."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import asdict

from sparktop.config.keys import KEYS, wrong_keys
from sparktop.config.toml_text import Path, key_lines, key_name, line_of
from sparktop.errors import ConfigError, did_you_mean
from sparktop.model.targets import AXES, NodeThresholds
from sparktop.model.text import clean

MOST = 100
"""Most lines of errors shown."""

_CLOSED_LOOP = ("climb_to", "more_runs", "mode", "requests", "depths")
"""Keys of levels of requests at once."""
_LENGTHS = ("pp", "prompt_lengths", "tg")
"""Keys of lengths that all requests have."""
_UNUSED = {
    "rate": _CLOSED_LOOP,
    "agents": (*_CLOSED_LOOP, *_LENGTHS),
    "trace": (*_CLOSED_LOOP, *_LENGTHS, "duration_s"),
}
"""Axes of a sweep other than its concurrency, with the keys that have no effect beside each."""
_NEEDS = (
    ("prometheus", "password_env", "basic_user"),
    ("prometheus", "basic_user", "password_env"),
    ("prometheus", "tls_key", "tls_cert"),
    ("events", "webhook_token_env", "webhook"),
    *(("sweeps", key, axis) for axis, keys in AXES.items() if axis != "concurrency" for key in keys),
)
"""(tables, key, the key of the same table without which it has no effect)."""
_EXCLUSIVE: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("nodes", ("token_env", "token_file")),
    ("prometheus", ("bearer_env", "bearer_file", "basic_user")),
    ("sweeps", ("concurrency", *_UNUSED)),
)
"""(tables, keys of which each of them has one at most)."""


class Mistake(Struct, frozen=True):
    """A fault in the configuration file: the path of the key, and a message."""

    path: Path
    message: str
    """Text after the key's name, such as "is unknown"."""
    at: Path | None = None
    """Path whose line is shown, if that is not `path`."""


def config_error(file: str, text: str, problems: Iterable[Mistake]) -> ConfigError:
    """Return an error with a line "file:line: key 'name' message" for each problem, sorted by line.

    `file` is the file's name for messages and `text` its content. At most `MOST` problems are listed.
    """
    lines = key_lines(text)
    located = [
        (line_of(lines, problem.at or problem.path), f"key '{key_name(problem.path)}' {problem.message}")
        for problem in problems
    ]
    located.sort(key=lambda pair: pair[0])
    messages = [f"{file}:{line}: {message}" for line, message in located[:MOST]]
    if len(located) > MOST:
        messages.append(f"{file}: {len(located) - MOST} more errors")
    return ConfigError("\n".join(messages))


def shown_value(value: object) -> str:
    """Format a value of the configuration file for an error message.

    Numbers and text are shown; other values are only described, as in "a list".
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"'{clean(value, 40)}'"
    if isinstance(value, int | float):
        return "a number of that size" if abs(value) >= 10**15 else repr(value)
    if isinstance(value, list):
        return "a list"
    return "a table" if isinstance(value, dict) else "a date or time"


def _tables(data: Mapping[str, object], key: str) -> Iterator[tuple[Path, Mapping[str, object]]]:
    """Yield (path, table) for `[events]`, or each table under `[[key]]`; skip values that are not tables."""
    tables = data.get(key)
    if isinstance(tables, dict) and key == "events":
        yield (key,), tables
    elif isinstance(tables, list):
        yield from (((key, number), table) for number, table in enumerate(tables) if isinstance(table, dict))


def _names(data: Mapping[str, object], *keys: str) -> list[str]:
    """Return the names of the tables under these keys."""
    names = [table.get("name") for key in keys for _, table in _tables(data, key)]
    return [name for name in names if isinstance(name, str)]


def _repeated_names(data: Mapping[str, object]) -> Iterator[Mistake]:
    """Yield a problem for each name that two tables of a kind have."""
    for key in ("nodes", "backends", "routers", "sweeps", "prometheus"):
        first_key: dict[str, Path] = {}
        for path, table in _tables(data, key):
            name = table.get("name")
            if isinstance(name, str) and first_key.setdefault(name, path) != path:
                other_key = key_name(first_key[name])
                yield Mistake((*path, "name"), f"repeats {shown_value(name)}, the name of {other_key}")


def _unknown_names(data: Mapping[str, object]) -> Iterator[Mistake]:
    """Yield a problem for each name of a node, backend or router that the file does not define."""
    references = (
        ("backends", "nodes", "node", ("nodes",)),
        ("routers", "backends", "backend", ("backends",)),
        ("routers", "deployments", "backend", ("backends",)),
        ("routers", "weights", "backend", ("backends",)),
        ("sweeps", "targets", "backend or router", ("backends", "routers")),
    )
    for key, field, noun, homes in references:
        defined = _names(data, *homes)
        for path, table in _tables(data, key):
            for position, name in _positions_of_names(table.get(field), are_keys=field == "weights"):
                if isinstance(name, str) and name not in defined:
                    near = did_you_mean(name, defined)
                    yield Mistake((*path, field, position), f"names no {noun}: {shown_value(name)}{near}")


def _positions_of_names(value: object, *, are_keys: bool) -> Iterable[tuple[str | int, object]]:
    """Return (index or key, name) of each name in a list or a table, whose keys may be the names."""
    if isinstance(value, list):
        return enumerate(value)
    if isinstance(value, dict):
        return zip(value, value if are_keys else value.values(), strict=True)
    return ()


def _wrong_access(data: Mapping[str, object]) -> Iterator[Mistake]:
    """Yield a problem for each address of a node that its `via` needs, or that has no effect with it."""
    # (key, the `via` to which it belongs, those with which it has no effect)
    keys = (
        ("url", "agent", ("local", "ssh")),
        ("ssh", "ssh", ("local",)),
        ("ssh_bundle", "ssh", ("local", "agent")),
    )
    for path, table in _tables(data, "nodes"):
        access = table.get("via", "local")
        for key, via, others in keys:
            if key in table and access in others:
                yield Mistake((*path, key), f"has no effect without via = '{via}'")
            elif key not in table and access == via and key != "ssh_bundle":
                yield Mistake((*path, key), f"is missing: via = '{via}' needs it", (*path, "via"))


def _keys_without_effect(data: Mapping[str, object]) -> Iterator[Mistake]:
    """Yield a problem for each key that needs another one of its table, or conflicts with one."""
    for key, name, other in _NEEDS:
        for path, table in _tables(data, key):
            if name in table and other not in table:
                yield Mistake((*path, name), f"has no effect without {other}")
    for key, names in _EXCLUSIVE:
        for path, table in _tables(data, key):
            given_names = [name for name in names if table.get(name)]
            for name in given_names[1:]:
                yield Mistake((*path, name), f"conflicts with {given_names[0]}: keep one")


def _limits_in_wrong_order(data: Mapping[str, object]) -> Iterator[Mistake]:
    """Yield a problem for each pair of limits of alerts whose critical one is not beyond the other."""
    table = data.get("alerts")
    if not isinstance(table, dict):
        return
    limits = asdict(NodeThresholds()) | {
        key: value
        for key, value in table.items()
        if isinstance(value, int | float) and abs(value) <= sys.float_info.max
    }
    for critical in (key for key in asdict(NodeThresholds()) if "_critical_" in key):
        warn = critical.replace("_critical_", "_warn_")
        if not limits[critical] < limits[warn]:
            key = critical if critical in table else warn
            words = f"{critical} ({limits[critical]:g}) must be below {warn} ({limits[warn]:g})"
            yield Mistake(("alerts", key), f"crosses another: {words}")


def _keys_beside_an_axis(data: Mapping[str, object]) -> Iterator[Mistake]:
    """Yield a problem for a key of a sweep that has no effect on its axis, or with its mode."""
    for path, table in _tables(data, "sweeps"):
        axis = next((key for key in ("concurrency", *_UNUSED) if table.get(key)), "")
        for key in _UNUSED.get(axis, ()):
            if table.get(key):
                yield Mistake((*path, key), f"has no effect beside {axis}: leave it out")
        if table.get("depths") and table.get("mode") == "steady":
            yield Mistake((*path, "depths"), 'is for bursts: leave out mode = "steady"')


def _faulty_screen_keys(data: Mapping[str, object]) -> Iterator[Mistake]:
    """Yield a problem for each key of the screen that cannot be used, of actions and of sweeps."""
    keys = data.get("keys")
    items = keys.items() if isinstance(keys, dict) else ()
    given_keys = {name: key for name, key in items if isinstance(key, str)}
    actions = [key.name for key in KEYS]
    for name in given_keys:
        if name not in actions:
            suggestion = did_you_mean(name, actions) or f" (known here: {', '.join(actions)})"
            yield Mistake(("keys", name), f"is unknown{suggestion}")
    tables = list(_tables(data, "sweeps"))
    written_keys = [table.get("key") for _, table in tables]
    preset_keys = [key if isinstance(key, str) else None for key in written_keys]
    for place, message in wrong_keys(given_keys, preset_keys).items():
        path = ("keys", place) if isinstance(place, str) else (*tables[place][0], "key")
        yield Mistake(path, message)


def _hook_without_program(data: Mapping[str, object]) -> Iterator[Mistake]:
    """Yield a problem for a hook that does not begin with a program."""
    for path, table in _tables(data, "events"):
        hook = table.get("hook")
        if isinstance(hook, list) and hook and (hook[0] == "" or str(hook[0]).startswith("-")):
            yield Mistake((*path, "hook"), "must begin with a program")


CHECKS: tuple[Callable[[Mapping[str, object]], Iterator[Mistake]], ...] = (
    _repeated_names,
    _unknown_names,
    _wrong_access,
    _keys_without_effect,
    _keys_beside_an_axis,
    _limits_in_wrong_order,
    _faulty_screen_keys,
    _hook_without_program,
)
"""Rules across keys. They read the raw data, so that their errors appear beside those of single values."""
