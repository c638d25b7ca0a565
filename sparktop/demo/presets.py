"""The sweeps that the demo offers beside the usual ones, each with a key of its own."""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.model.targets import BackendTarget, RouterTarget, SweepSettings

_LEVEL_S = 11.0
"""A little more than a level must last to be believed; bursts here take half a second to four."""


def demo_sweeps(
    backends: Sequence[BackendTarget], routers: Sequence[RouterTarget], rivals: Sequence[RouterTarget] = ()
) -> tuple[SweepSettings, ...]:
    """Give the presets: the router alone in a minute, and routers beside one server in two or three."""
    if not backends or not routers:
        return ()
    router, alone = routers[0].name, backends[0].name
    return (
        SweepSettings(
            "router",
            targets=(router,),
            concurrency=(1, 4, 16),
            prompt_lengths=(128,),
            tg=32,
            duration_s=_LEVEL_S,
            key="f5",
        ),
        SweepSettings(
            "topologies",
            targets=(router, *(one.name for one in rivals), alone),
            concurrency=(1, 8, 32),
            prompt_lengths=(128,),
            tg=32,
            duration_s=_LEVEL_S,
            key="f6",
        ),
    )
