"""Finds inference servers, routers and targets that are down among the series of a Prometheus.

A server is recognised by its engine's gauge of running requests. production-stack's router writes the same
names with a label `server`: such series belong to the router, never to a server. A target of Ray is a node
with all its replicas, each of which is a server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from math import inf
from typing import NamedTuple
from urllib.parse import urlsplit

from msgspec import Struct

from sparktop.engines.lanes import REPLICA_LABELS
from sparktop.engines.registry import ENGINES
from sparktop.engines.tables import PREFIXES, RUNNING
from sparktop.model.text import clean, free_name
from sparktop.sources.prometheus.client import Labels, TimeSeries, any_of, selector
from sparktop.typed import duration_s

NOT_A_ROUTER = 'worker_addr="",server=""'
REPLICA = "prometheus_replica"
"""The label by which series of one target differ that several replicas of a Prometheus wrote."""
KEY_LABELS = ("job", "instance", "exported_job", "exported_instance")
"""The labels of a target's `ScrapeKey`."""
SERVER_LABELS = (*KEY_LABELS, *REPLICA_LABELS)
"""The labels of a server's `ScrapeKey`."""
_REPLICA, _WORKER = REPLICA_LABELS
_PLACE = ("namespace", "pod", "node", "model_name")
"""Labels that name where a server runs, and its model."""
_HEALTHY = "vllm:healthy_pods_total"
"""production-stack's gauge that only its router has."""
_LONGEST, _LONGEST_REPLICA = 64, 12
"""Most characters of a name, and of the id of a replica in it."""
GROUPS_ADVICE = "correct group_by under [[prometheus]] in the configuration"


class ScrapeKey(NamedTuple):
    """The labels by which a scraped target, or one of Ray's replicas there, differs from others."""

    job: str
    instance: str
    exported_job: str = ""
    exported_instance: str = ""
    """Not empty where a Prometheus federates another one, whose instance it is."""
    replica: str = ""
    """Ray's id of the replica, or of its process; empty for a target and for servers of other engines."""

    @property
    def target(self) -> ScrapeKey:
        """The key of the target at which this server was scraped."""
        return self._replace(replica="") if self.replica else self

    @property
    def address(self) -> str:
        """Host and port of the target, as far as its labels say."""
        return self.exported_instance or self.instance


def key_of(labels: Labels) -> ScrapeKey:
    """Return the key of the server or target that a series belongs to."""
    get = labels.get  # spelled out: this is called for each series
    return ScrapeKey(
        get("job", ""),
        get("instance", ""),
        get("exported_job", ""),
        get("exported_instance", ""),
        get(_REPLICA) or get(_WORKER, ""),
    )


class ActiveTarget(Struct, frozen=True):
    """What the Prometheus says about a target that it scrapes."""

    url: str
    every_s: float | None
    error: str
    """The reason of its newest failure, one clean line; "" for none."""


class FoundServer(Struct, frozen=True):
    """An inference server among the series of a Prometheus."""

    key: ScrapeKey
    name: str
    """Unique among the servers of the Prometheus, clean, at most 64 characters."""
    engine: str
    url: str
    model: str | None
    group: str
    pod: tuple[str, str] | None = None
    """(namespace, name) of its pod; None outside Kubernetes."""
    node: str = ""
    """Its node in Kubernetes, where a label names it."""
    gauge: str = ""
    """The name of its gauge of running requests, whose prefix its other metrics have."""


def servers_query(more: str, group_by: Sequence[str], *, past_s: int | None = None) -> str:
    """Return the query for the servers; `more` has further matchers.

    With `past_s`, also samples count that are up to this many seconds old.
    """
    labels = ", ".join(dict.fromkeys(("__name__", *SERVER_LABELS, *_PLACE, *group_by)))
    gauges = selector(RUNNING, NOT_A_ROUTER, more)
    newest = gauges if past_s is None else f"last_over_time({gauges}[{past_s}s])"
    return f"count by ({labels}) ({newest})"


