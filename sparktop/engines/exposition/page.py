"""The samples of a metrics page, as values beside a description of where they stand.

The next page of a server has the same samples with other values. So what follows from names and labels alone
is computed once (`Page.kept`), and what follows from values is computed again only where they have changed
(`Page.changed_since`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from typing import TypeAlias, TypeVar, cast

from sparktop.engines.exposition.labels import Family, Labels

Places: TypeAlias = Mapping[Labels, int]
"""Index in `Page.values` of each sample of one metric name, by labels."""
_T = TypeVar("_T")


class Page(Mapping[str, Family]):
    """The samples of a metrics page by metric name; a view for those who need single names.

    `places` and `kept` are shared by all pages of the same layout.
    """

    __slots__ = ("changed", "kept_here", "kept_of_layout", "places", "turn", "values_read")

    def __init__(
        self,
        places: Mapping[str, Places],
        values: list[float],
        kept: dict[Hashable, object] | None = None,
    ) -> None:
        """Begin with the values of a first page."""
        self.places = places
        self.values_read = values
        """The value of each sample, in the order of the page."""
        self.turn = 1
        """Number of pages whose values have been here."""
        self.changed: Collection[str] = places.keys()
        """Metric names whose values the newest page changed."""
        self.kept_of_layout: dict[Hashable, object] = {} if kept is None else kept
        self.kept_here: dict[Hashable, object] = {}

    @classmethod
    def of(cls, families: Mapping[str, Family]) -> Page:
        """Return `families` as a page; a page is returned as it is."""
        if isinstance(families, Page):
            return families
        places: dict[str, Places] = {}
        values: list[float] = []
        for name, family in families.items():
            places[name] = {labels: len(values) + index for index, labels in enumerate(family)}
            values += family.values()
        return cls(places, values)

    def kept(self, key: Hashable, make: Callable[[], _T]) -> _T:
        """Return what `make` returned when first called for `key`; it may depend on names and labels only."""
        found = self.kept_of_layout.get(key)
        if found is None:
            found = self.kept_of_layout[key] = make()
        return cast("_T", found)

    def own(self, key: Hashable, make: Callable[[], _T]) -> _T:
        """Return what `make` returned when first called for `key` on this page; it may be changed later."""
        found = self.kept_here.get(key)
        if found is None:
            found = self.kept_here[key] = make()
        return cast("_T", found)

    def changed_since(self, turn: int) -> Collection[str]:
        """Return the metric names whose values may have changed since the page with the number `turn`."""
        if turn == self.turn:
            return ()
        return self.changed if turn == self.turn - 1 else self.places.keys()

    def __getitem__(self, name: str) -> Family:
        """Return the samples of a metric name."""
        values = self.values_read
        return {labels: values[index] for labels, index in self.places[name].items()}

    def __contains__(self, name: object) -> bool:
        """Return whether a metric name is on the page."""
        return name in self.places

    def __iter__(self) -> Iterator[str]:
        """Yield the metric names."""
        return iter(self.places)

    def __len__(self) -> int:
        """Return the number of metric names."""
        return len(self.places)
