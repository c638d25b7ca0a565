"""Groups whose members are compared: backends of a router or model, or lanes of a server."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from sparktop.analysis.roles import Role, reported_roles, worker_roles
from sparktop.model.fleet import Scrape
from sparktop.store.backend import BackendTrack
from sparktop.store.load_log import LoadLog
from sparktop.store.router import Group, RouterTrack, routers_of_groups

# A lane is one engine core (data-parallel rank) of a server.


class Member(Struct, frozen=True, eq=False):
    """A backend or an engine core (lane) of a server, which receives a share of its group's requests."""

    name: str
    """The backend's name; for a lane the server's name, a slash and the lane's name."""
    log: LoadLog
    slots: int | None = None
    prefix_hit_percent: float | None = None
    scrape: Scrape | None = None
    """The Prometheus that its samples come from, except during a closer look."""


class JudgedGroup(Struct, frozen=True, eq=False):
    """A group of backends, or of the engine cores of one server, whose loads are compared with each other."""

    name: str
    members: tuple[Member, ...]
    backends: tuple[str, ...]
    """The servers that are polled for this group."""
    router: RouterTrack | None = None
    """The router in front of the members; None if none is known."""
    deployments: Mapping[str, str | None] | None = None
    """Backend name by deployment id of the router; the name is None for a deployment that no known backend
    matches."""
    lanes_of: str | None = None
    """The server whose engine cores are the members; None for a group of backends."""
    within: str | None = None
    """Name of the judged group that the server `lanes_of` belongs to; None if it is in none."""
    role: Role | None = None
    """The role that all members have; None if they do both prefill and decode."""

    @property
    def router_name(self) -> str | None:
        """The name of what distributes the requests; None if unknown.

        This is the router, or for the engine cores (lanes) of a server the server itself.
        """
        return self.router.target.name if self.router is not None else self.lanes_of


def judged_groups(
    backends: Mapping[str, BackendTrack],
    group_of: Mapping[str, str],
    routers: Sequence[RouterTrack],
    behind: Sequence[Group],
) -> list[JudgedGroup]:
    """Return all groups to judge: groups of backends, and the engine cores (lanes) of each server.

    The lanes of servers that are in a group themselves come last.

    `group_of` maps backend names to group names, without backends whose group is not known yet. A group with
    a single backend does not count. If a group has prefill or decode workers, each role with at least two
    workers is judged as a group of its own, because a request visits one worker of each role. `behind` has,
    for each of `routers` in the same order, the group of backends behind it. This function also sets the role
    of each backend of a group.
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
    group_with = {name: group.name for group in groups for name in group.backends}
    lanes = [_of_lanes(track, group_with.get(name)) for name, track in backends.items() if track.lanes.logs]
    return [*groups, *sorted(lanes, key=lambda group: group.within is not None)]


def _by_role(name: str, tracks: Sequence[BackendTrack]) -> Iterator[tuple[str, Sequence[BackendTrack]]]:
    """Yield (title, backends) for each set of backends in the group `name` that is judged together.

    If some are prefill or decode workers, the backends of each role with at least two form a set, and so do
    those without a role. Otherwise there is one set, of all backends. Also set the role of each backend.
    """
    roles = reported_roles({track.target.name: track.reported_role for track in tracks}) or worker_roles(
        {track.target.name: track.load.work(-math.inf) for track in tracks}
    )
    for track in tracks:
        track.role = roles.get(track.target.name)
    if not roles:
        yield name, tracks
        return
    for role in (*Role, None):
        part = [track for track in tracks if track.role is role]
        if len(part) > 1:
            yield name if role is None else f"{name} {role.value}", part


def _member(track: BackendTrack) -> Member:
    view = track.view
    return Member(view.name, track.load, view.slots, view.prefix_cache_hit_percent, track.target.scrape)


def _of_lanes(track: BackendTrack, within: str | None) -> JudgedGroup:
    name = track.target.name
    scrape = track.target.scrape
    lanes = tuple(Member(f"{name}/{lane}", log, scrape=scrape) for lane, log in track.lanes.logs.items())
    return JudgedGroup(f"{name} lanes", lanes, (name,), lanes_of=name, within=within, role=track.role)
