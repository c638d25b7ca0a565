"""Groups whose members' loads are compared, and which verdict on a group is announced.

The members are backends of one router or model, or the engine cores ("lanes") of a server.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from sparktop.model.balance import Balance, BalanceWord, GroupPace
from sparktop.model.router import Scrape
from sparktop.model.snapshot import BackendState
from sparktop.store.backend import BackendTrack
from sparktop.store.load_log import LoadLog, Role, reported_roles, worker_roles
from sparktop.store.routers import Routed, RouterTrack, routers_of_groups

EVERY_S = 5.0
"""Seconds between two evaluations of a group."""
CONFIRMED_WITHIN_S = 15.0
"""A recorded verdict is forgotten if the evaluations do not confirm it within these seconds."""
_TO_ANNOUNCE, _TO_WITHDRAW = 2, 3
"""Evaluations in a row that announce a verdict, and that withdraw a bad one."""


def period(at_s: float) -> float:
    """Return the number of the period that contains `at_s` (monotonic seconds).

    Periods last `EVERY_S` seconds and begin at multiples of it, so that a replay from any moment evaluates
    at the same times.
    """
    return at_s // EVERY_S


class BalanceWatch:
    """Follows one group: decides from successive verdicts on its balance which verdict is announced.

    A verdict is announced once two evaluations in a row agree on it. A bad verdict is withdrawn only after
    three evaluations in a row with other verdicts. If the last two of these agree, their verdict is
    announced, else "unknown".
    """

    def __init__(self) -> None:
        """Start with the announced verdict "unknown", and without any evaluation."""
        self._recent: deque[BalanceWord] = deque(maxlen=_TO_WITHDRAW)
        self._word = BalanceWord.UNKNOWN
        self._since: datetime | None = None
        self.judged_at_s = -math.inf
        """Monotonic time of the newest evaluation."""
        self.balance: Balance | None = None
        """The newest evaluation with the announced verdict, as it is shown; None before the first."""
        self.last_loss = (-math.inf, 0.0)
        """Monotonic time at which the loss of tokens was known last, and the loss in percent."""
        self.alert_id = ""
        """Id of the group's active alert; "" without one."""
        self.in_sweep = False
        """Whether a sweep of this program loaded the group at the newest evaluation."""
        self.judged_from_s = -math.inf
        """Monotonic time of the last beginning or end of such a sweep: no window reaches further back."""
        self._adopted: tuple[BalanceWord, datetime, float] | None = None
        """A recorded verdict, its beginning, and the monotonic time until which it may be confirmed."""
        self.pace = GroupPace()
        """The newest known step times, for windows whose batches do not vary, such as a constant load."""
        self._had_loads = False

    def restart(self, at_s: float, *, in_sweep: bool) -> None:
        """Forget all evaluations, as a sweep began or ended at `at_s`: the load before it was another one."""
        self._recent.clear()
        self._word, self._since = BalanceWord.UNKNOWN, None
        self.last_loss = (-math.inf, 0.0)
        self.in_sweep, self.judged_from_s = in_sweep, at_s

    def fail(self, at_s: float) -> None:
        """Show no verdict, as the evaluation at `at_s` failed; evaluate again in the next period."""
        self.restart(self.judged_from_s, in_sweep=self.in_sweep)
        self.judged_at_s, self.balance, self._had_loads = at_s, None, True

    def is_due(self, at_s: float) -> bool:
        """Return whether to judge the group again at `at_s` (monotonic seconds).

        True once in each period of `EVERY_S` seconds. Before loads have been sampled it is always True.
        """
        # A verdict before the first samples is void: judge again at once.
        return not self._had_loads or period(at_s) > period(self.judged_at_s)

    def update(self, balance: Balance, at_s: float, now: datetime) -> tuple[Balance, BalanceWord | None]:
        """Add the evaluation `balance`, made at `at_s` (monotonic seconds) and `now` (UTC).

        Return (balance, the verdict announced before). The returned balance has the announced verdict as its
        `word`, and the time since which it has been announced. The second is None if that stays the same.
        """
        self.judged_at_s = at_s
        self._had_loads = self._had_loads or balance.sample_hz is not None
        if balance.pace.usual is not None:
            self.pace = balance.pace
        self._recent.append(balance.word_now)
        before, after = self._word, self._word_to_announce()
        if self._since is None or after is not before:
            self._since = now
        self._word = after
        is_news = after is not before and not self._confirms(after, at_s)
        return replace(balance, word=after, since=self._since), before if is_news else None

    def known_in_s(self, at_s: float) -> float | None:
        """Return the seconds from `at_s` (monotonic) until a verdict is expected; None if none is pending."""
        balance = self.balance
        if balance is None or balance.word is not BalanceWord.UNKNOWN:
            return None
        if balance.sample_hz is None or balance.is_slow:
            return None
        from sparktop.analysis.balance.rules import PRESENT_SHARE, lacks_load  # late: comes after seconds

        if lacks_load(balance) or (balance.samples_percent or 0.0) < 100 * PRESENT_SHARE:
            return None  # time alone brings no verdict
        left_s = balance.needed_s - balance.window_s - 1 / balance.sample_hz
        if balance.word_now is not BalanceWord.UNKNOWN:  # the next evaluation may confirm it
            known_at_s = (period(self.judged_at_s) + 1) * EVERY_S
        elif left_s > 0:
            known_at_s = (math.ceil((self.judged_at_s + left_s) / EVERY_S) + _TO_ANNOUNCE - 1) * EVERY_S
        else:
            return None
        return max(0.0, known_at_s - at_s)

    def adopt(self, word: BalanceWord, since: datetime, at_s: float) -> None:
        """Apply a recorded verdict: if `word` is announced now, set its beginning to `since`.

        Otherwise store `word` and `since`. If `word` is then announced within `CONFIRMED_WITHIN_S` of `at_s`
        (monotonic seconds), its beginning is `since`, and `update` returns no change.
        """
        if word is not self._word or self._since is None:
            self._adopted = (word, since, at_s + CONFIRMED_WITHIN_S)
            return
        self._since, self._adopted = since, None
        if self.balance is not None:
            self.balance = replace(self.balance, since=since)

    def _confirms(self, word: BalanceWord, at_s: float) -> bool:
        """Return whether `word`, just announced, is the verdict that `adopt` stored, and still in time.

        If so, its beginning becomes the recorded one. The stored verdict is removed in any case.
        """
        adopted, self._adopted = self._adopted, None
        if adopted is None or word is not adopted[0] or at_s > adopted[2]:
            return False
        self._since = adopted[1]
        return True

    def _word_to_announce(self) -> BalanceWord:
        recent = [*self._recent]
        agreed = recent[-1] if len(set(recent[-_TO_ANNOUNCE:])) == 1 and len(recent) >= _TO_ANNOUNCE else None
        if not self._word.bad:
            return agreed or self._word
        if len(recent) < _TO_WITHDRAW or self._word in recent:
            return self._word
        return agreed or BalanceWord.UNKNOWN


