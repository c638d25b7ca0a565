"""Removes from a result what a report must not show: secrets, addresses, and on request names.

Every format is written from the changed copy of the result, so no format can leak what the copy lacks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import PurePath
from typing import Any

from sparktop.sweep.compare.series import Series
from sparktop.sweep.plan.plan import TargetKind
from sparktop.sweep.result.results import SweepResult

ADDRESS, SECRET, PATH = "(address)", "(secret)", "(path)"
"""Words in the place of what is left out."""
_URL = re.compile(r"\b[a-zA-Z][a-zA-Z0-9+.-]*://[^\s'\"`<>|)\]}]+")
_BARE = re.compile(r"^([^:/]*://)(?:[^/?#]*@)?([^?#]*).*$")
_ADDRESS = re.compile(
    r"(?<![\w.])(?:(?:\d{1,3}\.){3}\d{1,3}|\[[0-9a-fA-F:.%]{2,}\]|(?:[0-9a-fA-F]{0,4}:){3,}[0-9a-fA-F]{0,4}"
    r"|[0-9a-fA-F]{1,4}::[0-9a-fA-F:]*"
    r"|[\w-]+(?:\.[\w-]+)*\.(?:local|lan|internal|home|arpa)|localhost)(?::\d+)?(?![\w])"
)
_SECRET = re.compile(
    r"(?i)\b(?:bearer|basic)\s+[^\s'\"`,;]+|\b(?:sk|hf|ghp|glpat|xox[a-z])[-_][\w-]{6,}"
    r"|\b(?:[\w-]*api[-_ ]?key|authorization|password|passwd|secret|token|x-[\w-]+)"
    r"(?:\s+provided)?['\"]?\s*[:=]\s*['\"]?(?:(?:bearer|basic)\s+)?[^\s'\"`,;]+"
)
_PATH = re.compile(r"(?<![\w/.:<])(?:~|\.{1,2})?/[\w.@+-][^\s'\"`,;:)]*|\b[A-Za-z]:\\[^\s'\"`,;)]+")
_FIXED = re.compile(
    "schema|status|kind|mode|order|api|loop|code|tokens_from|fresh_by|router_overhead_from|winner_vs|metric"
    "|started_at|finished_at|sparktop|preset|conditions|verdict"
)
"""Fields that hold words of sparktop's own, times and codes."""
_BY_NAME = re.compile(
    "served_by|runs_split|busy_batch|backends|values|ranges|changes|holds_to|definitions|balance"
)
"""Fields whose keys are names of servers or targets, at any depth."""
_MACHINES = "hardware"
_FEW_SLASHES = 1
"""A model's name may have one slash, between its publisher and its own name; a path has more."""


