"""The schema of the configuration file `sparktop.toml`, and its validation.

First come checks of single values: each returns the value to use, or raises a ValueError with the words that
follow the key's name. Then the kinds of values, the tables with all keys, and the file as a whole.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import partial
from operator import gt, le, lt
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from sparktop.colors.palette import find_palette, palettes, theme_problems
from sparktop.config.checks import CHECKS, Mistake, config_error, shown_value
from sparktop.config.toml_text import Path as KeyPath
from sparktop.config.toml_text import key_lines, key_name, line_of
from sparktop.config.watch import (
    PUBLIC_KEYS,
    read_config,
    variable_words,
    warnings_of,
    watch_of,
)
from sparktop.errors import ConfigError, did_you_mean
from sparktop.model.event import ALERT_KINDS
from sparktop.model.instant import MAX_INTERVAL_S, MAX_TIMEOUT_S, MIN_INTERVAL_S, MIN_TIMEOUT_S
from sparktop.model.plain import hide_in_repr
from sparktop.model.targets import (
    ENGINE_NAMES,
    BackendTarget,
    EventSettings,
    NodeTarget,
    NodeThresholds,
    PrometheusTarget,
    RouterTarget,
    StateThresholds,
    SweepSpec,
    Watch,
)
from sparktop.model.text import clean

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""A name of an environment variable, or of a label in Prometheus."""
_LONGEST_QUERY = 2000
"""Characters of the query of a webhook's URL."""


def _text_that(is_right: Callable[[str], object], words: str) -> Callable[[str], str]:
    """Return a check of a text; `words` say what it must be, and never quote it: it may be a secret."""

    def check(text: str) -> str:
        if not is_right(text):
            raise ValueError(words)
        return text

    return check


_printable_name = _text_that(
    lambda name: name and clean(name, 64) == name,
    "must be 1 to 64 printable characters without space at the ends",
)


def _http_url(url: str) -> str:
    """Return `url` without a trailing slash.

    Raises:
        ValueError: not a plain http(s) URL. The message never quotes it, because it may hold a password.
    """
    example = "as in 'http://127.0.0.1:8000'"
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"must start with http:// or https://, {example}")
    try:
        url_parts = urlsplit(url)
        url_parts.port  # noqa: B018  # a port that is not a number raises ValueError here
    except ValueError:
        raise ValueError(f"is not a URL, {example}") from None
    if not url_parts.hostname or clean(url, 500) != url or " " in url:
        raise ValueError(f"is not a URL, {example}")
    if url_parts.username is not None or url_parts.query or url_parts.fragment:
        raise ValueError("must hold no password, query or fragment; keys go into environment variables")
    return url.rstrip("/")


def _known_theme(name: str) -> str:
    """Return `name` if it is the name of a theme.

    Raises:
        ValueError: there is no such theme; the message has the most similar name.
    """
    if find_palette(name) is None:
        themes, files = palettes(), tuple(f"{clean(name, 60)}{suffix}:" for suffix in (".toml", ".theme"))
        broken = next((f"; {problem}" for problem in theme_problems() if problem.startswith(files)), "")
        suggestion = broken or did_you_mean(name, themes) or f" (known: {', '.join(themes)})"
        raise ValueError(f"names no theme: '{clean(name, 40)}'{suggestion}")
    return name


def _webhook_url(url: str) -> str:
    """Return `url` unchanged if it is a valid webhook URL.

    Raises:
        ValueError: the URL is invalid. The message never quotes the URL, because it may contain a secret.
    """
    address, _, query = url.partition("?")
    if "@" in address.partition("://")[2].partition("/")[0]:
        raise ValueError("must hold no user name or password: a token goes into webhook_token_env")
    _http_url(address)
    if clean(query, _LONGEST_QUERY) != query or " " in query or "#" in query:
        raise ValueError("is no URL, as in 'https://example.org/alerts'")
    return url


_HEADER = re.compile(r"[A-Za-z0-9-]{1,64}")
"""A name of an HTTP header."""
_SECRET = frozenset({"authorization", "proxy-authorization", "cookie", "x-api-key"})
"""Headers whose values are secrets."""
_LONGEST = 1000
"""Characters of label matchers."""
_PARSER_LINE = re.compile(r"\(at line (\d+), ")
"""Where `tomllib` says that a fault is."""


def _api_url(url: str) -> str:
    url = _http_url(url)
    for end in ("/api/v1/query", "/api/v1"):
        url = url.removesuffix(end)
    return url.rstrip("/")