class Member(Struct, frozen=True, eq=False):
    """A backend or an engine core (lane) of a server, which receives a share of its group's requests."""

    name: str
    """The backend's name; for a lane the server's name, a slash and the lane's name."""
    log: LoadLog
    slots: int | None = None
    scrape: Scrape | None = None
    """The Prometheus that its samples come from, except during a closer look."""
    halted: str = ""
    """What keeps it from serving the requests that it holds: "asleep", "stuck"; "" for nothing."""


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
    routed: Routed,
) -> list[JudgedGroup]:
    """Return all groups to judge: groups of backends, and the engine cores (lanes) of each server.

    The lanes of servers that are in a group themselves come last.

    `group_of` maps backend names to group names, without backends whose group is not known yet. A group with
    a single backend does not count. If a group has prefill or decode workers, each role with at least two
    workers is judged as a group of its own, because a request visits one worker of each role. This function
    also sets the role of each backend of a group.
    """
    members: dict[str, list[BackendTrack]] = {}
    for name, track in backends.items():
        if name in group_of:
            members.setdefault(group_of[name], []).append(track)
    in_front = routers_of_groups(routed)
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
    lanes = [
        _lanes_group(track, group_with.get(name)) for name, track in backends.items() if track.lanes.logs
    ]
    return [*groups, *sorted(lanes, key=lambda group: group.within is not None)]


def _by_role(name: str, tracks: Sequence[BackendTrack]) -> Iterator[tuple[str, Sequence[BackendTrack]]]:
    """Yield (title, backends) for each set of backends in the group `name` that is judged together.

    If some are prefill or decode workers, the backends of each role with at least two form a set, and so do
    those without a role. Otherwise there is one set, of all backends. Also set the role of each backend.
    """
    roles = reported_roles({track.target.name: track.reported_role for track in tracks}) or worker_roles(
        {track.target.name: track.load.counts_since(-math.inf) for track in tracks}
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
    view, halted = track.view, ""
    if view.state is BackendState.ASLEEP and (view.running or view.waiting):
        halted = view.state.value
    elif view.progress is not None and view.state is not BackendState.UNREACHABLE:
        halted = view.progress.word.value
    return Member(view.name, track.load, view.slots, track.target.scrape, halted)


def _lanes_group(track: BackendTrack, within: str | None) -> JudgedGroup:
    name = track.target.name
    scrape = track.target.scrape
    lanes = tuple(Member(f"{name}/{lane}", log, scrape=scrape) for lane, log in track.lanes.logs.items())
    return JudgedGroup(f"{name} DP ranks", lanes, (name,), lanes_of=name, within=within, role=track.role)
