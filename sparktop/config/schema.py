"""The schema of the configuration file `sparktop.toml`, and its validation."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue, ValidationError

from sparktop.config.checks import CHECKS, config_error, from_pydantic
from sparktop.config.fields import (
    Argument,
    Command,
    Count,
    Depth,
    FileName,
    Harmless,
    Limit,
    Loads,
    Name,
    Number,
    Percent,
    Reach,
    ReadsFile,
    Runs,
    Sends,
    SendsSecret,
    Share,
    Steers,
    Strict,
    Url,
    Variable,
    WebhookUrl,
    arguments,
    known_theme,
)
from sparktop.config.prometheus import PrometheusTable
from sparktop.config.toml_text import Path as KeyPath
from sparktop.config.toml_text import key_lines, key_name, line_of
from sparktop.config.watch import (
    MOST_BYTES,
    default_toml,
    read_config,
    unset_variables,
    variable_words,
    watch_of,
)
from sparktop.engines import ENGINES
from sparktop.errors import ConfigError
from sparktop.files import find_config, usual_places
from sparktop.model.event import ALERT_KINDS
from sparktop.model.instant import MAX_INTERVAL_S, MAX_TIMEOUT_S, MIN_INTERVAL_S, MIN_TIMEOUT_S
from sparktop.model.targets import (
    INCIDENTS,
    LONGEST_POLL_S,
    NodeThresholds,
    StateThresholds,
    Watch,
)
from sparktop.model.text import clean
from sparktop.values import dataclass

__all__ = [
    "MOST_BYTES",
    "Config",
    "Settings",
    "Strict",
    "default_toml",
    "find_config",
    "load",
    "usual_places",
]

if TYPE_CHECKING:
    EngineName = str  # a literal of names that are computed is none to a type checker
    AlertKind = str
else:
    EngineName = Literal["auto", *ENGINES]
    AlertKind = Literal[*ALERT_KINDS]

_DEFAULTS = StateThresholds()
_NODE_DEFAULTS = NodeThresholds()
_PARSER_LINE = re.compile(r"\(at line (\d+), ")


class NodeTable(Strict):
    """`[[nodes]]`: a machine to watch."""

    name: Harmless[Name]
    via: Harmless[Literal["local", "agent", "ssh"]] = "local"
    url: Harmless[Url | None] = None
    ssh: Runs[Name | None] = None
    token_env: SendsSecret[Variable | None] = None
    token_file: SendsSecret[FileName | None] = None
    tls_ca: ReadsFile[FileName | None] = None
    command: Runs[Command | None] = None
    ssh_bundle: Runs[bool] = True


class BackendTable(Strict):
    """`[[backends]]`: an inference server to watch."""

    name: Harmless[Name]
    url: Harmless[Url]
    engine: Harmless[EngineName] = "auto"
    nodes: Harmless[list[str]] = Field(default_factory=list)
    slots: Harmless[Count | None] = None
    cudagraph_capture_sizes: Harmless[list[Count] | None] = None
    api_key_env: SendsSecret[Variable | None] = None
    tls_ca: ReadsFile[FileName | None] = None


class RouterTable(Strict):
    """`[[routers]]`: a router and the group of backends behind it."""

    name: Harmless[Name]
    url: Harmless[Url]
    strategy: Harmless[Name | None] = None
    backends: Harmless[list[str]] = Field(default_factory=list)
    deployments: Harmless[dict[str, str]] = Field(default_factory=dict)
    weights: Harmless[dict[str, Annotated[float, Field(gt=0, le=1e6)]]] = Field(default_factory=dict)
    api_key_env: SendsSecret[Variable | None] = None
    tls_ca: ReadsFile[FileName | None] = None
    watched: Harmless[bool] = True


class SweepTable(Strict):
    """`[[sweeps]]`: a preset of a load test."""

    name: Name
    key: Name | None = None
    targets: list[str] = Field(default_factory=list)
    concurrency: list[Number] = Field(default_factory=list)
    pp: Count | None = None
    prompt_lengths: list[Count] = Field(default_factory=list)
    tg: Count | None = None
    depths: list[Depth] = Field(default_factory=list)
    runs: Count | None = None
    climb_to: Number | None = None
    more_runs: bool = False
    mode: Literal["burst", "steady"] | None = None
    duration_s: float | None = Field(default=None, gt=0, le=86_400)
    requests: Count | None = None
    order: Literal["ascending", "abba"] | None = None
    agents: list[Number] = Field(default_factory=list)
    workload: Name | None = None
    rate: Name | None = None
    arrivals: Name | None = None
    trace: FileName | None = None
    trace_speed: float | None = Field(default=None, ge=0.001, le=1000)
    trace_range: Name | None = None
    prompts: FileName | None = None
    extra_body: dict[str, JsonValue] = Field(default_factory=dict)
    headers: dict[str, str] = Field(default_factory=dict)
    timeout_s: float | None = Field(default=None, ge=0.1, le=86_400)


class GuardTable(Strict):
    """`[guard]`: limits at which a running sweep (load test) stops itself."""

    min_headroom_gib: float | None = Field(default=None, ge=0)
    max_gpu_c: float | None = Field(default=None, ge=0)


class ModelTable(Strict):
    """`[models."name"]`: properties of the model `name` that no server reports."""

    bytes_per_token_gb: float | None = Field(default=None, gt=0)
    cudagraph_capture_sizes: list[Count] = Field(default_factory=list)


class ThresholdsTable(Strict):
    """`[thresholds]`: limits between the states of a backend, such as busy and queueing, and of latencies."""

    kv_full_percent: float = Field(default=_DEFAULTS.kv_full_percent, gt=0, le=100)
    busy_running: float = Field(default=_DEFAULTS.busy_running, gt=0)
    busy_share: Share = _DEFAULTS.busy_share
    queueing_share: Share = _DEFAULTS.queueing_share
    window_s: float = Field(default=_DEFAULTS.window_s, ge=1, le=600)
    ttft_slow_s: float | None = Field(default=None, ge=0)
    itl_slow_ms: float | None = Field(default=None, ge=0)
    queue_slow_s: float | None = Field(default=None, ge=0)
    refused_warn_per_min: float | None = Field(default=_DEFAULTS.refused_warn_per_min, ge=0)
    http_5xx_warn_per_min: float | None = Field(default=_DEFAULTS.http_5xx_warn_per_min, ge=0)


class AlertsTable(Strict):
    """`[alerts]`: limits at which a node's values raise alerts."""

    headroom_warn_gib: Limit = _NODE_DEFAULTS.headroom_warn_gib
    headroom_critical_gib: Limit = _NODE_DEFAULTS.headroom_critical_gib
    available_warn_percent: Percent = _NODE_DEFAULTS.available_warn_percent
    available_critical_percent: Percent = _NODE_DEFAULTS.available_critical_percent
    thermal_margin_warn_c: Limit = _NODE_DEFAULTS.thermal_margin_warn_c
    thermal_margin_critical_c: Limit = _NODE_DEFAULTS.thermal_margin_critical_c
    throttled_warn_percent: Percent = _NODE_DEFAULTS.throttled_warn_percent
    swap_in_warn_mib_per_s: Limit = _NODE_DEFAULTS.swap_in_warn_mib_per_s
    rdma_errors_warn_per_s: Limit = _NODE_DEFAULTS.rdma_errors_warn_per_s
    slow_clock_mhz: Limit = _NODE_DEFAULTS.slow_clock_mhz
    slow_step_ratio: float = Field(default=_NODE_DEFAULTS.slow_step_ratio, ge=1.05)


