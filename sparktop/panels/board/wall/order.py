"""The order of the lines of a board's walls, which holds for some seconds so that it can be read."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from sparktop.panels.board.held import HeldOrder
from sparktop.panels.board.wall.trends import GroupTrends

if TYPE_CHECKING:  # a start without a wall needs none of it
    from sparktop.analysis.wall import Wall
    from sparktop.panels.board.wall.drawn import Look

Line = TypeVar("Line")


class WallOrders:
    """The orders of one board's walls, of their opened groups, and of their machines."""

    def __init__(self) -> None:
        """Start without an order: each wall is first shown in its present one, the worst first."""
        self._orders: dict[tuple[str, bool, str | None], HeldOrder] = {}
        self.trends = GroupTrends()
        """What the graphs of groups are drawn from, kept from drawing to drawing."""

    def of(self, wall: Wall, at: float, look: Look) -> Wall:
        """Return `wall` with the lines that `look` shows in the order to show at the time `at` in s."""
        key = (look.fleet, look.of_machines, look.opened)
        order = self._orders.setdefault(key, HeldOrder())
        chosen, held = (look.words, look.top), None if look.marked is None else look.marked[1]

        def ordered(lines: Sequence[Line], name: Callable[[Line], str]) -> tuple[Line, ...]:
            return _ordered(lines, name, order, at, chosen, held)

        if look.of_machines:
            return replace(wall, nodes=ordered(wall.nodes, lambda one: one.name))
        if look.opened is None:
            return replace(wall, groups=ordered(wall.groups, lambda one: one.name))
        groups = [
            replace(one, servers=ordered(one.servers, lambda one: one.server.name))
            if one.name == look.opened
            else one
            for one in wall.groups
        ]
        return replace(wall, groups=tuple(groups))


def _ordered(
    lines: Sequence[Line],
    name: Callable[[Line], str],
    order: HeldOrder,
    at: float,
    chosen: Hashable,
    held: str | None,
) -> tuple[Line, ...]:
    names = order.of(at, list(dict.fromkeys(map(name, lines))), chosen, held)
    places = {one: place for place, one in enumerate(names)}
    return tuple(sorted(lines, key=lambda line: places[name(line)]))