@dataclass(slots=True)
class Privacy:
    """Removes from results and series what a report must not show.

    URLs are kept only if `addresses` is True and `anonymous` is False. With `anonymous`, numbered names also
    replace the real names of targets, servers and machines.
    """

    addresses: bool = False
    anonymous: bool = False
    _names: dict[str, str] = field(default_factory=dict, init=False)
    """What targets and servers are called in the report, by name."""
    _machines: dict[str, str] = field(default_factory=dict, init=False)
    _known: re.Pattern[str] | None = field(default=None, init=False)
    """Any of the names within a text."""

    def of_result(self, result: SweepResult) -> SweepResult:
        """Return a copy of a sweep's result that has only what the report may show."""
        self._know(*_names_of(result))
        return SweepResult.model_validate(self._tree(result.to_json(), "", by_name=False))

    def of_series(self, series: Sequence[Series]) -> list[Series]:
        """Return copies of series that have only what the report may show; published tables stay as is."""
        own = [one for one in series if not one.published]
        self._know([(one.name, TargetKind.ENGINE) for one in own], [])
        files = {
            name: f"file-{number}" for number, name in enumerate(dict.fromkeys(s.source for s in own), 1)
        }
        return [one if one.published else self._series(one, files) for one in series]

    def _series(self, one: Series, files: Mapping[str, str]) -> Series:
        return replace(
            one,
            name=self._name(one.name),
            source=files[one.source] if self.anonymous else one.source,
            model=None if one.model is None else self._model(one.model),
            notes=tuple(map(self._text, one.notes)),
            refused={load: self._text(words) for load, words in one.refused.items()},
            engines=tuple(map(self._name, one.engines)),
            levels=tuple(replace(level, label=None) for level in one.levels)
            if self.anonymous
            else one.levels,
        )

    def _know(self, servers: Iterable[tuple[str, TargetKind]], machines: Iterable[str]) -> None:
        """Choose the names that the report uses for `servers` and `machines`.

        In an anonymous report these are numbered names such as "backend-1". A machine with the same name
        as a server gets the server's number ("node-1").
        """
        for name, kind in servers:
            word = "router" if kind is TargetKind.ROUTER else "backend"
            if name not in self._names:
                number = 1 + sum(alias.startswith(word) for alias in self._names.values())
                self._names[name] = f"{word}-{number}" if self.anonymous else _clean_name(name)
        same = {
            name: self._names[name].replace("backend-", "node-") for name in machines if name in self._names
        }
        free = (alias for number in count(1) if (alias := f"node-{number}") not in same.values())
        for name in machines:
            alias = same.get(name) or next(free)
            self._machines[name] = alias if self.anonymous else _clean_name(name)
        known = sorted({*self._names, *self._machines}, key=len, reverse=True)
        words = "|".join(re.escape(name) for name in known if name)
        self._known = re.compile(rf"(?<![\w.-])(?:{words})(?![\w-])") if words else None

    def _name(self, name: str) -> str:
        return self._names.get(name) or self._text(name)

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
            return [self._tree(one, key, by_name=by_name) for one in value]
        return self._value(value, key) if isinstance(value, str) else value

    def _key(self, name: str, of: str, *, by_name: bool) -> str:
        if of == _MACHINES:
            return self._machines.get(name, name)
        return self._names.get(name, self._machines.get(name, name)) if by_name else name

    def _value(self, text: str, key: str) -> str:
        if _FIXED.fullmatch(key):
            return text
        if key == "url":
            return _bare(text) if self.addresses and not self.anonymous else ""
        if key == "model":
            return self._model(text)
        if text in self._names:
            return self._name(text)
        return self._text(text)

    def _model(self, name: str) -> str:
        """Return a model's name without secrets.

        In an anonymous report, the folder that the model was loaded from is removed, too.
        """
        name = _SECRET.sub(SECRET, name)
        is_path = name.startswith(("/", "~", ".")) or "\\" in name or name.count("/") > _FEW_SLASHES
        return PurePath(name.replace("\\", "/")).name or name if self.anonymous and is_path else name

    def _text(self, text: str) -> str:
        """Return a text without secrets, and without other things that the report may not show."""
        text = _SECRET.sub(SECRET, _URL.sub(self._url, text))
        if self.addresses and not self.anonymous:
            return text
        text = _ADDRESS.sub(lambda found: found[0] if found[0] in self._names else ADDRESS, text)
        if not self.anonymous:
            return text
        if self._known is not None:
            text = self._known.sub(lambda found: {**self._machines, **self._names}[found[0]], text)
        return _PATH.sub(PATH, text)

    def _url(self, found: re.Match[str]) -> str:
        return _bare(found[0]) if self.addresses and not self.anonymous else ADDRESS


def _names_of(result: SweepResult) -> tuple[list[tuple[str, TargetKind]], list[str]]:
    """Return (names of targets and servers, each with its kind; names of machines), in a fixed order."""
    levels = [level for target in result.targets for level in target.levels]
    servers = {name for level in levels for name in level.known_servers}
    servers |= {name for level in levels for split in level.runs_split for name in split}
    known = {target.name for target in result.targets}
    named = [(target.name, target.kind) for target in result.targets]
    named += [(name, TargetKind.ENGINE) for name in sorted(servers - known)]
    return named, sorted({name for level in levels for name in level.hardware})


def _clean_name(name: str) -> str:
    """Return a name with passwords and keys in it removed."""
    return _SECRET.sub(SECRET, _URL.sub(lambda found: _bare(found[0]), name))


def _bare(url: str) -> str:
    """Return a URL without user, password, query and fragment; `ADDRESS` if it may hold a secret."""
    bare = _BARE.sub(r"\1\2", url)
    return ADDRESS if "@" in bare else bare
