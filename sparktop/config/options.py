"""The settings of the configuration file that the options menu can change, with values and meaning."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from sparktop.config.toml_text import SettingPath, TomlValue
from sparktop.model.event import Severity
from sparktop.model.targets import Watch

_FIELDS = {
    "alerts": "node_thresholds",
    "thresholds": "thresholds",
    "events": "events",
    "guard": "guard",
    "view": "view",
}
"""The field of `Watch` that holds a table of the configuration file."""

_AT_START = frozenset({"recorder", "diagnosis"})
"""Tables whose settings take effect at the next start."""


class Option(Struct, frozen=True):
    """A setting of the configuration file with the values that the menu steps through."""

    place: SettingPath
    """Path of the setting in the file."""
    name: str
    choices: tuple[TomlValue, ...]
    """Values in ascending order; a value between two of them is possible in the file."""
    help: str
    unit: str = ""
    """Unit of the value, after it in the menu; "" for none."""
    default_choice: TomlValue | None = None
    """The choice to begin with while the setting has no value; None: the first one."""
    zero: str = ""
    """What the value 0 means, shown instead of it; "" if 0 is a value like others."""

    @property
    def live(self) -> bool:
        """Whether a change takes effect at once; if not, it takes effect when sparktop is started again."""
        return self.place[0] not in _AT_START

    def value(self, watch: Watch) -> TomlValue | None:
        """Return the present value in `watch`; None if the setting has no value, so that a default holds."""
        holder = getattr(watch, _FIELDS[self.place[0]]) if self.place[0] in _FIELDS else watch
        value: TomlValue | None = getattr(holder, self.place[-1])
        return value.value if isinstance(value, Severity) else value

    def put(self, watch: Watch, value: TomlValue) -> Watch:
        """Return `watch` with another value of this setting."""
        key = self.place[-1]
        if self.place[0] not in _FIELDS:
            return replace(watch, **{key: value})  # type: ignore[arg-type]  # of the field's type by the table
        field = _FIELDS[self.place[0]]
        typed_value = Severity(str(value)) if key == "severity" else value
        holder = replace(getattr(watch, field), **{key: typed_value})
        return replace(watch, **{field: holder})

    def step(self, now: TomlValue | None, step: int, *, around: bool = False) -> TomlValue:
        """Return the choice after (`step` 1) or before (-1) the value `now`, in the order of `choices`.

        A number that is not a choice has its place between the next smaller and the next larger choice. At
        either end, the last or first choice stays; with `around`, the choices continue at the other end. If
        `now` is None, return `default_choice`, or the first choice if that is None.
        """
        if now is None:
            return self.choices[0 if self.default_choice is None else self.choices.index(self.default_choice)]
        if now in self.choices:
            index = self.choices.index(now) + step
        else:
            below = sum(isinstance(choice, int | float) and choice < float(now) for choice in self.choices)
            index = below if step > 0 else below - 1
        last = len(self.choices) - 1
        return self.choices[index % (last + 1) if around else max(0, min(last, index))]


_SWITCH = (False, True)


def _steps(first: float, last: float, by: float) -> tuple[float, ...]:
    return tuple(round(first + index * by, 6) for index in range(round((last - first) / by) + 1))


_RAISE_IT = "Raise it to be warned earlier."
"""End of the help of limits below which there is an alert."""
ALERTS = (
    Option(
        ("alerts", "headroom_warn_gib"),
        "memory left, warning",
        _steps(1, 64, 1),
        "Memory that can still be allocated on a machine whose GPU shares the memory (GB10). "
        f"Below it, an alert begins. {_RAISE_IT}",
        "GiB",
    ),
    Option(
        ("alerts", "headroom_critical_gib"),
        "memory left, critical",
        _steps(1, 64, 1),
        "Below it the alert is critical: the kernel may end programs, or the machine may hang.",
        "GiB",
    ),
    Option(
        ("alerts", "available_warn_percent"),
        "free memory, warning",
        _steps(1, 50, 1),
        f"Available memory of machines whose GPUs have memory of their own. {_RAISE_IT}",
        "%",
    ),
    Option(
        ("alerts", "available_critical_percent"),
        "free memory, critical",
        _steps(1, 50, 1),
        "Available memory below which the alert is critical.",
        "%",
    ),
    Option(
        ("alerts", "thermal_margin_warn_c"),
        "thermal margin, warning",
        _steps(1, 30, 1),
        f"Degrees left to the GPU's thermal limit, where its clock begins to fall. {_RAISE_IT}",
        "°C",
    ),
    Option(
        ("alerts", "thermal_margin_critical_c"),
        "thermal margin, critical",
        _steps(1, 30, 1),
        "Degrees left to the thermal limit below which the alert is critical.",
        "°C",
    ),
    Option(
        ("alerts", "throttled_warn_percent"),
        "throttled",
        _steps(1, 100, 1),
        "Share of the last minute in which one reason slowed the GPU.",
        "%",
    ),
    Option(
        ("alerts", "swap_in_warn_mib_per_s"),
        "swap-in",
        (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0),
        "Memory read back from swap: a server that swaps is slow.",
        "MiB/s",
    ),
    Option(
        ("alerts", "rdma_errors_warn_per_s"),
        "RDMA errors",
        (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 100.0),
        "Errors of the network between two machines that serve one model.",
        "/s",
    ),
    Option(
        ("alerts", "slow_clock_mhz"),
        "slow clock",
        _steps(400, 2400, 100),
        "A GB10 under load whose clock stays below it is slow. A fault of its power supply looks like this.",
        "MHz",
    ),
    Option(
        ("alerts", "slow_step_ratio"),
        "slow steps",
        _steps(1.1, 3, 0.1),
        "At a healthy clock, a step of the engine that takes so many times its earlier time is slow.",
        "×",
    ),
)
"""Limits of alerts on machines."""
STATES = (
    Option(
        ("thresholds", "kv_full_percent"),
        "KV-full from",
        _steps(50, 100, 1),
        "Use of the KV cache from which a backend is KV-full: new requests wait, others may be evicted.",
        "%",
    ),
    Option(
        ("thresholds", "busy_share"),
        "busy from",
        _steps(0.05, 1, 0.05),
        "Share of its slots in use from which a backend is busy; below it, it is bored.",
        "of its slots",
    ),
    Option(
        ("thresholds", "busy_running"),
        "busy, slots unknown",
        _steps(1, 256, 1),
        "Running requests from which a backend is busy where it does not report its number of slots.",
        "requests",
    ),
    Option(
        ("thresholds", "queueing_share"),
        "queueing from",
        _steps(0.05, 1, 0.05),
        "Share of the window in which requests waited from which a backend is queueing.",
        "of the window",
    ),
    Option(
        ("thresholds", "window_s"),
        "window",
        (1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0),
        "Seconds over which queueing and preemptions are judged.",
        "s",
    ),
    Option(
        ("thresholds", "ttft_slow_s"),
        "slow TTFT",
        (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 30.0, 60.0),
        "Time to first token from which its quantiles are coloured.",
        "s",
        default_choice=2.0,
        zero="never",
    ),
    Option(
        ("thresholds", "itl_slow_ms"),
        "slow ITL",
        (0.0, 10.0, 20.0, 30.0, 50.0, 75.0, 100.0, 150.0, 200.0, 300.0, 500.0, 1000.0),
        "Time between two tokens from which its quantiles are coloured.",
        "ms",
        default_choice=100.0,
        zero="never",
    ),
    Option(
        ("thresholds", "queue_slow_s"),
        "slow queue",
        (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 30.0, 60.0),
        "Time in the queue from which its quantiles are coloured.",
        "s",
        default_choice=1.0,
        zero="never",
    ),
    Option(
        ("thresholds", "refused_warn_per_min"),
        "refused",
        (0.0, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0, 1000.0),
        "Requests that a server refused within a minute, its queue being full, from which there is an alert.",
        "a minute",
        zero="never",
    ),
    Option(
        ("thresholds", "http_5xx_warn_per_min"),
        "HTTP 5xx",
        (0.0, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0, 1000.0),
        "Requests that a server answered with HTTP 5xx within a minute from which there is an alert.",
        "a minute",
        zero="never",
    ),
)
"""Limits between the states of a backend."""
EVENTS = (
    Option(
        ("events", "severity"),
        "severity",
        ("info", "warning", "critical"),
        "Events of at least this severity ring the bell and notify. For the hook program and the webhook a "
        "change holds from the next start.",
    ),
    Option(
        ("events", "bell"), "bell", _SWITCH, "Rings the terminal's bell at an event, at most once every 10 s."
    ),
    Option(
        ("events", "notify"),
        "notification",
        ("off", "osc9", "osc777"),
        "Desktop notification by the terminal: osc9 (iTerm2, kitty, WezTerm) or osc777 (foot, Ghostty). "
        "tmux needs allow-passthrough.",
    ),
)
"""How users are notified."""
GUARD = (
    Option(
        ("guard", "min_headroom_gib"),
        "least memory left",
        (0.0, *_steps(1, 64, 1)),
        "A sweep stops itself below so much memory left, and keeps its result. 0 switches it off; unset: "
        "8 GiB where GPU and CPU share the memory.",
        "GiB",
        default_choice=8.0,
        zero="off",
    ),
    Option(
        ("guard", "max_gpu_c"),
        "highest GPU temperature",
        (0.0, *_steps(60, 110, 1)),
        "A sweep stops itself above this temperature. 0 switches it off; unset: 92 °C where GPU and CPU "
        "share the memory.",
        "°C",
        default_choice=92.0,
        zero="off",
    ),
)
"""Limits at which a sweep stops itself."""
RECORDER = (
    Option(
        ("recorder", "flight"),
        "flight recorder",
        _SWITCH,
        "Keeps the newest hours of all that is seen in files, to replay what was before a crash.",
    ),
    Option(
        ("recorder", "flight_mib"),
        "its files",
        (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536),
        "Most that these files may take; the oldest ten minutes are deleted first.",
        "MiB",
    ),
    Option(
        ("diagnosis", "ask_ranks"),
        "ask NCCL when stuck",
        _SWITCH,
        "Asks NCCL, without a key press, which rank of a stuck engine lags or is missing. A query can harm "
        "a job of an old NCCL: below 2.28.7 it is never asked.",
    ),
)
"""What is kept in files and asked of NCCL."""
INTERVAL = Option(
    ("interval_s",),
    "poll every",
    (0.25, 0.5, 1.0, 2.0, 5.0, 10.0),
    "Time between two polls of a server; machines are polled half as often.",
    "s",
)
LOW_BANDWIDTH = Option(
    ("low_bandwidth",),
    "low bandwidth",
    _SWITCH,
    "Draws every 4 s and coarsely, under 2 kB/s at 120×36: for slow lines.",
)
ALL = (*ALERTS, *STATES, *EVENTS, *GUARD, *RECORDER, INTERVAL, LOW_BANDWIDTH)
"""Every setting that the menu changes, except the theme, whose values are read from files."""


VIEW = (
    Option(("view", "graphs"), "graphs", ("braille dots", "blocks"), "Characters of all graphs."),
    Option(("view", "window_s"), "seconds of the graphs", (60, 120, 300, 900), "Least time on graphs."),
    Option(
        ("view", "columns"),
        "columns of the list",
        ("load first", "latency first", "cache first"),
        "Columns that stand first in the list of backends.",
    ),
)
"""How graphs and lists are drawn: the board holds the present values, and saving puts them into `Watch`."""


def shown_place(option: Option) -> str:
    """Return the name of a setting in the file, with its table: "alerts.slow_clock_mhz"."""
    return ".".join(option.place)
