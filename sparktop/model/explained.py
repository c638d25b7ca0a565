"""The words of the screen with what they mean and what to do: for the help and for the page docs/words.md."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, toml
from msgspec.structs import asdict, replace

from sparktop.model.balance import BalanceWord
from sparktop.model.event import ALERT_KINDS
from sparktop.model.snapshot import BackendState
from sparktop.model.targets import NodeThresholds, StateThresholds

_WITHOUT_BRACES = str.maketrans("", "", "{}")


class Explained(Struct, frozen=True, forbid_unknown_fields=True):
    """A word of the screen."""

    meaning: str
    """When the word is shown, with its limits as they are by default."""
    remedy: str = ""
    """What to do about it; "" where nothing has to be done, or where it depends on the case."""
    remedies: Mapping[str, str] = {}
    """What to do by case; "{PID}" stands for what only the rule knows."""

    @property
    def all_remedies(self) -> tuple[str, ...]:
        """The remedy, or those of all cases, each after its case, or after the cases that share it."""
        cases: dict[str, list[str]] = {}
        for case, remedy in self.remedies.items():
            cases.setdefault(remedy, []).append(case)
        by_case = [f"{', '.join(sharing)}: {remedy}" for remedy, sharing in cases.items()]
        general = [self.remedy] if self.remedy and not by_case else []
        return tuple(remedy.translate(_WITHOUT_BRACES) for remedy in (*by_case, *general))

    @property
    def line(self) -> str:
        """The meaning, and each remedy behind an arrow."""
        return " → ".join((self.meaning, *self.all_remedies))

    def advice(self, case: str = "", **known: object) -> str:
        """Return what to do, in a case where it depends on that, with what the rule knows filled in."""
        return (self.remedies[case] if case else self.remedy).format_map(known)


def _words() -> dict[str, dict[str, Explained]]:
    """Return the tables of `words.toml`, with limits filled in: "50" for a share of 0.5."""
    limits: dict[str, Any] = asdict(StateThresholds()) | asdict(NodeThresholds())
    filled_in = {
        name: f"{100 * limit if name.endswith('_share') else limit:g}"
        for name, limit in limits.items()
        if limit is not None
    }
    text = Path(__file__).with_name("words.toml").read_bytes()
    tables = toml.decode(text, type=dict[str, dict[str, Explained]])
    return {
        table: {word: replace(one, meaning=one.meaning.format_map(filled_in)) for word, one in words.items()}
        for table, words in tables.items()
    }


_WORDS = _words()
STATES: Mapping[str, Explained] = _WORDS["states"]
"""The state of a server; the first whose rule is met."""
LIMITS: Mapping[str, Explained] = _WORDS["limits"]
"""What a server would need more of to generate more tokens per second."""
BALANCE: Mapping[str, Explained] = _WORDS["balance"]
"""How evenly the backends of a group are loaded."""
SPEEDS: Mapping[str, Explained] = _WORDS["speeds"]
"""Whether a machine is as fast as it should be."""
RANKS: Mapping[str, Explained] = _WORDS["ranks"]
"""What NCCL reports about the ranks of an engine."""
FINDINGS: Mapping[str, Explained] = _WORDS["findings"]
"""What rules find about a server or a machine apart from its state, by kind; the advice of each `Finding`."""
OTHER_ALERTS: Mapping[str, Explained] = _WORDS["alerts"]
"""The alerts that are no state of a server, machine or group, and no finding."""

_ALERTS_OF_STATES = {
    "unreachable": STATES[BackendState.UNREACHABLE],
    "engine-dead": STATES[BackendState.ENGINE_DEAD],
    "stuck": STATES[BackendState.STUCK],
    "kv-full": STATES[BackendState.KV_FULL],
    "preempting": STATES[BackendState.PREEMPTING],
    "slow-clock": SPEEDS["slow clock"],
    "slow-steps": SPEEDS["slow steps"],
    "oscillating": BALANCE[BalanceWord.OSCILLATING],
    "starved": BALANCE[BalanceWord.STARVED],
    "uneven": BALANCE[BalanceWord.UNEVEN],
}
ALERTS = {kind: {**_ALERTS_OF_STATES, **OTHER_ALERTS, **FINDINGS}[kind] for kind in ALERT_KINDS}
"""What needs attention now, by its kind; limits by default (see the configuration)."""