def routers_query(more: str) -> str:
    """Return the query for routers of production-stack and the servers behind them."""
    names = selector((*RUNNING, _HEALTHY), 'server!=""', more)
    return f"count by ({', '.join(KEY_LABELS)}, server) ({names})"


def active_targets(data: object) -> dict[ScrapeKey, ActiveTarget]:
    """Return the targets in the answer of `/api/v1/targets`, by their key."""
    targets_listed: object = data.get("activeTargets") if isinstance(data, dict) else None
    entries = targets_listed if isinstance(targets_listed, list) else []
    result: dict[ScrapeKey, ActiveTarget] = {}
    for entry in entries:
        labels = entry.get("labels") if isinstance(entry, dict) else None
        if isinstance(labels, dict) and all(isinstance(value, str) for value in labels.values()):
            error = clean(entry.get("lastError") or "", 160)
            result[key_of(labels)] = ActiveTarget(
                _base_url(entry.get("scrapeUrl")), seconds_of(entry.get("scrapeInterval")), error
            )
    return result


def seconds_of(text: object) -> float | None:
    """Return a duration such as "15s", "1m30s" or "500ms" in seconds; None for anything else."""
    if not isinstance(text, str) or not text or len(text) > 20:  # noqa: PLR2004 - far beyond any duration
        return None
    return duration_s(text) or None


def found_servers(
    series: Iterable[TimeSeries],
    targets: Mapping[ScrapeKey, ActiveTarget],
    group_by: Sequence[str],
    past: Iterable[TimeSeries] = (),
    left_out: Collection[ScrapeKey] = frozenset(),
) -> tuple[FoundServer, ...]:
    """Return the servers in the answer to `servers_query`, each with a name of its own, by name.

    Servers whose labels in `group_by` are equal form a group; without such labels, those with the same model,
    job and namespace. `past` has those of targets that are down: what `series` say of a target counts first.
    Those in `left_out` are not returned.
    """
    first: dict[ScrapeKey, Labels] = {}
    for each_series in chain(
        sorted(series, key=lambda each_series: each_series.labels.get("model_name", "")), past
    ):
        if each_series.labels.get("__name__") in RUNNING:
            key = key_of(each_series.labels)
            if key not in left_out:
                first.setdefault(key, each_series.labels)
    names = _server_names(first)
    groups = _group_names(first, group_by)
    result = (
        FoundServer(
            key,
            names[key],
            RUNNING[labels["__name__"]],
            _url_of(key, targets.get(key.target)),
            clean(labels.get("model_name", ""), _LONGEST) or None,
            groups[key],
            (labels.get("namespace", ""), labels["pod"]) if labels.get("pod") else None,
            labels.get("node", ""),
            labels["__name__"],
        )
        for key, labels in first.items()
    )
    return tuple(sorted(result, key=lambda server: server.name))


def replicas_query(more: str) -> str:
    """Return the query whose answer has a series if several replicas of a Prometheus may have written."""
    written = f'{REPLICA}!=""'
    return f"count({selector(RUNNING, NOT_A_ROUTER, written, more)})"


def groups_fault(series: Sequence[TimeSeries], group_by: Sequence[str]) -> str:
    """Return that no server has one of the labels that name the groups, in one line; "" if that is not so."""
    for name in group_by:
        if series and not any(each_series.labels.get(name) for each_series in series):
            return f"no server has the label {name}, which group_by names"
    return ""


def found_routers(series: Iterable[TimeSeries]) -> dict[ScrapeKey, tuple[str, ...]]:
    """Return the URLs of the servers behind each router, from the answer to `routers_query`."""
    result: dict[ScrapeKey, dict[str, None]] = {}
    for each_series in series:
        url = _base_url(each_series.labels.get("server"))
        if url:
            result.setdefault(key_of(each_series.labels), {})[url] = None
    return {key: tuple(urls) for key, urls in result.items()}


