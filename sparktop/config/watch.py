"""Converts validated settings of the configuration file to a `Watch`, the targets and settings for watching.

Imports no pydantic, so that starts from the cache are fast.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

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
    SweepSettings,
    ViewSettings,
    Watch,
)
from sparktop.model.text import clean

MOST_BYTES = 1 << 20
"""Most bytes of a configuration file."""
_WORDS = re.compile(r"[A-Z][A-Z0-9]{0,15}(_[A-Z0-9]{1,15})*")
DEMO_KEY, DEMO_KEY_VARIABLE = "sk-simulated", "SPARKTOP_DEMO_KEY"
"""The key of the demo's simulated router, and the variable that its configuration names for it."""
_PUBLIC_KEYS = {DEMO_KEY_VARIABLE: DEMO_KEY}
"""Values of variables that are no secrets and need not be set."""

Plain = Mapping[str, Any]
"""Validated settings as plain values: the output of `Settings.model_dump()`, also stored in the cache."""


def read_config(path: Path) -> tuple[str, os.stat_result]:
    """Return the text of a configuration file, and what the system says of the file that was read.

    Raises:
        ConfigError: it cannot be read, is too large or is not UTF-8.
    """
    file = clean(path, 500)
    try:
        body, about = read_bounded(path, MOST_BYTES)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise ConfigError(f"{file}: cannot be read: {clean(reason)}") from None
    if len(body) > MOST_BYTES:
        raise ConfigError(f"{file}: is larger than {MOST_BYTES >> 20} MiB: no configuration file")
    try:
        return body.decode(), about
    except UnicodeDecodeError as error:
        line = body.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{file}:{line}: is not UTF-8 text") from None


def watch_of(settings: Plain, path: Path, env: Mapping[str, str]) -> Watch:
    """Return the targets and settings for watching, from the validated settings of the file `path`.

    API keys and tokens come from `env`.
    """
    return Watch(
        nodes=tuple(_node(table, path, env) for table in settings["nodes"]),
        backends=tuple(
            BackendTarget(
                name=one["name"],
                url=one["url"],
                engine=one["engine"],
                nodes=tuple(one["nodes"]),
                slots=one["slots"],
                capture_sizes=_sizes(one["cudagraph_capture_sizes"]),
                api_key=_value(one["api_key_env"], env),
                tls_ca=_file(one["tls_ca"], path, env),
            )
            for one in settings["backends"]
        ),
        routers=tuple(_router(table, path, env) for table in settings["routers"] if table["watched"]),
        sweep_routers=tuple(
            _router(table, path, env) for table in settings["routers"] if not table["watched"]
        ),
        target_files=tuple(_file(name, path, env) or name for name in settings["target_files"]),
        sparkrun=settings["sparkrun"],
        prometheus=tuple(_prometheus(table, path, env) for table in settings["prometheus"]),
        interval_s=settings["interval_s"],
        timeout_s=settings["timeout_s"],
        theme=settings["theme"],
        thresholds=StateThresholds(**settings["thresholds"]),
        node_thresholds=NodeThresholds(**settings["alerts"]),
        low_bandwidth=settings["low_bandwidth"],
        keys=dict(settings["keys"]),
        source=clean(path, 500),
        models={
            name: ModelFacts(one["bytes_per_token_gb"], tuple(one["cudagraph_capture_sizes"]))
            for name, one in settings["models"].items()
        },
        sweeps=tuple(_sweep(table, path, env) for table in settings["sweeps"]),
        guard=GuardLimits(**settings["guard"]),
        events=_events(settings["events"], path, env),
        flight=settings["recorder"]["flight"],
        flight_mib=settings["recorder"]["flight_mib"],
        incidents=tuple(settings["recorder"]["incidents"]),
        ask_ranks=settings["diagnosis"]["ask_ranks"],
        view=ViewSettings(**settings["view"]),
    )


def _events(one: Plain, path: Path, env: Mapping[str, str]) -> EventSettings:
    """Return the settings in `one`, the table `[events]` of the file; the webhook's token comes from `env`.

    A hook program with a slash in its name is a path, relative to the folder of the configuration file
    `path`. Other programs are searched on the PATH when the hook runs.
    """
    program, *rest = one["hook"] or [""]
    if "/" in program:
        program = _file(program, path, env) or program
    return EventSettings(
        severity=Severity(one["severity"]),
        bell=one["bell"],
        notify=one["notify"],
        hook=(program, *rest) if program else (),
        webhook=one["webhook"],
        webhook_token=_value(one["webhook_token_env"], env),
    )


def _sizes(listed: list[int] | None) -> tuple[int, ...] | None:
    return None if listed is None else tuple(listed)


