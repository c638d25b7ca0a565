"""The plan that each child process of the demo receives, and constants that the processes share."""

from __future__ import annotations

from typing import Self

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from sparktop.config.watch import DEMO_KEY, DEMO_KEY_VARIABLE
from sparktop.demo.scenario import DEFAULT_SCENARIO, SCENARIOS, Scenario
from sparktop.demo.visitors import QUIET_S

KEY = DEMO_KEY
"""API key for the proxy's routes about itself; completions need no key, so that any client can use them."""
KEY_VARIABLE = DEMO_KEY_VARIABLE
"""Environment variable that may hold the key in a configuration of the demo."""


class Plan(Struct, frozen=True):
    """What a child process of the demo should simulate, as sent to the process when it starts."""

    scenario: str = DEFAULT_SCENARIO
    backends: int = 2
    seed: int = 0
    strategy: str | None = None
    """Routing strategy that replaces that of the scenario; None: the scenario's own strategy is used."""
    load: int | None = None
    urls: tuple[str, ...] = ()
    """URLs to which the child process sends requests: those of the servers for the proxy's process, that
    of the proxy for the load's process."""
    visitors: int | None = None
    """File descriptor of a pipe, inherited by the child process, through which the servers report other
    clients' requests to the load; None without load."""
    quiet_s: float = QUIET_S
    """Seconds from the last request of another client until the load resumes."""

    def line(self) -> bytes:
        """Return the plan as a JSON line for the child's standard input."""
        return msgspec.json.encode(self) + b"\n"

    @classmethod
    def read(cls, line: bytes) -> Self:
        """Parse a plan from a JSON line, as the method `line` returns it."""
        return msgspec.json.decode(line, type=cls)

    def chosen(self) -> Scenario:
        """Return the plan's scenario, with the plan's strategy and load where these are set."""
        scenario = SCENARIOS[self.scenario]
        return replace(
            scenario,
            strategy=self.strategy or scenario.strategy,
            load=scenario.load if self.load is None else self.load,
        )
