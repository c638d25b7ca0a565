"""The schema of the configuration file `sparktop.toml`, and its validation."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias, TypeVar
from urllib.parse import urlsplit

from msgspec import Struct
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, ValidationError

from sparktop.colors.palette import palettes, theme_problems
from sparktop.config.checks import CHECKS, config_error, from_pydantic
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
from sparktop.model.structs import hide_in_repr
from sparktop.model.targets import (
    INCIDENTS,
    LONGEST_POLL_S,
    NodeThresholds,
    StateThresholds,
    Watch,
)
from sparktop.model.text import clean
from sparktop.nearest import did_you_mean

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

# Types of the values of the configuration file, each with its validation.

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LONGEST_QUERY = 2000


def _printable_name(name: str) -> str:
    if not name or clean(name, 64) != name:
        raise ValueError("must be 1 to 64 printable characters without space at the ends")
    return name


def _http_url(url: str) -> str:
    """Return `url` without a trailing slash.

    Raises:
        ValueError: not a plain http(s) URL. The message never quotes it, because it may hold a password.
    """
    example = "as in 'http://127.0.0.1:8000'"
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"must start with http:// or https://, {example}")
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  # a port that is not a number raises ValueError here
    except ValueError:
        raise ValueError(f"is not a URL, {example}") from None
    if not parts.hostname or clean(url, 500) != url or " " in url:
        raise ValueError(f"is not a URL, {example}")
    if parts.username is not None or parts.query or parts.fragment:
        raise ValueError("must hold no password, query or fragment; keys go into environment variables")
    return url.rstrip("/")


def _variable(name: str) -> str:
    """Return `name` if it can name an environment variable.

    Raises:
        ValueError: no variable can have this name. The message never quotes it: it may be the secret itself.
    """
    if not _VARIABLE.fullmatch(name):
        raise ValueError("must be the name of an environment variable, never the key itself")
    return name


def known_theme(name: str) -> str:
    """Return `name` if it is the name of a theme.

    Raises:
        ValueError: there is no such theme; the message has the most similar name.
    """
    known = palettes()
    if name not in known:
        near = _broken_theme(name) or did_you_mean(name, known) or f" (known: {', '.join(known)})"
        raise ValueError(f"names no theme: '{clean(name, 40)}'{near}")
    return name


def _broken_theme(name: str) -> str:
    """Return "; " and the fault of the user's theme file called `name`; "" if there is no such fault."""
    files = tuple(f"{clean(name, 60)}{suffix}:" for suffix in (".toml", ".theme"))
    return next((f"; {problem}" for problem in theme_problems() if problem.startswith(files)), "")


def _file_name(name: str) -> str:
    if not name or clean(name, 4096) != name:
        raise ValueError("must name a file")
    return name


def _command(name: str) -> str:
    if not name or clean(name, 256) != name or name.startswith("-"):
        raise ValueError("must be a command or its path: 1 to 256 printable characters, no '-' in front")
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