def _selector(text: str) -> str:
    """Return label matchers without braces around them.

    Raises:
        ValueError: the text is too long, cannot be printed, or has unequal quotes.
    """
    inner = text.strip().removeprefix("{").removesuffix("}").strip()
    if len(inner) > _LONGEST or not inner.isprintable() or inner.replace('\\"', "").count('"') % 2:
        raise ValueError("must be label matchers, as in 'namespace=\"llm\"'")
    return inner


def _headers(given: dict[str, str]) -> dict[str, str]:
    """Return the headers.

    Raises:
        ValueError: one of them cannot be sent, or would hold a secret. The message never quotes a value.
    """
    for name, value in given.items():
        if not _HEADER.fullmatch(name) or not (value.isascii() and value.isprintable()):
            raise ValueError('must be names and values of HTTP headers, as in { X-Scope-OrgID = "team" }')
        if name.lower() in _SECRET:
            raise ValueError("must hold no secret: use bearer_env, bearer_file or password_env")
    return given


def _hook(value: list[str] | str) -> list[str]:
    if isinstance(value, str):
        message = "must be a list: a program and its arguments, as in ['/path/to/program', 'argument']"
        raise ValueError(message)  # noqa: TRY004 - a fault of the file
    return value


def _hosts(value: list[str] | str) -> list[str]:
    hosts = [value] if isinstance(value, str) else value
    if not 1 <= len(hosts) <= _MOST_HOSTS:
        raise ValueError(f"must be a host, or a list of 1 to {_MOST_HOSTS} hosts")
    return [_printable_name(host) for host in hosts]


def _json(value: object) -> object:
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            _json(part)
    is_finite = not isinstance(value, float) or math.isfinite(value)
    if not (isinstance(value, str | int | float | list | dict) and is_finite):
        raise ValueError("must be a value that JSON can hold")
    return value


class ValueKind(Struct, frozen=True):
    """What the value of a key may be."""

    noun: str
    """In words, as in "must be a whole number"."""
    types: tuple[type, ...]
    """The types that `tomllib` may have made of it."""
    choices: tuple[str | int, ...] = ()
    """All possible values, where they are few."""
    least: float | None = None
    above: float | None = None
    most: float | None = None
    items: ValueKind | None = None
    """The kind of each item of a list, or of each value of a table of any keys."""
    table: Mapping[str, Setting] | None = None
    """The keys of a table, where these are fixed."""
    check: Callable[[Any], Any] | None = None
    """A function that returns the value to use; raises a ValueError with the words after the key's name."""

    @property
    def has_settings(self) -> bool:
        """Whether it is a table of settings, or a list or table of such."""
        return self.table is not None or (self.items is not None and self.items.has_settings)

    def read(self, value: Any, path: KeyPath, problems: list[Mistake]) -> Any:  # noqa: ANN401 - of any kind
        """Return a value of the file as it is used; append a `Mistake` for each fault in it."""
        problem_count = len(problems)
        if (message := self._fault(value)) is not None:
            hint = f": write [[{path[-1]}]]" if isinstance(value, dict) and list in self.types else ""
            problems.append(Mistake(path, clean(f"{message}{hint}", 400)))
        elif self.table is not None:
            value = _read_table(self.table, value, path, problems)
        elif self.items is not None and isinstance(value, list):
            value = [self.items.read(item, (*path, at), problems) for at, item in enumerate(value)]
        elif self.items is not None and isinstance(value, dict):
            value = {key: self.items.read(item, (*path, key), problems) for key, item in value.items()}
        if self.check is not None and len(problems) == problem_count:
            try:
                value = self.check(value)
            except ValueError as error:
                problems.append(Mistake(path, clean(str(error), 400)))
        return value

    def _fault(self, value: Any) -> str | None:  # noqa: ANN401 - as above
        """Return what is wrong with a value, but not with its parts; None if nothing is."""
        value_text = shown_value(value)
        if self.choices and (type(value) not in self.types or value not in self.choices):
            *others, last = map(repr, self.choices)
            suggestion = did_you_mean(str(value), map(str, self.choices))
            return f"must be one of {', '.join(others)} or {last}, not {value_text}{suggestion}"
        if type(value) not in self.types:
            return f"must be {self.noun}, not {value_text}"
        if isinstance(value, float) and not math.isfinite(value):
            return f"must be a finite number, not {value_text}"
        for limit, words, is_beyond in (
            (self.least, "at least", lt),
            (self.above, "above", le),
            (self.most, "at most", gt),
        ):
            if limit is not None and is_beyond(value, limit):
                return f"must be {words} {limit:,.10g}, not {value_text}"
        return None


