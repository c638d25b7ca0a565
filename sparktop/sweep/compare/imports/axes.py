"""Series by axis: a file of another tool may have levels of fixed concurrency beside levels at a rate."""

from __future__ import annotations

from dataclasses import replace

from sparktop.model.load import LoadKind
from sparktop.sweep.compare.series import LoadShape, Series

AT_RATES = "at rates"


def by_axis(series: Series) -> list[Series]:
    """Return `series` split so that all levels of a part are on one axis.

    Levels at a rate get the shape of an open loop and, beside others, a name of their own. Definitions are
    kept for the metrics that a part has.
    """
    rates = tuple(one for one in series.levels if one.load.point.kind is LoadKind.RATE)
    others = tuple(one for one in series.levels if one.load.point.kind is not LoadKind.RATE)
    name = f"{series.name} {AT_RATES}" if others else series.name
    parts = [replace(series, levels=others)] if others or not rates else []
    if rates:
        parts.append(replace(series, name=name, levels=rates, shape=LoadShape.OPEN_LOOP))
    return [_with_own_definitions(part) for part in parts]


def _with_own_definitions(series: Series) -> Series:
    used = series.metrics()
    return replace(series, definitions={key: text for key, text in series.definitions.items() if key in used})