def is_federated(keys: Iterable[ScrapeKey]) -> bool:
    """Return whether one scraped instance holds the series of several others."""
    target_counts = Counter(
        (key.job, key.instance) for key in {key.target for key in keys if key.exported_instance}
    )
    return any(count > 1 for count in target_counts.values())


def _server_names(labels_by_key: Mapping[ScrapeKey, Labels]) -> dict[ScrapeKey, str]:
    """Return a name for each server: its pod, else its address, with its job or a number if names repeat.

    The id of a replica of Ray follows.
    """
    short_names: dict[ScrapeKey, str] = {}
    for key, labels in labels_by_key.items():
        address = clean(labels.get("pod") or key.address or key.job, _LONGEST - 16) or "server"
        short_names[key] = f"{address}{_replica_suffix(key)}"
    name_counts = Counter(short_names.values())
    key_of_name: dict[str, ScrapeKey] = {}
    for key in sorted(labels_by_key):
        name = short_names[key]
        if name_counts[name] > 1:
            name = clean(f"{key.job}/{key.address}{_replica_suffix(key)}", _LONGEST - 6)
        key_of_name[free_name(name, key_of_name)] = key
    return {key: name for name, key in key_of_name.items()}


def _group_names(labels_by_key: Mapping[ScrapeKey, Labels], group_by: Sequence[str]) -> dict[ScrapeKey, str]:
    """Return the group of each server; its name has only the labels in which groups differ."""
    labels_of = tuple(group_by) or ("model_name", "namespace", "job")
    values: dict[ScrapeKey, tuple[str, ...]] = {}
    values_of: dict[str, set[tuple[str, ...]]] = {}
    for key, labels in labels_by_key.items():
        value = values[key] = tuple(clean(labels.get(name, ""), _LONGEST) for name in labels_of)
        values_of.setdefault(value[0], set()).add(value)
    names: dict[ScrapeKey, str] = {}
    for key, value in values.items():
        shown_values = value if group_by or len(values_of[value[0]]) > 1 else value[:1]
        names[key] = clean(" ".join(part for part in shown_values if part), _LONGEST) or "backends"
    return names


def _replica_suffix(key: ScrapeKey) -> str:
    return f"/{clean(key.replica, _LONGEST_REPLICA)}" if key.replica else ""


def _url_of(key: ScrapeKey, target: ActiveTarget | None) -> str:
    """Return where a server was scraped; of a replica of Ray, with its id as a fragment."""
    written = key.address if "://" in key.address else f"http://{key.address}"
    url = (target.url if target else "") or _base_url(written)
    return f"{url}#{clean(key.replica, _LONGEST)}" if key.replica else url


def _base_url(text: object) -> str:
    """Return a scrape URL without user, query and the page's usual path; "" for anything but a usable one."""
    url = clean(text, 300) if isinstance(text, str) else ""
    try:
        url_parts = urlsplit(url)
        url_parts.port  # noqa: B018 - raises for what is not a number
    except ValueError:
        return ""
    if url_parts.scheme not in {"http", "https"} or not url_parts.hostname:
        return ""
    path = url_parts.path.rstrip("/").removesuffix("/metrics")
    return f"{url_parts.scheme}://{url_parts.netloc.rpartition('@')[2]}{path}"


# Servers that stand twice among the series of a Prometheus, because two of its jobs have them as a target.
#
# So it is for minutes after a job was renamed: the series of the old one are still there, with old samples.


_MOST_NAMED = 500
"""Most instances that a query names; with more it asks for all."""
_CURRENT_SCRAPES = 1.5
"""A sample that is older than the newest by more scrapes than that is not of now."""


def keys_of_doubles(servers: Iterable[FoundServer]) -> list[list[ScrapeKey]]:
    """Return the keys of servers with the same instance, model and pod, of several each."""
    result: dict[tuple[object, ...], list[ScrapeKey]] = {}
    for server in servers:
        same = (
            server.key.instance,
            server.key.exported_instance,
            server.key.replica,
            server.model,
            server.pod,
        )
        result.setdefault(same, []).append(server.key)
    return [keys for keys in result.values() if len(keys) > 1]


