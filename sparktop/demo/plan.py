"""What the demo's processes are told, and what they agree on."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Self

from sparktop.demo.scenario import DEFAULT_SCENARIO, SCENARIOS, Scenario
from sparktop.demo.visitors import QUIET_S

KEY = "sk-simulated"
"""What the proxy's routes that tell of it want; completions want none, so anything can be pointed there."""
KEY_VARIABLE = "SPARKTOP_DEMO_KEY"
"""The environment variable that a configuration of the demo takes the key from."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a child is to do."""

    scenario: str = DEFAULT_SCENARIO
    backends: int = 2
    seed: int = 0
    strategy: str | None = None
    """Instead of the scenario's."""
    load: int | None = None
    urls: tuple[str, ...] = ()
    """Of the servers for the proxy, of the proxy for the load."""
    visitors: int | None = None
    """The pipe, a descriptor of the child's, by which servers tell the load of others' requests."""
    quiet_s: float = QUIET_S
    """The load comes back so long after the last of them."""

    def line(self) -> bytes:
        """Write it for a child's standard input."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def read(cls, line: bytes) -> Self:
        """Read what `line` wrote."""
        given = json.loads(line)
        return cls(**{**given, "urls": tuple(given["urls"])})

    def chosen(self) -> Scenario:
        """Give the scenario with what was asked for instead."""
        scenario = SCENARIOS[self.scenario]
        return replace(
            scenario,
            strategy=self.strategy or scenario.strategy,
            load=scenario.load if self.load is None else self.load,
        )
