"""Removes from the data of a report what it may not show; every format is written from the result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

from msgspec.structs import replace

from sparktop.model.event import Alert, Event
from sparktop.model.node import NodeIdentity
from sparktop.model.series import Series
from sparktop.model.snapshot import NodeView
from sparktop.model.structs import copy_record, is_record
from sparktop.model.targets import NodeTarget, Target
from sparktop.model.text import clean
from sparktop.moments.figures import NODE
from sparktop.moments.moment import Moment, Spell
from sparktop.report.privacy import BACKEND, ROUTER, Privacy

_VERSIONS = frozenset({"version", "driver", "os", "cpu", "product", "about", "id"})
"""Fields whose numbers with points are no addresses, and ids that no report shows."""
_LONGEST = 1000
Value = TypeVar("Value")


def shown_moment(moment: Moment, privacy: Privacy, targets: Iterable[Target] = ()) -> Moment:
    """Return a copy of the report data in which `privacy` has replaced or cleaned all names and texts.

    `targets` are what was watched; `privacy` then recognises their addresses in any text.
    """
    shown = moment.shown
    servers = [(one.name, BACKEND) for one in shown.backends] + [(one.name, ROUTER) for one in shown.routers]
    servers += [(name, BACKEND) for kind, name, _ in moment.series if kind == BACKEND]
    listed = [one for view in shown.fleets if view.fleet for one in view.fleet.servers]
    servers += [(one.name, BACKEND) for one in listed] + [(one.name, ROUTER) for one in shown.fleets]
    servers += [(one.group, "group") for one in shown.balance]
    servers += [(one.subject, "group") for one in moment.spells if one.speed is None]
    machines = [one.name for one in shown.nodes]
    machines += [name for kind, name, _ in moment.series if kind == NODE]
    privacy.know(servers, dict.fromkeys(machines), {*_hosts(moment), *_target_hosts(targets)})
    copy: Moment = _copy(moment, "", privacy)
    return replace(copy, series=_keyed(moment.series, privacy), ranges=moment.ranges)


def _keyed(
    series: Mapping[tuple[str, str, str], Value], privacy: Privacy
) -> dict[tuple[str, str, str], Value]:
    return {
        (kind, clean(privacy.machine(name) if kind == NODE else privacy.name(name)), field): values
        for (kind, name, field), values in series.items()
    }


def _hosts(moment: Moment) -> Iterator[str]:
    """Yield the addresses and host names that the snapshot knows of servers and machines."""
    shown = moment.shown
    urls = [one.url for one in shown.backends] + [one.url for one in shown.routers]
    urls += [told.address for one in shown.routers for told in one.told or () if told.address]
    urls += [one.url for one in shown.fleets]
    urls += [one.url for view in shown.fleets if view.fleet for one in view.fleet.servers]
    yield from filter(None, map(_host, urls))
    for node in shown.nodes:
        yield from node.identity.addresses
        yield from filter(None, (node.identity.hostname,))


def _target_hosts(targets: Iterable[Target]) -> Iterator[str]:
    for target in targets:
        yield from filter(None, (_host(target.url or ""),))
        if isinstance(target, NodeTarget) and target.ssh:
            yield from (target.ssh, target.ssh.rpartition("@")[2])


def _host(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def _copy(value: Any, field: str, privacy: Privacy) -> Any:  # noqa: ANN401 - any part of a moment
    """Return a value with all texts in it replaced by what may be shown; `field` is the field that has it."""
    if type(value) is str:  # not an enumeration's word
        return clean(_text(value, field, privacy), _LONGEST)
    if isinstance(value, tuple):
        return tuple(_copy(one, field, privacy) for one in value)
    if isinstance(value, Mapping):
        if field in {"series", "ranges"}:
            return {}
        return {
            clean(privacy.name(key)) if isinstance(key, str) else key: _copy(one, "", privacy)
            for key, one in value.items()
        }
    if not is_record(value) or isinstance(value, Series):
        return value
    parts = {
        name: _copy(getattr(value, name), name, privacy)
        for name in type(value).__match_args__  # all fields: each is a parameter
        if name not in {"history", "load", "processes", "engine_processes"}
    }
    if isinstance(value, NodeIdentity) and not privacy.shows_addresses:
        parts |= {"addresses": (), "hostname": None, "boot_id": None}
    if isinstance(value, NodeView):
        parts["name"] = clean(privacy.machine(value.name))
    if isinstance(value, Alert | Event | Spell) and _is_of_node(value):
        parts["subject"] = clean(privacy.machine(value.subject))
    return copy_record(value, parts)


def _is_of_node(value: Alert | Event | Spell) -> bool:
    if isinstance(value, Spell):
        return value.speed is not None
    about = value.id if isinstance(value, Alert) else value.about
    return about is not None and about.startswith(f"{NODE}:")


def _text(text: str, field: str, privacy: Privacy) -> str:
    if field in _VERSIONS:
        return text
    if field == "url":
        return privacy.url(text)
    if field == "model":
        return privacy.model(text)
    return privacy.machine(text) if field == "nodes" else privacy.name(text)
