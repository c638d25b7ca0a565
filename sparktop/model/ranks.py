"""What NCCL reports about the ranks of a job that spans several GPUs, and the verdict on it.

A *rank* is one process (one GPU) of a group of processes that compute together, a *communicator* such a
group. NCCL counts for each rank and communicator how many collective operations (AllReduce, …) its host has
launched, and its RAS thread (reliability, availability, serviceability) reports these counts.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from sparktop import __version__
from sparktop.model.text import TextEnum

ALL_OPERATIONS = "operations"
"""Name of the only count that NCCL 2.24 and 2.25 report: all collective operations together."""


class RankStatus(TextEnum):
    """Whether a rank takes part in a communicator."""

    RUNNING = "running"
    STARTING = "starting"
    STOPPING = "shutting down"
    FAILED = "failed to start"
    ABSENT = "not a member yet, or no longer"
    """Its process answers, but does not know the communicator."""


class Rank(Struct, frozen=True):
    """A rank of a communicator that answered, or several ranks with equal counts that are not named."""

    rank: int | None
    """Number of the rank from 0; None for ranks that NCCL's text does not name."""
    host: str | None = None
    """Address of the rank's machine as NCCL knows it; None where it does not."""
    pid: int | None = None
    """Process id, in the process's own PID namespace (in a container not that of the host)."""
    device: int | None = None
    status: RankStatus = RankStatus.RUNNING
    error: int | None = None
    """NCCL's code of an asynchronous error; None without one."""
    counts: Mapping[str, int] = {}
    """Number of operations launched, by name of the operation; empty where not reported."""
    many: int = 1
    """Number of ranks that this entry stands for; above 1 only where `rank` is None."""


class MissingRank(Struct, frozen=True):
    """A rank of a communicator about which nothing was received."""

    rank: int
    host: str | None = None
    pid: int | None = None
    device: int | None = None
    dead: bool = False
    """Whether NCCL considers its process dead, which it does 60 s after the last contact."""


class Communicator(Struct, frozen=True):
    """A communicator with its ranks."""

    hash: str
    """16 hexadecimal digits that identify the communicator; "" if NCCL's text does not name it."""
    secondary_hash: str | None = None
    size: int = 0
    """Number of ranks that belong to the communicator."""
    ranks: tuple[Rank, ...] = ()
    missing: tuple[MissingRank, ...] = ()


class RanksAnswer(Struct, frozen=True):
    """One answer of NCCL's RAS thread about one job."""

    nccl: str | None = None
    """NCCL's version."""
    form: str = "json"
    """The format of the answer: "json", or "text" from agents before 2.0."""
    communicators: tuple[Communicator, ...] = ()
    timeouts: int = 0
    """Number of time-outs while the job's processes were asked."""
    took_s: float | None = None
    """Seconds that gathering took, as NCCL reports them."""

    @property
    def job(self) -> frozenset[str]:
        """What identifies the job: the hashes of its communicators; in text form an empty set.

        Processes of several jobs may answer in turn at one address.
        """
        if self.form != "json":
            return frozenset()
        return frozenset(
            f"{communicator.hash}:{communicator.secondary_hash or ''}" for communicator in self.communicators
        )


RANKS_SCHEMA = "sparktop.ranks/1"


class RanksReply(Struct, frozen=True):
    """What asking NCCL on one machine gave, as an agent sends it."""

    answer: RanksAnswer | None = None
    warning: str | None = None
    """A remark about the NCCL version that answered; None without one."""
    error: str | None = None
    """Why there is no answer."""
    error_kind: str | None = None
    """The `FailureKind` of `error`."""
    schema: str = RANKS_SCHEMA
    sparktop: str = __version__
    """Version of the agent."""


class RanksReading(Struct, frozen=True):
    """A query about the ranks of a backend: its beginning, its answer, or why there is none."""

    at: float
    """Monotonic time in seconds on the clock of the machine that holds this record."""
    node: str
    """Name of the node on which NCCL was asked."""
    answer: RanksAnswer | None = None
    problem: str | None = None
    """Why there is no answer, in one line; None for an answer, and for the beginning of a query."""
    warning: str | None = None
    """A remark about the NCCL version that answered; None without one."""


class RanksWord(TextEnum):
    """The verdict on the ranks of a backend."""

    ASKING = "asking"
    """Fewer than three answers over 10 s."""
    MOVING = "moving"
    """Counts move: a long step, or slow, but not stuck."""
    NO_VERDICT = "no verdict"
    DIVERGED = "ranks diverged"
    """Counts stand still and differ."""
    MISSING = "rank missing"
    CHANGING = "starting or shutting down"
    FAILED = "no answer"


APART = frozenset({RanksWord.DIVERGED, RanksWord.MISSING})
"""Verdicts that explain why an engine stands still."""


class RanksVerdict(Struct, frozen=True):
    """What the answers about the ranks of a backend mean."""

    word: RanksWord
    sentence: str
    """The verdict in words, with its figures."""
    hint: str | None = None
    """What to do or to know; None without one."""
    answers: int = 0
    """Number of answers that the verdict rests on."""
    span_s: float = 0.0
    """Seconds from the first to the last of them."""
    least: Rank | None = None
    """The rank that is behind; only with diverged ranks."""
    most: Rank | None = None
    """The rank that is ahead; only with diverged ranks."""
    missing: tuple[MissingRank, ...] = ()

    @property
    def apart(self) -> str | None:
        """The sentence if ranks lag or are missing; None for every other verdict."""
        return self.sentence if self.word in APART else None


class RanksView(Struct, frozen=True):
    """What screens and reports show about the ranks of a backend."""

    verdict: RanksVerdict
    age_s: float
    """Seconds since the newest query or answer."""
    asking: bool = False
    """Whether an answer is being waited for."""
    node: str = ""
    """Name of the node that was asked last."""
    answer: RanksAnswer | None = None
    """The newest answer about the backend's job; None before the first."""
    warning: str | None = None
    names: Mapping[str, str] = {}
    """Names of the watched nodes by the addresses that NCCL reports for them."""

    def place(self, host: str | None) -> str:
        """Return the node's name for an address that NCCL reports, else the address; words for None."""
        return "an unknown machine" if host is None else self.names.get(host, host)