class Reach(Enum):
    """What a setting can do beyond addresses and looks, in words for the question whether to trust its file.

    Each setting has one of these marks, its own or that of its table. One without a mark is not harmless.
    The worst come first.
    """

    PROGRAM = "runs a program"
    SECRET = "sends a secret to a server that the file names"  # noqa: S105 - a sentence
    FILE = "reads a file"
    REQUEST = "sends what the file says to a server that the file names"
    LOAD = "puts load on servers once you start it"
    CONTROL = "changes keys, limits or what is stored and asked"
    UNKNOWN = "does what a found file may not do"
    NONE = ""


class Setting(Struct, frozen=True):
    """A key of the configuration file."""

    kind: ValueKind
    reach: Reach = Reach.UNKNOWN
    required: bool = False
    default: object = None
    """What holds while the file does not have the key; None where that depends, or is nothing."""


def _read_table(
    table: Mapping[str, Setting], given: Mapping[str, object], path: KeyPath, problems: list[Mistake]
) -> dict[str, Any]:
    """Return the values of a table's keys as they are used; append a `Mistake` for each fault."""
    values_read: dict[str, Any] = {}
    needed = (key for key, setting in table.items() if setting.required and key not in given)
    problems.extend(Mistake((*path, key), "is missing") for key in needed)
    for key, value in given.items():
        if key in table:
            values_read[key] = table[key].kind.read(value, (*path, key), problems)
            continue
        message = "is unknown" + (did_you_mean(key, table) or f" (known here: {', '.join(table)})")
        if path[:1] == ("sweeps",) and key in _REMOVED:
            message = 'was removed: agents with workload = "chat" read and pause as people'
        problems.append(Mistake((*path, key), clean(message, 400)))
    return values_read


def _number(
    *, least: float | None = None, above: float | None = None, most: float | None = None
) -> ValueKind:
    return ValueKind("a number", (float, int), least=least, above=above, most=most, check=_float)


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        raise ValueError("must be a finite number, not a number of that size") from None


def _whole(least: int, most: int | None = None) -> ValueKind:
    return ValueKind("a whole number", (int,), least=least, most=most)


def _text(check: Callable[[str], str] | None = None) -> ValueKind:
    return ValueKind("text in quotes", (str,), check=check)


def _one_of(*words: str | int) -> ValueKind:
    return ValueKind("", (type(words[0]),), words)


def _list(items: ValueKind) -> ValueKind:
    return ValueKind("a list", (list,), items=items)


def _by_name(items: ValueKind, check: Callable[[Any], Any] | None = None) -> ValueKind:
    return ValueKind("a table", (dict,), items=items, check=check)


def _table(keys: Mapping[str, Setting], of: object = None) -> ValueKind:
    """Return the kind of a table; the fields of `of` are the defaults of its keys of the same name."""
    defaults = {key: getattr(of, key, setting.default) for key, setting in keys.items()}
    filled = {key: replace(setting, default=defaults[key]) for key, setting in keys.items()}
    return ValueKind("a table", (dict,), table=filled)


_MOST_HOSTS = 64
"""Hosts of one instance."""
_REMOVED = ("users", "think_s")
"""Keys of sweeps in files of earlier versions."""
_SWITCH = ValueKind("true or false", (bool,))
_NAME, _URL, _PLAIN = _text(_printable_name), _text(_http_url), _text()
_VARIABLE_NAME = _text(
    _text_that(_IDENTIFIER.fullmatch, "must be the name of an environment variable, never the key itself")
)
_FILE = _text(_text_that(lambda name: name and clean(name, 4096) == name, "must name a file"))
_COMMAND = _text(
    _text_that(
        lambda name: name and clean(name, 256) == name and not name.startswith("-"),
        "must be a command or its path: 1 to 256 printable characters, no '-' in front",
    )
)
_ARGUMENT = _text(_text_that(str.isprintable, "must be printable text: a program or one of its arguments"))
_LABEL = _text(_text_that(_IDENTIFIER.fullmatch, "must be the name of a label, as in 'namespace'"))
_COUNT, _MANY = _whole(1), _whole(1, 65_536)
_LIMIT, _PERCENT, _SHARE = _number(above=0), _number(above=0, most=100), _number(above=0, most=1)
_FROM_0 = _number(least=0)
_runs, _secret = partial(Setting, reach=Reach.PROGRAM), partial(Setting, reach=Reach.SECRET)
_reads, _sends = partial(Setting, reach=Reach.FILE), partial(Setting, reach=Reach.REQUEST)
_steers, _harmless = partial(Setting, reach=Reach.CONTROL), partial(Setting, reach=Reach.NONE)