class EventsTable(Strict):
    """`[events]`: bell, desktop notifications, hook program and webhook by which users learn of events."""

    severity: Harmless[Literal["info", "warning", "critical"]] = "warning"
    bell: Harmless[bool] = False
    notify: Harmless[Literal["off", "osc9", "osc777"]] = "off"
    hook: Runs[Annotated[list[Argument], BeforeValidator(arguments)]] = Field(default_factory=list)
    webhook: Sends[WebhookUrl | None] = None
    webhook_token_env: SendsSecret[Variable | None] = None


class RecorderTable(Strict):
    """`[recorder]`: the flight recorder, its size, and the kinds of alerts whose minutes it saves."""

    flight: Steers[bool] = True
    flight_mib: Steers[int] = Field(default=64, ge=8, le=65536)
    incidents: Steers[list[AlertKind]] = Field(default_factory=lambda: list(INCIDENTS))


class DiagnosisTable(Strict):
    """`[diagnosis]`: what may be done to find out why an engine stands still."""

    ask_ranks: Steers[bool] = False


class ViewTable(Strict):
    """`[view]`: how graphs and lists are drawn; what is not set here is as it was when sparktop ended."""

    graphs: Literal["braille dots", "blocks"] | None = None
    window_s: Literal[60, 120, 300, 900] | None = None
    columns: Literal["load first", "latency first", "cache first"] | None = None
    wall_from: Annotated[int, Field(ge=0, le=100_000)] | None = None


