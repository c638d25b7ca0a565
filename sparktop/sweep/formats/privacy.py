"""Removes from a sweep's result what a report must not show: secrets, addresses, and on request names.

Every format is written from the changed copy of the result, so no format can leak what the copy lacks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from sparktop.report.privacy import BACKEND, ROUTER, Privacy
from sparktop.sweep.compare.series import Series
from sparktop.sweep.plan.plan import TargetKind
from sparktop.sweep.result.results import SweepResult

_FIXED = re.compile(
    "schema|status|kind|mode|order|api|loop|code|tokens_from|fresh_by|router_overhead_from|winner_vs|metric"
    "|started_at|finished_at|sparktop|preset|conditions|verdict"
)
"""Fields that hold words of sparktop's own, times and codes."""
_BY_NAME = re.compile(
    "served_by|runs_split|busy_batch|backends|values|ranges|changes|holds_to|definitions|balance"
)
"""Fields whose keys are names of servers or targets, at any depth."""
_MACHINES = {"hardware", "machines"}
"""Fields whose keys are names of machines."""
_WORDS = {TargetKind.ENGINE: BACKEND, TargetKind.ROUTER: ROUTER}


class SweepPrivacy(Privacy):
    """Removes from results and series of sweeps what a report must not show."""

    def of_result(self, result: SweepResult) -> SweepResult:
        """Return a copy of a sweep's result that has only what the report may show."""
        self.know(*_names_of(result))
        return SweepResult.model_validate(self._tree(result.to_json(), "", by_name=False))

    def of_series(self, series: Sequence[Series]) -> list[Series]:
        """Return copies of series that have only what the report may show; published tables stay as is."""
        own = [one for one in series if not one.published]
        self.know([(one.name, BACKEND) for one in own], [])
        files = {
            name: f"file-{number}" for number, name in enumerate(dict.fromkeys(s.source for s in own), 1)
        }
        return [one if one.published else self._series(one, files) for one in series]

    def _series(self, one: Series, files: Mapping[str, str]) -> Series:
        return replace(
            one,
            name=self.name(one.name),
            source=files[one.source] if self.anonymous else one.source,
            model=None if one.model is None else self.model(one.model),
            notes=tuple(map(self.text, one.notes)),
            refused={load: self.text(words) for load, words in one.refused.items()},
            engines=tuple(map(self.name, one.engines)),
            levels=tuple(replace(level, label=None) for level in one.levels)
            if self.anonymous
            else one.levels,
        )

    def _tree(self, value: Any, key: str, *, by_name: bool) -> Any:  # noqa: ANN401 - any JSON value
        """Return a JSON value of a result in which texts and names are replaced by what the report may show.

        `key` is the name of the field that holds `value`. If `by_name` is True, the keys of `value` are
        names of servers or machines, which are replaced too.
        """
        if isinstance(value, dict):
            by_name = by_name or _BY_NAME.fullmatch(key) is not None
            return {
                self._key(name, key, by_name=by_name): self._tree(one, name, by_name=by_name)
                for name, one in value.items()
            }
        if isinstance(value, list):
            if key == "joined_from" and self.anonymous:
                return [f"file-{number}" for number in range(1, len(value) + 1)]
            return [self._tree(one, key, by_name=by_name) for one in value]
        return self._value(value, key) if isinstance(value, str) else value

    def _key(self, name: str, of: str, *, by_name: bool) -> str:
        if of in _MACHINES:
            return self._machines.get(name, name)
        return self._names.get(name, self._machines.get(name, name)) if by_name else name

    def _value(self, text: str, key: str) -> str:
        if _FIXED.fullmatch(key):
            return text
        if key == "url":
            return self.url(text)
        if key == "path":
            return "" if self.anonymous else text
        return self.model(text) if key == "model" else self.name(text)


def _names_of(result: SweepResult) -> tuple[list[tuple[str, str]], list[str]]:
    """Return (list of (name of a target or server, its kind), names of machines), both in a fixed order."""
    levels = [level for target in result.targets for level in target.levels]
    servers = {name for level in levels for name in level.known_servers}
    servers |= {name for level in levels for split in level.runs_split for name in split}
    known = {target.name for target in result.targets}
    named = [(target.name, _WORDS[target.kind]) for target in result.targets]
    named += [(name, BACKEND) for name in sorted(servers - known)]
    machines = {name for target in result.targets for name in target.machines}
    return named, sorted(machines.union(*(level.hardware for level in levels)))