_NODE = _table(
    {
        "name": _harmless(_NAME, required=True),
        "via": _harmless(_one_of("local", "agent", "ssh")),
        "url": _harmless(_URL),
        "ssh": _runs(_NAME),
        "token_env": _secret(_VARIABLE_NAME),
        "token_file": _secret(_FILE),
        "tls_ca": _reads(_FILE),
        "command": _runs(_COMMAND),
        "ssh_bundle": _runs(_SWITCH),
    },
    NodeTarget(""),
)
_BACKEND = _table(
    {
        "name": _harmless(_NAME, required=True),
        "url": _harmless(_URL, required=True),
        "engine": _harmless(ValueKind("", (str,), ("auto", *ENGINE_NAMES))),
        "nodes": _harmless(_list(_PLAIN)),
        "slots": _harmless(_COUNT),
        "cudagraph_capture_sizes": _harmless(_list(_COUNT)),
        "api_key_env": _secret(_VARIABLE_NAME),
        "tls_ca": _reads(_FILE),
    },
    BackendTarget("", ""),
)
_ROUTER = _table(
    {
        "name": _harmless(_NAME, required=True),
        "url": _harmless(_URL, required=True),
        "strategy": _harmless(_NAME),
        "backends": _harmless(_list(_PLAIN)),
        "deployments": _harmless(_by_name(_PLAIN)),
        "weights": _harmless(_by_name(_number(above=0, most=1e6))),
        "api_key_env": _secret(_VARIABLE_NAME),
        "tls_ca": _reads(_FILE),
        "watched": _harmless(_SWITCH, default=True),
    },
    RouterTarget("", ""),
)
_PROMETHEUS = _table(
    {
        "name": _harmless(_NAME),
        "url": _harmless(_text(_api_url), required=True),
        "bearer_env": _secret(_VARIABLE_NAME),
        "bearer_file": _secret(_FILE),
        "basic_user": _secret(_NAME),
        "password_env": _secret(_VARIABLE_NAME),
        "tls_ca": _reads(_FILE),
        "tls_cert": _reads(_FILE),
        "tls_key": _reads(_FILE),
        "headers": _sends(_by_name(_PLAIN, _headers)),
        "selector": _harmless(_text(_selector)),
        "group_by": _harmless(_list(_LABEL)),
        "machine_selector": _harmless(_text(_selector)),
        "machines": _harmless(_by_name(ValueKind("text in quotes", (str, list), items=_PLAIN, check=_hosts))),
        "closer": _harmless(_one_of("ask", "auto", "never")),
    },
    PrometheusTarget("prometheus", ""),
)
_SWEEP = _table(
    {
        "name": Setting(_NAME, required=True),
        "key": Setting(_NAME),
        "targets": Setting(_list(_PLAIN)),
        "concurrency": Setting(_list(_MANY)),
        "pp": Setting(_COUNT),
        "prompt_lengths": Setting(_list(_COUNT)),
        "tg": Setting(_COUNT),
        "longest": Setting(_SWITCH),
        "leave": Setting(_SWITCH),
        "beside": Setting(_COUNT),
        "depths": Setting(_list(_whole(0, 10_000_000))),
        "whole": Setting(_SWITCH),
        "runs": Setting(_COUNT),
        "climb_to": Setting(_MANY),
        "more_runs": Setting(_SWITCH),
        "mode": Setting(_one_of("burst", "steady")),
        "duration_s": Setting(_number(above=0, most=86_400)),
        "requests": Setting(_COUNT),
        "order": Setting(_one_of("ascending", "abba")),
        "agents": Setting(_list(_MANY)),
        "workload": Setting(_NAME),
        "rate": Setting(_NAME),
        "arrivals": Setting(_NAME),
        "trace": Setting(_FILE),
        "trace_format": Setting(_one_of("mooncake", "aiperf", "azure")),
        "trace_speed": Setting(_number(least=0.001, most=1000)),
        "trace_range": Setting(_NAME),
        "prompts": Setting(_FILE),
        "texts": Setting(_list(_one_of("code", "prose", "table", "agent"))),
        "extra_body": Setting(
            _by_name(ValueKind("a value", (str, int, float, bool, list, dict), check=_json))
        ),
        "headers": Setting(_by_name(_PLAIN)),
        "timeout_s": Setting(_number(least=0.1, most=86_400)),
        "api": Setting(_one_of("chat", "completions")),
        "slo": Setting(_NAME),
        "seed": Setting(_whole(0, 2**31 - 1)),
        "warmup": Setting(_SWITCH),
        "max_error_share": Setting(_number(least=0, most=1)),
    },
    SweepSpec(),
)
_THRESHOLDS = _table(
    {
        "kv_full_percent": Setting(_PERCENT),
        "busy_running": Setting(_LIMIT),
        "busy_share": Setting(_SHARE),
        "queueing_share": Setting(_SHARE),
        "window_s": Setting(_number(least=1, most=600)),
        "ttft_slow_s": Setting(_FROM_0),
        "itl_slow_ms": Setting(_FROM_0),
        "queue_slow_s": Setting(_FROM_0),
        "refused_warn_per_min": Setting(_FROM_0),
        "http_5xx_warn_per_min": Setting(_FROM_0),
    },
    StateThresholds(),
)
_ALERTS = _table(
    {
        "headroom_warn_gib": Setting(_LIMIT),
        "headroom_critical_gib": Setting(_LIMIT),
        "available_warn_percent": Setting(_PERCENT),
        "available_critical_percent": Setting(_PERCENT),
        "thermal_margin_warn_c": Setting(_LIMIT),
        "thermal_margin_critical_c": Setting(_LIMIT),
        "throttled_warn_percent": Setting(_PERCENT),
        "swap_in_warn_mib_per_s": Setting(_LIMIT),
        "rdma_errors_warn_per_s": Setting(_LIMIT),
        "slow_clock_mhz": Setting(_LIMIT),
        "slow_step_ratio": Setting(_number(least=1.05)),
    },
    NodeThresholds(),
)
_EVENTS = _table(
    {
        "severity": _harmless(_one_of("info", "warning", "critical")),
        "bell": _harmless(_SWITCH),
        "notify": _harmless(_one_of("off", "osc9", "osc777")),
        "hook": _runs(ValueKind("a list", (list, str), items=_ARGUMENT, check=_hook)),
        "webhook": _sends(_text(_webhook_url)),
        "webhook_token_env": _secret(_VARIABLE_NAME),
    },
    EventSettings(),
)
_RECORDER = {
    "flight": _steers(_SWITCH),
    "flight_mib": _steers(_whole(8, 65_536)),
    "incidents": _steers(_list(_one_of(*ALERT_KINDS))),
}
_GUARD = {"min_headroom_gib": Setting(_FROM_0), "max_gpu_c": Setting(_FROM_0)}
_MODEL = {"bytes_per_token_gb": Setting(_LIMIT), "cudagraph_capture_sizes": Setting(_list(_COUNT))}
_VIEW = {
    "graphs": Setting(_one_of("braille dots", "blocks")),
    "window_s": Setting(_one_of(60, 120, 300, 900)),
    "columns": Setting(_one_of("load first", "latency first", "cache first")),
    "wall_from": Setting(_whole(0, 100_000)),
}
SETTINGS = _table(
    {
        "interval_s": _harmless(_number(least=MIN_INTERVAL_S, most=MAX_INTERVAL_S)),
        "timeout_s": _harmless(_number(least=MIN_TIMEOUT_S, most=MAX_TIMEOUT_S)),
        "theme": _harmless(_text(_known_theme)),
        "low_bandwidth": _harmless(_SWITCH),
        "keys": _steers(_by_name(_PLAIN)),
        "nodes": Setting(_list(_NODE)),
        "backends": Setting(_list(_BACKEND)),
        "routers": Setting(_list(_ROUTER)),
        "prometheus": Setting(_list(_PROMETHEUS)),
        "target_files": _reads(_list(_FILE)),
        "sparkrun": _reads(_SWITCH),
        "sweeps": Setting(_list(_SWEEP), Reach.LOAD),
        "guard": _steers(_table(_GUARD)),
        "models": _harmless(_by_name(_table(_MODEL))),
        "thresholds": _harmless(_THRESHOLDS),
        "alerts": _harmless(_ALERTS),
        "events": Setting(_EVENTS),
        "recorder": Setting(_table(_RECORDER, Watch())),
        "diagnosis": Setting(_table({"ask_ranks": _steers(_SWITCH)}, Watch())),
        "view": _harmless(_table(_VIEW)),
    },
    Watch(),
)
"""All tables and top-level keys of the configuration file."""