class Settings(Strict):
    """All tables and top-level keys of the configuration file."""

    interval_s: Harmless[float] = Field(default=1.0, ge=MIN_INTERVAL_S, le=MAX_INTERVAL_S)
    timeout_s: Harmless[float] = Field(default=LONGEST_POLL_S, ge=MIN_TIMEOUT_S, le=MAX_TIMEOUT_S)
    theme: Harmless[Annotated[str, AfterValidator(known_theme)]] = "spark-dark"
    low_bandwidth: Harmless[bool] = False
    keys: Steers[dict[str, str]] = Field(default_factory=dict)
    nodes: list[NodeTable] = Field(default_factory=list)
    backends: list[BackendTable] = Field(default_factory=list)
    routers: list[RouterTable] = Field(default_factory=list)
    prometheus: list[PrometheusTable] = Field(default_factory=list)
    target_files: ReadsFile[list[FileName]] = Field(default_factory=list)
    sparkrun: ReadsFile[bool] = False
    sweeps: Loads[list[SweepTable]] = Field(default_factory=list)
    guard: Steers[GuardTable] = GuardTable()
    models: Harmless[dict[str, ModelTable]] = Field(default_factory=dict)
    thresholds: Harmless[ThresholdsTable] = ThresholdsTable()
    alerts: Harmless[AlertsTable] = AlertsTable()
    events: EventsTable = EventsTable()
    recorder: RecorderTable = RecorderTable()
    diagnosis: DiagnosisTable = DiagnosisTable()
    view: Harmless[ViewTable] = ViewTable()


@dataclass(frozen=True, slots=True)
class Config:
    """A valid configuration file: its path, settings and text."""

    path: Path
    settings: Settings
    text: str = field(default="", repr=False)
    """Text of the file."""

    def powers(self) -> list[str]:
        """Return a line for each setting that a file found by chance may not make, the worst first."""
        made = sorted(_powers(self.settings, ()), key=lambda one: [*Reach].index(one[1]))
        lines = key_lines(self.text) if made else {}
        return [
            clean(f"line {line_of(lines, place)}: {_power_words(place, reach, value)}", 500)
            for place, reach, value in made
        ]

    def watch(self, env: Mapping[str, str]) -> Watch:
        """Return the targets and settings that the file defines; API keys and tokens come from `env`."""
        return watch_of(self.settings.model_dump(), self.path, env)

    def warnings(self, env: Mapping[str, str]) -> list[str]:
        """Return a warning for each environment variable that the file names but `env` does not have."""
        return unset_variables(self.settings.model_dump(), self.path, self.text, env)


def _powers(table: Strict, path: KeyPath) -> Iterator[tuple[KeyPath, Reach, object]]:
    """Yield (path, reach, value) of each setting that is not harmless and differs from its default."""
    for name, about in type(table).model_fields.items():
        value, place = getattr(table, name), (*path, name)
        marks = [mark for mark in about.metadata if isinstance(mark, Reach)]
        if value == about.get_default(call_default_factory=True):
            continue
        if not marks and isinstance(value, Strict):
            yield from _powers(value, place)
        elif not marks and isinstance(value, list | dict):
            for key, one in value.items() if isinstance(value, dict) else enumerate(value):
                yield from _powers(one, (*place, key))
        elif Reach.NONE not in marks:
            yield place, marks[0] if marks else Reach.UNKNOWN, value


def _power_words(place: KeyPath, reach: Reach, value: object) -> str:
    """Return a setting, with its value unless that is a table or may be a secret itself, and what it does."""
    name = key_name(place)
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        value = " ".join(value)
    if not isinstance(value, str | int | float) or reach is Reach.REQUEST:
        return f"{name}: {reach.value}"
    shown = variable_words(str(value)) if name.endswith("_env") else str(value)
    # Letters that look like others are shown as what they are.
    plain = shown.encode("ascii", "backslashreplace").decode()
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
    problems = [problem for check in CHECKS for problem in check(data)]
    try:
        settings = Settings.model_validate(data)
    except ValidationError as error:
        raise config_error(file, text, [*from_pydantic(error.errors(), Settings), *problems]) from None
    if problems:
        raise config_error(file, text, problems)
    return Config(path, settings, text)


def _syntax_message(file: str, text: str, message: str) -> str:
    """Return the error message for invalid TOML, "file:line: is not valid TOML: …".

    `message` is that of `tomllib`, with "(at line 3, column 5)" or "(at end of document)".
    """
    found = _PARSER_LINE.search(message)
    if found:
        line = f":{found.group(1)}"
        message = message.replace(found.group(), "(")
    else:
        line = f":{text.rstrip().count(chr(10)) + 1}" if "end of document" in message else ""
    return f"{file}{line}: is not valid TOML: {clean(message)}"