def times_query(more: str, same: Sequence[Sequence[ScrapeKey]]) -> str:
    """Return the query for the Unix times of the newest samples of these servers."""
    instances = {keys[0].instance for keys in same}
    only = f"instance=~{any_of(sorted(instances))}" if len(instances) <= _MOST_NAMED else ""
    gauges = selector(RUNNING, NOT_A_ROUTER, only, more)
    return f"max by ({', '.join(SERVER_LABELS)}) (timestamp({gauges}))"


def keys_to_leave_out(
    same: Iterable[Sequence[ScrapeKey]],
    times: Mapping[ScrapeKey, float],
    targets: Mapping[ScrapeKey, ActiveTarget],
    kept_keys: Collection[ScrapeKey],
    every_s: float,
) -> frozenset[ScrapeKey]:
    """Return the keys to leave out, so that each server stands there once: by its newest samples.

    If two of them are scraped at present, a key of `kept_keys` stays, so that nothing changes from time to
    time. These are one server if their scrape URLs are equal; else their instance may be any name.
    """
    result: set[ScrapeKey] = set()
    for keys in same:
        listed = {} if keys[0].exported_instance else targets
        newest = max(times.get(key, -inf) for key in keys)
        recent = [key for key in keys if times.get(key, -inf) >= newest - _CURRENT_SCRAPES * every_s]
        current = [key for key in recent if key.target in listed] or recent
        kept = min(current, key=lambda key: (key not in kept_keys, key))
        result |= {
            key for key in keys if key != kept and (key not in current or _have_same_url(key, kept, listed))
        }
    return frozenset(result)


def _have_same_url(key: ScrapeKey, other: ScrapeKey, targets: Mapping[ScrapeKey, ActiveTarget]) -> bool:
    if key.target in targets and other.target in targets:
        return targets[key.target].url == targets[other.target].url
    return key.address.rpartition(":")[2].isdecimal()


# Targets that are down (`up` is 0), and the servers among them by the samples of the past hour.
#
# An instant query has no series of such a target: a server which was down at the start would be unknown.


MOST_DOWN = 500
"""Targets that are down, of which those that were servers are searched for."""
_PAST_S = 3600
"""Seconds back in which samples show that a target was a server."""
_NAMED = 3
"""Most targets that are named in a line."""


def down_query() -> str:
    """Return the query for the targets that are down, at most `MOST_DOWN`."""
    return f"topk({MOST_DOWN}, count by ({', '.join(KEY_LABELS)}) ({selector(('up',))} == 0))"


def past_query(more: str, group_by: Sequence[str], keys: Iterable[ScrapeKey]) -> str:
    """Return the query for those of these targets that were servers within the past hour."""
    only = f"instance=~{any_of(sorted({key.instance for key in keys}))}"
    return servers_query(f"{only},{more}" if more else only, group_by, past_s=_PAST_S)


def target_keys(series: Iterable[TimeSeries]) -> set[ScrapeKey]:
    """Return the keys of the targets that series belong to."""
    return {key_of(each_series.labels).target for each_series in series}


def no_server_text(down: Collection[ScrapeKey]) -> str:
    """Return that no engine was recognised, which ones could be, and which targets are `down`."""
    *titles, last = (ENGINES[engine].title for engine in PREFIXES)
    message = f"scrapes no inference server that is known by its metrics: {', '.join(titles)} or {last}"
    return "; ".join(filter(None, (message, down_text(down))))


def down_text(keys: Collection[ScrapeKey]) -> str:
    """Return which targets are down, in one clean line; "" for none."""
    if not keys:
        return ""
    number = len(keys)
    count = "1 target is" if number == 1 else f"{number} targets are"
    count = f"at least {count}" if number >= MOST_DOWN else count
    names = sorted(clean(key.instance or key.job, 60) for key in keys)[:_NAMED]
    return f"{count} down (up is 0): {', '.join([*names, *(['…'] if number > _NAMED else [])])}"