@hide_in_repr("text")
class Config(Struct, frozen=True):
    """A valid configuration file: its path, settings and text."""

    path: Path
    settings: Mapping[str, Any]
    """The values of the keys that the file has."""
    text: str = ""
    """Text of the file."""

    def sensitive_settings(self) -> list[str]:
        """Return a line for each setting that a discovered file may not make, the worst first."""
        sensitive = sorted(_sensitive(SETTINGS, self.settings, ()), key=lambda item: [*Reach].index(item[1]))
        lines = key_lines(self.text) if sensitive else {}
        return [
            clean(f"line {line_of(lines, path)}: {_sensitive_words(path, reach, value)}", 500)
            for path, reach, value in sensitive
        ]

    def watch(self, env: Mapping[str, str]) -> Watch:
        """Return the targets and settings that the file defines; API keys and tokens come from `env`."""
        return watch_of(self.settings, self.path, env)

    def warnings(self, env: Mapping[str, str]) -> list[str]:
        """Return a warning for each environment variable that `env` lacks, and each server listed twice."""
        return warnings_of(self.settings, self.path, self.text, env)


def _sensitive(kind: ValueKind, value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, Reach, object]]:  # noqa: ANN401 - of any kind
    """Yield (path, reach, value) of each setting in `value` that is not harmless, and not its default.

    `kind` has settings.
    """
    if kind.items is not None:
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _sensitive(kind.items, part, (*path, key))
    if kind.table is None:
        return
    for key, part in value.items():
        setting, key_path = kind.table[key], (*path, key)
        is_default = (tuple(part) if isinstance(part, list) else part) == setting.default
        is_public = setting.reach is Reach.SECRET and part in tuple(PUBLIC_KEYS)
        if is_default or is_public or part in ([], {}) or setting.reach is Reach.NONE:
            continue
        if setting.reach is Reach.UNKNOWN and setting.kind.has_settings:
            yield from _sensitive(setting.kind, part, key_path)
        else:
            yield key_path, setting.reach, part


