"""What a server's decode rate is compared with: its own best, published rates, and the memory bandwidth."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from msgspec import Struct

from sparktop.model.node import ModelWeights

ENGINE_VERSION, FLAGS = "version", "flags"
"""Names of facts of a setup; with another of them a server has another best of its own."""
NO_FLAGS = "none"
"""The fact `FLAGS` of a server that was started without options that change its speed."""
BEST, PUBLISHED, LIMIT = "its own best", "the published", "the limit"
"""Names of the yardsticks."""
YARDSTICK_WORDS: Mapping[str, str] = MappingProxyType(
    {BEST: BEST, PUBLISHED: "the best published rate", LIMIT: "the bandwidth limit"}
)
"""Each yardstick as a sentence names it, by its name in files."""
YARDSTICK_KEYS = MappingProxyType({BEST: "own_best", PUBLISHED: "published", LIMIT: "limit"})
"""How names of its figures begin, as in "own_best_percent"; with a space, "own best", its short name."""
MOST_SETUPS, MOST_BESTS = 6, 24
"""Setups of one server and model, and batches of each, that are kept: the newest."""


class SteadyLoad(Struct, frozen=True):
    """An engine's steps while the size of its batch was steady: medians over spans of about 10 s each.

    A step is one pass of the engine over its batch, which generates a token or more for each request in it.
    """

    at: float
    """When it was last seen: monotonic seconds while it is measured, Unix time once it is kept as a best."""
    running: float
    batch: float
    """Tokens of a step of one engine core, prompt tokens and drafts included."""
    step_ms: float
    tps: float | None = None
    """Generated tokens per second of the whole server."""
    kv_percent: float | None = None


class PastSetup(Struct, frozen=True):
    """An earlier setup of a server (versions, flags, …), and its fastest steps with it for each batch."""

    server: str
    """Its address, host:port."""
    engine: str
    model: str
    facts: Mapping[str, str] = {}
    """What may change its speed, by name: version, flags, kernel, driver, revision of the model."""
    at: float = 0.0
    """When it last served so, as Unix time."""
    bests: tuple[SteadyLoad, ...] = ()

    @property
    def key(self) -> tuple[str, str, str]:
        """Return (server, engine, model)."""
        return self.server, self.engine, self.model


class PublishedRates(Struct, frozen=True):
    """Decode rates of a model that somebody published, by the number of requests at once."""

    source: str
    """Names of the table and of its row or column, and its lengths: "a-blog: tuned, 1,024 → 128 tokens"."""
    model: str
    engine: str
    machine: str
    """Name of the GPU, or a part of it: "GB10"."""
    machines: int = 1
    """Machines of one engine."""
    servers: int = 1
    """Engines behind one address."""
    levels: tuple[tuple[int, float], ...] = ()
    """(Requests at once, generated tokens per second of all of them together)."""
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    """Lengths of each request; None where they are not stated."""


class TableLevel(Struct, frozen=True):
    """A level of a published table; without lengths it has those of the table."""

    concurrency: int
    figures: dict[str, float | tuple[float, float]]
    """Values by metric, or (low, high) where the source gives a range."""
    pp: int | None = None
    tg: int | None = None
    label: str | None = None
    stds: dict[str, float] = {}


class TableTarget(Struct, frozen=True):
    """A target of a published table."""

    name: str
    levels: tuple[TableLevel, ...]
    engines: tuple[str, ...] = ()
    """The engines that answer requests: the target's own name for a single engine, or the name of each
    backend behind a router."""
    machine: str | None = None
    """GPU of its machines, where it is not that of the whole table."""
    machines: int = 1
    """Machines of one engine."""


class Reference(Struct, frozen=True, kw_only=True):
    """A published benchmark table as its file states it: the metrics have the source's own definitions.

    Tables of the user's own may leave out all that has a default.
    """

    schema: Literal["sparktop.reference/1"] = "sparktop.reference/1"
    name: str
    title: str = ""
    source: str = ""
    """Publisher and place of publication."""
    url: str | None = None
    date: str | None = None
    tool: str | None = None
    model: str
    engine: str = "vllm"
    machine: str | None = None
    """Name of the GPU, or a part of it, on which a server is compared with the table."""
    shape: Literal["burst", "closed loop"] | None = None
    pp: int | None = None
    tg: int | None = None
    runs: int | None = None
    hardware: str = ""
    settings: dict[str, object] = {}
    definitions: dict[str, str] = {}
    targets: tuple[TableTarget, ...]
    facts: dict[str, object] = {}
    """Further facts that the source states, by name."""
    notes: tuple[str, ...] = ()


class YardstickBasis(Struct, frozen=True):
    """All from which the yardsticks of a server's decode rate are computed."""

    facts: Mapping[str, str] = {}
    """Its setup now."""
    setups: tuple[PastSetup, ...] = ()
    """Its earlier setups, and this one."""
    published: tuple[PublishedRates, ...] = ()
    """Of its model on its engine and machines, also of several servers behind a router."""
    servers: int = 1
    """Engines behind the address that is compared."""
    weights: ModelWeights | None = None
    bandwidth_gb_per_s: float | None = None
    """Of all its machines together; None where it is not known."""
    machines: int = 1
    """Machines that its engine is on."""
    cores: int = 1
    """Its engine cores, each of which reads the weights."""
    steady: SteadyLoad | None = None
    """Its steps now; None unless the size of its batch is steady."""
    busy_s: float = 0.0
    """Seconds since its process was first seen to compute."""
    command: str | None = None
    """`Workload.command` of the server."""


class Yardstick(Struct, frozen=True):
    """One rate that a server could reach, and where it comes from."""

    name: str
    """"its own best", "the published" or "the limit"."""
    source: str
    """Where it comes from, or why it is not known."""
    tps: float | None = None
    percent: float | None = None
    """The rate that was compared, as a percentage of `tps`."""
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    """Lengths of each request of a published rate; None where they are not stated."""

    @property
    def words(self) -> str:
        """Rate, percentage and source, or the source alone if there is no rate.

        For example "107.0 tok/s, 40 %: 273 GB/s, 2.55 GB a step".
        """
        if self.tps is None:
            return self.source
        return f"{self.tps:.1f} tok/s, {self.percent:.0f} %: {self.source}"
