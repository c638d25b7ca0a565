"""The plan that the demo's processes receive, and the constants that they share."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Self

from sparktop.demo.scenario import DEFAULT_SCENARIO, SCENARIOS, Scenario
from sparktop.demo.visitors import QUIET_S

KEY = "sk-simulated"
"""Key of the proxy's informative routes; completions need none, so that any client can use them."""
KEY_VARIABLE = "SPARKTOP_DEMO_KEY"
"""Environment variable that holds the key in a configuration of the demo."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Instructions to a child process."""

    scenario: str = DEFAULT_SCENARIO
    backends: int = 2
    seed: int = 0
    strategy: str | None = None
    """Replaces the scenario's."""
    load: int | None = None
    urls: tuple[str, ...] = ()
    """URLs of the servers for the proxy, of the proxy for the load."""
    visitors: int | None = None
    """Descriptor of the pipe, inherited by the child, through which servers report other clients'
    requests."""
    quiet_s: float = QUIET_S
    """Seconds from the last of those until the load resumes."""

    def line(self) -> bytes:
        """Serialize the plan as a line for a child's standard input."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def read(cls, line: bytes) -> Self:
        """Parse the output of `line`."""
        given = json.loads(line)
        return cls(**{**given, "urls": tuple(given["urls"])})

    def chosen(self) -> Scenario:
        """Return the scenario with the plan's replacements."""
        scenario = SCENARIOS[self.scenario]
        return replace(
            scenario,
            strategy=self.strategy or scenario.strategy,
            load=scenario.load if self.load is None else self.load,
        )
