"""Finds what a Prometheus scrapes: servers, routers and down targets; at a pace that it can answer."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from itertools import chain, pairwise
from statistics import median

from sparktop.engines.tables import RUNNING
from sparktop.errors import UsageError
from sparktop.model.targets import BackendTarget, PrometheusTarget
from sparktop.model.text import clean
from sparktop.net.failure import AnswerError
from sparktop.sources.prometheus.client import Labels, PrometheusClient, Series, any_of, in_steps, selector
from sparktop.sources.prometheus.found import (
    NOT_A_ROUTER,
    ActiveTarget,
    Found,
    FoundServer,
    Key,
    active_targets,
    doubles,
    down_query,
    found_routers,
    found_servers,
    groups_fault,
    is_federated,
    key_of,
    keys_in,
    past_query,
    replicas_query,
    routers_query,
    servers_query,
    times_query,
    to_leave_out,
)
from sparktop.watch.discovery import parse_target

_MOST_TARGETS = 1000
"""Servers up to which the list of targets is read: it takes 0.6 MB for 1,000."""
_TARGETS = "/api/v1/targets?state=active"
_SAMPLED, _SAMPLED_S = 3, 600.0
"""Servers whose samples of this many seconds show how often they are scraped."""
_NEW_S = 120.0
_ASKED_EACH = 10
"""Searches after which a target that stays down, and was no server, is asked for once more."""


class Finder:
    """Finds the servers of one Prometheus again and again."""

    def __init__(self, target: PrometheusTarget, client: PrometheusClient) -> None:
        """Query by `client`."""
        self._target = target
        self._client = client
        self.found = Found()
        self.active: dict[Key, ActiveTarget] = {}
        """What the list of targets says, where there is one and it is not too long."""
        self.labels: dict[Key, Labels] = {}
        """The labels of targets, from their series `up`, as far as they were wanted."""
        self.dead: frozenset[Key] = frozenset()
        """The targets whose newest scrape failed (`up` is 0)."""
        self.down: frozenset[Key] = frozenset()
        """All targets that were down at the newest search, also those that are no servers; the first 500."""
        self._past: dict[Key, list[Series]] = {}
        """The series by which targets that are down were found to be servers."""
        self._no_servers: dict[Key, int] = {}
        """Other targets that are down, which had no such series, with the number of searches since."""
        self._left_out: dict[Key, float] = {}
        """Targets that are another one's server once more, with the Unix times of their newest samples."""
        self.replicated = False
        """Whether several replicas of a Prometheus may have written the series of one target."""
        self._sampled_s: float | None = None
        """Seconds between two samples of a server, where the list of targets does not say it."""
        self._new_since: float | None = None
        """Since when (monotonic seconds) no server, or no two samples of one, are known; None if they are."""

    @property
    def every_s(self) -> float | None:
        """Seconds between two scrapes, by the list of targets, else by samples; None while unknown."""
        known = [one.every_s for one in self.active.values() if one.every_s]
        return median(known) if known else self._sampled_s

    def every_s_of(self, key: Key) -> float | None:
        """Return the seconds between two scrapes of a target, by the list of targets; None if unknown."""
        active = self.active.get(key.target)
        return None if active is None else active.every_s

    async def find(self) -> None:
        """Search for servers and routers; a server that is down has no series, and is remembered.

        Raises:
            AnswerError: a query failed.
        """
        more, group_by = self._target.selector, self._target.group_by
        asked = (servers_query(more, group_by), routers_query(more), replicas_query(more), down_query())
        answers = await asyncio.gather(*map(self._client.query, asked))
        self.replicated = bool(answers[2].series)
        if len(answers[0].series) <= _MOST_TARGETS:
            try:
                self.active = active_targets(await self._client.get(_TARGETS))
            except AnswerError:
                self.active = {}  # Mimir and others have no such list
        self.down = frozenset(key_of(one.labels) for one in answers[3].series)
        await self._find_past(answers[0].series)
        servers = await self._each_once(answers[0].series)
        keys, names = {one.key for one in servers}, {one.name for one in servers}
        missing = [
            one
            for one in self.found.servers
            if one.key not in keys and one.name not in names and one.key not in self._left_out
        ]
        if any(one.key.target not in self.dead for one in missing):
            self.dead |= await self._down({one.key.job for one in missing})
        down = [one for one in missing if one.key.target in self.dead]
        listed = tuple(sorted((*servers, *down), key=lambda one: one.name)) if down else servers
        fault = groups_fault(answers[0].series, group_by)
        self.found = Found(listed, found_routers(answers[1].series), fault, is_federated(keys))
        if self.every_s is None:
            self._sampled_s = await self._step_s(servers)

    async def _each_once(self, series: Sequence[Series]) -> tuple[FoundServer, ...]:
        """Return the servers in the answer, and those that are down; each once, also if two jobs have it."""
        past, more, group_by = [*chain(*self._past.values())], self._target.selector, self._target.group_by
        servers = await in_steps(found_servers(series, self.active, group_by, past))
        before, same = self._left_out, await in_steps(doubles(servers))
        alone = [[one.key] for one in servers if one.key in before] if before else []
        if not (same := [*same, *alone]):
            self._left_out = {}
            return servers
        answer = await self._client.query(times_query(more, same))
        times = {key_of(one.labels): one.value or 0.0 for one in answer.series}
        known = {one.key for one in self.found.servers}
        left = to_leave_out(same, times, self.active, known, self.every_s or USUAL_S)
        # The series of a job that was removed stay for five minutes: also without the other, it is not there.
        left |= {key for (key,) in alone if times.get(key, 0.0) <= before[key]}
        self._left_out = {key: times.get(key, 0.0) for key in left}
        return await in_steps(found_servers(series, self.active, group_by, past, left))

    async def _find_past(self, series: Sequence[Series]) -> None:
        """Find which targets that are down were servers; `series` are those of servers that are not."""
        self._past = {key: known for key, known in self._past.items() if key in self.down}
        self._no_servers = {
            key: searches + 1
            for key, searches in self._no_servers.items()
            if key in self.down and searches < _ASKED_EACH
        }
        wanted = self.down - self._past.keys() - self._no_servers.keys()
        wanted -= {one.key.target for one in self.found.servers}
        if wanted:
            wanted -= await in_steps(keys_in(series))
        if not wanted:
            return
        try:
            answer = await self._client.query(
                past_query(self._target.selector, self._target.group_by, wanted)
            )
        except AnswerError:
            return  # too much, or a server of the API without that function: as if there were none
        for one in answer.series:
            if (key := key_of(one.labels).target) in wanted:
                self._past.setdefault(key, []).append(one)
        self._no_servers |= dict.fromkeys(wanted - self._past.keys(), 1)

    async def _step_s(self, servers: Sequence[FoundServer]) -> float | None:
        """Return the seconds between two samples, by those of a few servers; None if none has two.

        Servers that are down may have none: then by those of their series `up`.
        """
        if not servers:
            return None
        only = f"instance=~{any_of({one.key.instance for one in servers[:_SAMPLED]})}"
        asked = selector(RUNNING, NOT_A_ROUTER, only, self._target.selector)
        return await self._median_step_s(asked) or await self._median_step_s(selector(("up",), only))

    async def _median_step_s(self, asked: str) -> float | None:
        answer = await self._client.query(f"{asked}[{_SAMPLED_S:.0f}s]")
        steps = [later[0] - earlier[0] for one in answer.series for earlier, later in pairwise(one.samples)]
        return max(0.1, round(median(steps), 1)) if steps else None

    async def is_new(self, every_s: float, now: float) -> bool:
        """Return whether the Prometheus may have scraped its servers less than twice, `_NEW_S` at most.

        So it is while no server is known, until its series `up` are two scrapes old, and while nothing says
        how often it scrapes. `now` is in monotonic seconds.

        Raises:
            AnswerError: the query failed.
        """
        if self.found.servers and self.every_s is not None:
            self._new_since = None
            return False
        self._new_since = now if self._new_since is None else self._new_since
        if now - self._new_since > _NEW_S:
            return False
        if self.found.servers:
            return True
        answer = await self._client.query(f"count({selector(('up',))} offset {2 * every_s:.0f}s)")
        return not answer.series

    async def read_up(self, jobs: Collection[str], wanted: Iterable[FoundServer]) -> None:
        """Find which targets of these jobs and of the servers' jobs are down, and the labels of `wanted`.

        Raises:
            AnswerError: a query failed.
        """
        some = {*jobs, *({one.key.job for one in self.found.servers} if not self.found.federated else ())}
        if not some:
            return
        self.dead = await self._down(some)
        unknown = {one.key.instance for one in wanted if one.key.target not in self.labels}
        if unknown and not self.found.federated:
            asked = selector(("up",), f"instance=~{any_of(sorted(unknown))}")
            answer = await self._client.query(asked)
            self.labels.update((key_of(one.labels), _plain(one.labels)) for one in answer.series)

    async def newest_up(self, jobs: Collection[str]) -> float | None:
        """Return the Unix time of the newest scrape of any target of these jobs and of the servers' jobs.

        Raises:
            AnswerError: the query failed.
        """
        some = {*jobs, *(one.key.job for one in self.found.servers)}
        up = selector(("up",), f"job=~{any_of(sorted(some))}")
        answer = await self._client.query(f"max(timestamp({up}))")
        return answer.series[0].value if answer.series else None

    async def _down(self, jobs: Collection[str]) -> frozenset[Key]:
        up = selector(("up",), f"job=~{any_of(sorted(jobs))}")
        answer = await self._client.query(f"{up} == 0")
        return frozenset(key_of(one.labels) for one in answer.series if one.value == 0)