def _node(one: Plain, path: Path, env: Mapping[str, str]) -> NodeTarget:
    return NodeTarget(
        name=one["name"],
        via=one["via"],
        url=one["url"],
        ssh=one["ssh"],
        token=_value(one["token_env"], env),
        token_file=_file(one["token_file"], path, env),
        tls_ca=_file(one["tls_ca"], path, env),
        command=one["command"],
        ssh_bundle=one["ssh_bundle"],
    )


def _router(one: Plain, path: Path, env: Mapping[str, str]) -> RouterTarget:
    return RouterTarget(
        name=one["name"],
        url=one["url"],
        strategy=one["strategy"],
        backends=tuple(one["backends"]),
        deployments=dict(one["deployments"]),
        weights=dict(one["weights"]),
        api_key=_value(one["api_key_env"], env),
        tls_ca=_file(one["tls_ca"], path, env),
    )


def _prometheus(one: Plain, path: Path, env: Mapping[str, str]) -> PrometheusTarget:
    files = {key: _file(one[key], path, env) for key in ("bearer_file", "tls_ca", "tls_cert", "tls_key")}
    return PrometheusTarget(
        name=one["name"],
        url=one["url"],
        bearer=_value(one["bearer_env"], env),
        basic_user=one["basic_user"],
        password=_value(one["password_env"], env),
        headers=dict(one["headers"]),
        selector=one["selector"],
        group_by=tuple(one["group_by"]),
        machine_selector=one["machine_selector"],
        machines={instance: tuple(hosts) for instance, hosts in one["machines"].items()},
        closer=one["closer"],
        **files,
    )


def _sweep(one: Plain, path: Path, env: Mapping[str, str]) -> SweepSettings:
    return SweepSettings(
        name=one["name"],
        targets=tuple(one["targets"]),
        concurrency=tuple(one["concurrency"]),
        prompt_lengths=tuple(one["prompt_lengths"] or ([one["pp"]] if one["pp"] else ())),
        tg=one["tg"],
        depths=tuple(dict.fromkeys(one["depths"])),
        runs=one["runs"],
        climb_to=one["climb_to"],
        more_runs=one["more_runs"],
        mode=one["mode"],
        duration_s=one["duration_s"],
        requests=one["requests"],
        order=one["order"],
        trace=_file(one["trace"], path, env),
        trace_speed=one["trace_speed"],
        trace_range=one["trace_range"],
        key=one["key"],
        agents=tuple(one["agents"]),
        workload=_workload(one["workload"], path, env),
        rate=one["rate"],
        arrivals=one["arrivals"],
        prompts=_file(one["prompts"], path, env),
        extra_body=dict(one["extra_body"]),
        headers=dict(one["headers"]),
        timeout_s=one["timeout_s"],
    )


def _workload(name: str | None, path: Path, env: Mapping[str, str]) -> str | None:
    """Return the name of a workload, or the absolute path of its TOML file."""
    is_file = name is not None and name.endswith(".toml")
    return _file(name, path, env) if is_file else name


def _value(variable: str | None, env: Mapping[str, str]) -> str | None:
    return (env.get(variable) or _PUBLIC_KEYS.get(variable)) if variable else None


def _file(name: str | None, path: Path, env: Mapping[str, str]) -> str | None:
    """Return the absolute path of a file that the configuration file `path` names; None if `name` is None.

    A relative name is relative to the configuration's folder; "~/" stands for the home directory.
    """
    if name is None:
        return None
    home = env.get("HOME", "")
    if name.startswith("~/") and home.startswith("/"):
        return str(Path(home, name[2:]))
    return str(path.absolute().parent / name)


def _variables(settings: Plain) -> Iterator[tuple[tuple[str | int, ...], str]]:
    for table, key in (("nodes", "token_env"), ("backends", "api_key_env"), ("routers", "api_key_env")):
        for number, one in enumerate(settings[table]):
            if one[key] is not None:
                yield (table, number, key), one[key]
    for number, one in enumerate(settings["prometheus"]):
        for key in ("bearer_env", "password_env"):
            if one[key] is not None:
                yield ("prometheus", number, key), one[key]
    if (variable := settings["events"]["webhook_token_env"]) is not None:
        yield ("events", "webhook_token_env"), variable


def unset_variables(settings: Plain, path: Path, text: str, env: Mapping[str, str]) -> list[str]:
    """Return a warning for each environment variable that the settings name but `env` does not have.

    `path` and `text` of the configuration file provide the file name and line number in the warnings.
    """
    unset = [(place, variable) for place, variable in _variables(settings) if _value(variable, env) is None]
    if not unset:
        return []
    from sparktop.config.toml_text import (  # late: most starts have nothing to report
        key_lines,
        key_name,
        line_of,
    )

    lines = key_lines(text)
    return [
        f"{clean(path, 500)}:{line_of(lines, place)}: "
        f"key '{key_name(place)}' names {variable_words(variable)}, which is not set"
        for place, variable in unset
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
