"""The targets of another tool's benchmark: their names, and the monitored server or router that each is."""

from __future__ import annotations

from dataclasses import field
from urllib.parse import urlsplit

from sparktop.analysis.deployments import address_of
from sparktop.model.snapshot import Snapshot
from sparktop.model.text import clean
from sparktop.sweep.follow.lines import Asked
from sparktop.sweep.plan.plan import SweepTarget, TargetKind
from sparktop.values import dataclass

_Identity = tuple[str, str, str, int, int | None]


@dataclass(slots=True, eq=False)
class FollowedTargets:
    """The targets of a followed benchmark that are known so far, each with a unique name.

    A name stands for one address, model and output length.
    """

    by_name: dict[str, SweepTarget] = field(default_factory=dict)
    _names: dict[_Identity, str] = field(default_factory=dict)
    _depths: dict[tuple[str, int, int], int] = field(default_factory=dict)
    """Context tokens of each level, by (name, concurrency, all prompt tokens)."""

    def name(self, asked: Asked, snapshot: Snapshot | None) -> str:
        """Return the name of the target that receives the requests `asked`; a new target gets a new name.

        Levels of the same load that differ in context length count as different targets, because a table
        has only one row for each load of a target.
        """
        place = _name_of(asked, snapshot)
        whole = (asked.url, asked.label, asked.model, asked.output_tokens, None)
        name = self._names.get(whole) or self._new_name(
            whole, (place, f"{place} {asked.model}", f"{place} tg {asked.output_tokens}"), asked, snapshot
        )
        level = (name, asked.concurrency, asked.all_prompt_tokens)
        if self._depths.setdefault(level, asked.context_tokens) == asked.context_tokens:
            return name
        apart = (*whole[:-1], asked.context_tokens)
        deep = f"{name} depth {asked.context_tokens}"
        return self._names.get(apart) or self._new_name(apart, (deep,), asked, snapshot)

    def _new_name(
        self, identity: _Identity, wanted: tuple[str, ...], asked: Asked, snapshot: Snapshot | None
    ) -> str:
        known = [one for one in self._names if one[:2] == identity[:2]]
        same_model = any(one[2] == identity[2] for one in known)
        choices = wanted if not known else wanted[-1:] if same_model else wanted[1:]
        numbered = (f"{choices[-1]} ({number})" for number in range(2, len(self.by_name) + 3))
        name = next(one for one in (*choices, *numbered) if one not in self.by_name)
        self._names[identity] = name
        self.by_name[name] = placed(SweepTarget(name, asked.url, model=asked.model or None), snapshot)
        return name

    def place(self, snapshot: Snapshot) -> bool:
        """Update which server or router of `snapshot` each target is; return whether any changed."""
        found = {name: placed(one, snapshot) for name, one in self.by_name.items()}
        changed = found != self.by_name
        self.by_name = found
        return changed


def placed(target: SweepTarget, snapshot: Snapshot | None) -> SweepTarget:
    """Return `target` with the URL and kind of the watched server or router at the target's address.

    If no watched server or router has this address, return `target` unchanged.
    """
    address = address_of(target.url)
    if snapshot is None or address is None:
        return target
    routers = (view.url for view in snapshot.routers if address_of(view.url) == address)
    backends = (view.url for view in snapshot.backends if address_of(view.url) == address)
    if (url := next(routers, None)) is not None:
        kind = TargetKind.ROUTER
    elif (url := next(backends, None)) is not None:
        kind = TargetKind.ENGINE
    else:
        return target
    return SweepTarget(target.name, url, kind, target.model)


def _name_of(asked: Asked, snapshot: Snapshot | None) -> str:
    """Return the tool's label of a target, else the name of the monitored server, else host and port."""
    if asked.label:
        return asked.label
    address = address_of(asked.url)
    if snapshot is not None and address is not None:
        watched = [(view.name, view.url) for view in snapshot.routers]
        watched += [(view.name, view.url) for view in snapshot.backends]
        for name, url in watched:
            if address_of(url) == address:
                return name
    return clean(urlsplit(asked.url).netloc or "somewhere", 60)
