"""The sweeps that the demo adds to the built-in sweeps; each is started by its own function key."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from sparktop.demo.scenario import DEFAULT_SCENARIO
from sparktop.model.targets import BackendTarget, RouterTarget, SweepSettings

_LEVEL_S = 11.0
"""Seconds per level: a little more than a valid level needs, because bursts in the demo take up to four
seconds."""


def demo_sweeps(
    backends: Sequence[BackendTarget],
    routers: Sequence[RouterTarget],
    rivals: Sequence[RouterTarget] = (),
    *,
    scenario: str = DEFAULT_SCENARIO,
) -> tuple[SweepSettings, ...]:
    """Return the demo's two sweeps: key f5 loads the router alone, f6 compares the scenario's targets.

    `rivals` are further routers for the comparison. Return () if there are no backends or no routers.
    """
    if not backends or not routers:
        return ()
    router = SweepSettings(
        "router",
        targets=(routers[0].name,),
        concurrency=(1, 4, 16),
        prompt_lengths=(128,),
        tg=32,
        duration_s=_LEVEL_S,
        key="f5",
    )
    servers = tuple(target.name for target in backends)
    routed = tuple(target.name for target in (*routers, *rivals))
    return router, replace(_compared(scenario, servers, routed), key="f6")


_AGENTS_S = 60.0
"""Seconds of a level of agents: some calls of each."""


def _compared(scenario: str, servers: tuple[str, ...], routers: tuple[str, ...]) -> SweepSettings:
    """Return the sweep that compares a scenario's targets, which are named by `servers` and `routers`.

    For most scenarios, the targets are all routers and the first server.
    """
    if scenario == "topologies":
        # As in spark-topologies-2026-03: its concurrency, lengths and columns.
        return SweepSettings(
            "topologies",
            targets=(servers[0], servers[-1], *routers),
            concurrency=(1, 2, 4, 8, 16, 32, 64),
            prompt_lengths=(1024,),
            tg=128,
            duration_s=_LEVEL_S,
        )
    if scenario == "recipes":
        return SweepSettings(
            "recipes",
            targets=servers,
            concurrency=(1, 2, 4, 5, 8, 10, 16),
            prompt_lengths=(2048,),
            tg=128,
            duration_s=_LEVEL_S,
        )
    if scenario == "agents":
        return SweepSettings("agents at work", targets=servers[:1], agents=(2, 8), duration_s=_AGENTS_S)
    if scenario == "long-context":
        # Up to 39,000 as in spark-dgx-benchmark; the second server refuses prompts beyond its context.
        return SweepSettings(
            "long-context",
            targets=servers,
            concurrency=(1,),
            prompt_lengths=(5000, 20_000, 39_000, 80_000, 128_000),
            tg=207,
            duration_s=_LEVEL_S,
        )
    return SweepSettings(
        "topologies",
        targets=(*routers, servers[0]),
        concurrency=(1, 8, 32),
        prompt_lengths=(128,),
        tg=32,
        duration_s=_LEVEL_S,
    )
