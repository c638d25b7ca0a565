"""Which backends are judged against each other: those of a router, of a model, or the lanes of one server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sparktop.store.backend import BackendTrack
from sparktop.store.load_log import LoadLog
from sparktop.store.router import Group, RouterTrack, routers_of_groups


@dataclass(frozen=True, slots=True, eq=False)
class Member:
    """One of those that share a group's requests."""

    name: str
    """The backend's, or for a lane that name, a slash and the lane's."""
    log: LoadLog
    slots: int | None = None
    prefix_hit_percent: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class JudgedGroup:
    """Those that are judged against each other."""

    name: str
    members: tuple[Member, ...]
    backends: tuple[str, ...]
    """The servers that are asked for it."""
    router: RouterTrack | None = None
    """The one in front of them."""
    deployments: Mapping[str, str | None] | None = None
    """Backend by the router's id."""
    lanes_of: str | None = None

    @property
    def router_name(self) -> str | None:
        """The name of what distributes the requests; for lanes their server's, None if no router is known."""
        return self.router.target.name if self.router is not None else self.lanes_of


def judged_groups(
    backends: Mapping[str, BackendTrack],
    group_of: Mapping[str, str],
    routers: Sequence[RouterTrack],
    behind: Sequence[Group],
) -> list[JudgedGroup]:
    """Give the groups of two and more backends, then those of the lanes of servers that are in none.

    `group_of` has each backend's group; backends that are in none yet are absent. `behind` are the backends
    of each router.
    """
    members: dict[str, list[BackendTrack]] = {}
    for name, track in backends.items():
        if name in group_of:
            members.setdefault(group_of[name], []).append(track)
    in_front = routers_of_groups(routers, behind)
    groups: list[JudgedGroup] = []
    for name, tracks in members.items():
        if len(tracks) < 2:  # noqa: PLR2004 - a balance is between two
            continue
        router, group = in_front.get(name, (None, None))
        groups.append(
            JudgedGroup(
                name,
                tuple(_member(track) for track in tracks),
                tuple(track.target.name for track in tracks),
                router=router,
                deployments=group.deployments if group else None,
            )
        )
    grouped = {name for group in groups for name in group.backends}
    groups += [
        _of_lanes(track) for name, track in backends.items() if name not in grouped and track.lanes.logs
    ]
    return groups


def _member(track: BackendTrack) -> Member:
    view = track.view
    return Member(view.name, track.load, view.slots, view.prefix_cache_hit_percent)


def _of_lanes(track: BackendTrack) -> JudgedGroup:
    name = track.target.name
    lanes = tuple(Member(f"{name}/{lane}", log) for lane, log in track.lanes.logs.items())
    return JudgedGroup(f"{name} lanes", lanes, (name,), lanes_of=name)
