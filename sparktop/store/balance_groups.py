"""Groups whose members are judged against each other: backends of a router or model, lanes of a server."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sparktop.analysis.roles import Role, worker_roles
from sparktop.store.backend import BackendTrack
from sparktop.store.load_log import LoadLog
from sparktop.store.router import Group, RouterTrack, routers_of_groups


@dataclass(frozen=True, slots=True, eq=False)
class Member:
    """A backend or a lane that shares a group's requests."""

    name: str
    """The backend's name; for a lane that name, a slash and the lane's."""
    log: LoadLog
    slots: int | None = None
    prefix_hit_percent: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class JudgedGroup:
    """Members that are judged against each other."""

    name: str
    members: tuple[Member, ...]
    backends: tuple[str, ...]
    """The servers that are polled for it."""
    router: RouterTrack | None = None
    """The router in front of them."""
    deployments: Mapping[str, str | None] | None = None
    """Backend name by the router's deployment id."""
    lanes_of: str | None = None
    role: Role | None = None
    """The role of all members; None where they do both prefill and decode."""

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
    """Return the groups of two and more backends, then the lanes of servers that are in no such group.

    Prefill and decode workers of a model form a group each, because a request visits one of both kinds.
    `group_of` maps backends to group names, without backends whose group is not known yet. `behind` are the
    backends of each router, in the order of `routers`.
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
        for title, part in _by_role(name, tracks):
            groups.append(
                JudgedGroup(
                    title,
                    tuple(_member(track) for track in part),
                    tuple(track.target.name for track in part),
                    router=router,
                    deployments=group.deployments if group else None,
                    role=part[0].role,
                )
            )
    grouped = {track.target.name for tracks in members.values() if len(tracks) > 1 for track in tracks}
    groups += [
        _of_lanes(track) for name, track in backends.items() if name not in grouped and track.lanes.logs
    ]
    return groups


def _by_role(name: str, tracks: Sequence[BackendTrack]) -> Iterator[tuple[str, Sequence[BackendTrack]]]:
    """Yield the group, or each kind of its workers with at least two; set the role of each backend."""
    roles = worker_roles({track.target.name: track.load.work(-math.inf) for track in tracks})
    for track in tracks:
        track.role = roles.get(track.target.name)
    if not roles:
        yield name, tracks
        return
    for role in Role:
        part = [track for track in tracks if track.role is role]
        if len(part) > 1:
            yield f"{name} {role.value}", part


def _member(track: BackendTrack) -> Member:
    view = track.view
    return Member(view.name, track.load, view.slots, view.prefix_cache_hit_percent)


def _of_lanes(track: BackendTrack) -> JudgedGroup:
    name = track.target.name
    lanes = tuple(Member(f"{name}/{lane}", log) for lane, log in track.lanes.logs.items())
    return JudgedGroup(f"{name} lanes", lanes, (name,), lanes_of=name)
