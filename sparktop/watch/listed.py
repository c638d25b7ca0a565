"""Servers and machines that files on this machine list: file_sd files, and those of sparkrun."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from sparktop.model.targets import BackendTarget, NodeTarget, Watch
from sparktop.store import Store

if TYPE_CHECKING:
    from sparktop.watch.ways import Ways


async def follow_listed(
    watch: Watch,
    ways: Ways,
    store: Store,
    watch_backends: Callable[[Iterable[BackendTarget], Mapping[str, str]], None],
    watch_nodes: Callable[[Iterable[NodeTarget]], Awaitable[Mapping[str, str]]],
    sleep: Callable[[float], Awaitable[None]],
) -> None:
    """Read the files that `watch` names again and again, and watch what they list and what answers.

    `watch_nodes` returns the name under which each machine is watched, which `watch_backends` is called with.
    """
    from sparktop.watch.sparkrun import follow_sparkrun
    from sparktop.watch.target_files import follow_files

    works = []
    if watch.target_files:
        files = watch.target_files
        works.append(follow_files(files, ways, store, lambda found: watch_backends(found, {}), sleep))
    if watch.sparkrun:
        works.append(follow_sparkrun(ways, store, watch_backends, watch_nodes, sleep))
    await asyncio.gather(*works)