def _plain(labels: Labels) -> Labels:
    return {name: value for name, value in labels.items() if name != "__name__"}


# How often a Prometheus is queried, and for how many servers at a time; less where it answers "too much".


USUAL_S = 15.0
"""Seconds between two scrapes where nothing is known of it."""
LEAST_S, LONGEST_S = 1.0, 120.0
MOST_AT_ONCE = 16
"""Servers in one query of raw samples: 0.4 to 1.3 MB of JSON, whose reading delays no key for long."""
_RECOVERS_AFTER = 20
"""Answers in a row after which more is asked for again."""
_LOOKS = 3.0
"""Looks within a scrape's interval: a sample is seen at most a third of it after Prometheus has it."""


class Pace:
    """The size of queries and the time between two of them."""

    def __init__(self) -> None:
        """Start at the usual pace."""
        self.every_s = USUAL_S
        """Seconds between two scrapes."""
        self.at_once = MOST_AT_ONCE
        self.slowed = 1
        """How many times the usual time between two queries; doubled by each refusal."""
        self.reason = ""
        """The message of the refusal; "" at the usual pace."""
        self._good = 0

    def period_s(self, servers: int) -> float:
        """Return the seconds between two queries for the raw samples of this many servers."""
        looks = _LOOKS if servers <= MOST_AT_ONCE else 1.0
        return min(LONGEST_S, max(LEAST_S, self.every_s / looks) * self.slowed)

    def refused(self, message: str) -> None:
        """Ask for half as many servers half as often."""
        self.at_once = max(1, self.at_once // 2)
        self.slowed = min(self.slowed * 2, max(1, round(LONGEST_S / self.every_s)))
        self.reason, self._good = message, 0

    def answered(self) -> None:
        """Count an answer; after enough of them in a row, ask for more again."""
        self._good += 1
        if self.slowed > 1 and self._good >= _RECOVERS_AFTER:
            self.at_once, self.slowed, self._good = min(MOST_AT_ONCE, 2 * self.at_once), self.slowed // 2, 0
            if self.slowed == 1:
                self.at_once, self.reason = MOST_AT_ONCE, ""

    @property
    def note(self) -> str:
        """What is asked for less than usual, in one line; "" at the usual pace."""
        if not self.reason:
            return ""
        return f"asks for {self.at_once} servers at a time, {self.slowed} × less often: {self.reason}"


# Parses a TARGET argument that names a Prometheus.


_SCHEME = "prometheus+"


def parse_prometheus(text: str) -> PrometheusTarget | None:
    """Return the Prometheus that a TARGET argument names, as in prometheus+http://host:9090; None for others.

    Raises:
        UsageError: what follows is not an http(s) address.
    """
    word = text.strip()
    if not word.startswith(_SCHEME):
        return None
    url = word.removeprefix(_SCHEME).rstrip("/").removesuffix("/api/v1")
    target = parse_target(url) if "://" in url else None
    if not isinstance(target, BackendTarget):
        raise UsageError(f"{clean(text, 60)}: no Prometheus; write prometheus+http://host:9090")
    return PrometheusTarget(target.name, target.url)