def _argument(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must be printable text: a program or one of its arguments")
    return text


def arguments(value: object) -> object:
    """Return `value` unchanged; raise a `ValueError` if it is a string, because a hook must be a list."""
    if isinstance(value, str):
        message = "must be a list: a program and its arguments, as in ['/path/to/program', 'argument']"
        raise ValueError(message)  # noqa: TRY004 - pydantic reports a ValueError only
    return value


Name = Annotated[str, AfterValidator(_printable_name)]
Url = Annotated[str, AfterValidator(_http_url)]
Variable = Annotated[str, AfterValidator(_variable)]
FileName = Annotated[str, AfterValidator(_file_name)]
Command = Annotated[str, AfterValidator(_command)]
WebhookUrl = Annotated[str, AfterValidator(_webhook_url)]
Argument = Annotated[str, AfterValidator(_argument)]
Count = Annotated[int, Field(ge=1)]
Number = Annotated[int, Field(ge=1, le=65_536)]
Depth = Annotated[int, Field(ge=0, le=10_000_000)]
Share = Annotated[float, Field(gt=0, le=1)]
Percent = Annotated[float, Field(gt=0, le=100)]
Limit = Annotated[float, Field(gt=0)]


class Reach(Enum):
    """What a setting can do beyond addresses and looks, in words for the question whether to trust its file.

    Each setting has one of these marks, its own or that of its table. One without a mark is not harmless.
    The worst come first.
    """

    PROGRAM = "runs a program"
    SECRET = "sends a secret to a server that the file names"  # noqa: S105 - a sentence
    FILE = "reads a file"
    REQUEST = "sends what the file says to a server that the file names"
    LOAD = "puts load on servers when it is started"
    CONTROL = "changes keys, limits or what is stored and asked"
    UNKNOWN = "does what a found file may not do"
    NONE = ""


_T = TypeVar("_T")
Runs: TypeAlias = Annotated[_T, Reach.PROGRAM]
SendsSecret: TypeAlias = Annotated[_T, Reach.SECRET]
ReadsFile: TypeAlias = Annotated[_T, Reach.FILE]
Sends: TypeAlias = Annotated[_T, Reach.REQUEST]
Loads: TypeAlias = Annotated[_T, Reach.LOAD]
Steers: TypeAlias = Annotated[_T, Reach.CONTROL]
Harmless: TypeAlias = Annotated[_T, Reach.NONE]
"""The mark of an address, or of how something is shown or judged: a file found by chance may set it."""


class Strict(BaseModel):
    """Base of all tables of the file: no unknown keys, no type conversions, no NaN."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


# The table `[[prometheus]]` of the configuration file: its schema, its checks, and its target.

_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER = re.compile(r"[A-Za-z0-9-]{1,64}")
_SECRET = frozenset({"authorization", "proxy-authorization", "cookie", "x-api-key"})
_LONGEST = 1000


def _label(name: str) -> str:
    if not _LABEL.fullmatch(name):
        raise ValueError("must be the name of a label, as in 'namespace'")
    return name


def _api_url(url: str) -> str:
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


def _listed(given: object) -> object:
    return [given] if isinstance(given, str) else given


Hosts = Annotated[list[Name], BeforeValidator(_listed), Field(min_length=1, max_length=64)]
"""A host, or a list of hosts."""


class PrometheusTable(Strict):
    """`[[prometheus]]`: a Prometheus, or another server with its API, through which servers are watched."""

    name: Harmless[Name] = "prometheus"
    url: Harmless[Annotated[Url, AfterValidator(_api_url)]]
    bearer_env: SendsSecret[Variable | None] = None
    bearer_file: SendsSecret[FileName | None] = None
    basic_user: SendsSecret[Name | None] = None
    password_env: SendsSecret[Variable | None] = None
    tls_ca: ReadsFile[FileName | None] = None
    tls_cert: ReadsFile[FileName | None] = None
    tls_key: ReadsFile[FileName | None] = None
    headers: Sends[Annotated[dict[str, str], AfterValidator(_headers)]] = Field(default_factory=dict)
    selector: Harmless[Annotated[str, AfterValidator(_selector)]] = ""
    group_by: Harmless[list[Annotated[str, AfterValidator(_label)]]] = Field(default_factory=list)
    machine_selector: Harmless[Annotated[str, AfterValidator(_selector)]] = ""
    machines: Harmless[dict[str, Hosts]] = Field(default_factory=dict)
    closer: Harmless[Literal["ask", "auto", "never"]] = "ask"


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
    longest: bool = False
    depths: list[Depth] = Field(default_factory=list)
    whole: bool = False
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
    trace_format: Literal["mooncake", "aiperf", "azure"] | None = None
    trace_speed: float | None = Field(default=None, ge=0.001, le=1000)
    trace_range: Name | None = None
    prompts: FileName | None = None
    extra_body: dict[str, JsonValue] = Field(default_factory=dict)
    headers: dict[str, str] = Field(default_factory=dict)
    timeout_s: float | None = Field(default=None, ge=0.1, le=86_400)
    api: Literal["chat", "completions"] | None = None
    slo: Name | None = None
    seed: int | None = Field(default=None, ge=0, lt=2**31)
    warmup: bool | None = None
    max_error_share: float | None = Field(default=None, ge=0, le=1)


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


@hide_in_repr("text")
class Config(Struct, frozen=True):
    """A valid configuration file: its path, settings and text."""

    path: Path
    settings: Settings
    text: str = ""
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