def _sensitive_words(path: KeyPath, reach: Reach, value: object) -> str:
    """Return a setting, with its value unless that is a table or may be a secret itself, and what it does."""
    name = key_name(path)
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        value = " ".join(value)
    if not isinstance(value, str | int | float) or reach is Reach.REQUEST:
        return f"{name}: {reach.value}"
    text = variable_words(str(value)) if name.endswith("_env") else str(value)
    # Letters that look like others are shown as what they are.
    plain = text.encode("ascii", "backslashreplace").decode()
    return f"{name} = {clean(plain, 300)}: {reach.value}"


def load(path: Path) -> Config:
    """Read and validate a configuration file.

    Raises:
        ConfigError: the file cannot be read or is invalid; the message has a line for each fault.
    """
    return check(path, read_config(path)[0])


def check(path: Path, text: str) -> Config:
    """Validate `text`, the content of the configuration file `path`.

    Raises:
        ConfigError: the text is invalid; the message has a line for each fault.
    """
    file = clean(path, 500)
    try:
        data = tomllib.loads(text)
    except RecursionError:
        raise ConfigError(f"{file}:1: is nested too deeply") from None
    except ValueError as error:
        raise ConfigError(_syntax_message(file, text, str(error))) from None
    problems = list[Mistake]()
    settings = SETTINGS.read(data, (), problems)
    problems += [problem for check in CHECKS for problem in check(data)]
    if problems:
        raise config_error(file, text, problems)
    return Config(path, settings, text)


def _syntax_message(file: str, text: str, message: str) -> str:
    """Return the error message for invalid TOML, "file:line: is not valid TOML: …".

    `message` is that of `tomllib`, with "(at line 3, column 5)" or "(at end of document)".
    """
    position = _PARSER_LINE.search(message)
    if position:
        line = f":{position.group(1)}"
        message = message.replace(position.group(), "(")
    else:
        line_count = len(text.rstrip().split("\n"))
        line = f":{line_count}" if "end of document" in message else ""
    return f"{file}{line}: is not valid TOML: {clean(message)}"
