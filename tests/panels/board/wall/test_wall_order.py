"""Groups change places at most every few seconds, at once for another filter, and not under the cursor."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from sparktop.analysis.state import Wall, wall_of_fleet
from sparktop.model.router import Fleet, FleetNode, FleetServer
from sparktop.panels.board.view import HOLD_S
from sparktop.panels.board.wall import Entry, Look, WallOrders


def wall(waits: Mapping[str, float], busy: Mapping[str, float] | None = None, step: float = 1.0) -> Wall:
    """Return a wall of groups with these numbers of waiting requests, and of machines with this GPU use.

    The second server of a group has `step` waiting requests more than the first.
    """
    servers = tuple(
        FleetServer(f"{group}-{n}", f"http://{group}{n}", group, 100.0, waiting=waiting + n * step)
        for group, waiting in waits.items()
        for n in range(2)
    )
    nodes = [FleetNode(name, 100.0, state="busy", gpu_percent=use) for name, use in (busy or {}).items()]
    return wall_of_fleet(Fleet(100.0, 15.0, servers, nodes=tuple(nodes)))


def look(marked: Entry | None = None, words: str = "", opened: str | None = None) -> Look:
    """Return a `Look` with a marked line, a filter or an opened group."""
    return Look([], marked=marked, words=words, opened=opened)


def names(shown: Wall) -> str:
    """Return the names of the groups, from top to bottom."""
    return " ".join(group.name for group in shown.groups)


SWINGING = ({"a": 100.0, "b": 1.0, "c": 0.0}, {"a": 1.0, "b": 100.0, "c": 0.0})


def test_groups_that_take_turns_each_second_change_places_every_few_seconds() -> None:
    """The worst is first at the beginning, and whenever the order changes."""
    orders = WallOrders()
    seen = [names(orders.of(wall(SWINGING[second % 2]), 100.0 + second, look())) for second in range(20)]
    changes = [second for second in range(1, 20) if seen[second] != seen[second - 1]]
    assert changes == [5, 10, 15]
    assert (seen[0], seen[5]) == ("a b c", "b a c")


def test_figures_are_new_while_the_order_holds() -> None:
    """While the order holds, only the places are old, not the figures."""
    orders = WallOrders()
    orders.of(wall(SWINGING[0]), 100.0, look())
    shown = orders.of(wall(SWINGING[1]), 101.0, look())
    assert [(group.name, group.waiting.value) for group in shown.groups] == [
        ("a", 3.0),
        ("b", 201.0),
        ("c", 1.0),
    ]


def test_another_filter_or_an_earlier_moment_orders_at_once() -> None:
    """What the user asks for is not held back."""
    orders = WallOrders()
    assert names(orders.of(wall(SWINGING[0]), 100.0, look())) == "a b c"
    assert names(orders.of(wall(SWINGING[1]), 100.5, look(words="x"))) == "b a c"
    assert names(orders.of(wall(SWINGING[0]), 101.0, look(words="x"))) == "b a c"
    assert names(orders.of(wall(SWINGING[0]), 60.0, look(words="x"))) == "a b c"


def test_the_marked_group_keeps_its_place() -> None:
    """The others move around it, as the rows of the board do."""
    orders = WallOrders()
    marked = look(("wall", "c"))
    orders.of(wall(SWINGING[0]), 100.0, marked)
    worst = {"a": 1.0, "b": 10.0, "c": 1000.0}
    assert names(orders.of(wall(worst), 100.0 + HOLD_S, marked)) == "b a c"
    assert names(orders.of(wall(worst), 100.0 + 2 * HOLD_S, look())) == "c b a"


def test_a_new_group_stands_last_until_the_order_changes_and_one_that_is_gone_leaves() -> None:
    """No line jumps because a group appears or disappears."""
    orders = WallOrders()
    orders.of(wall(SWINGING[0]), 100.0, look())
    assert names(orders.of(wall({"new": 500.0, "c": 0.0, "a": 1.0}), 102.0, look())) == "a c new"
    assert names(orders.of(wall({"new": 500.0, "c": 0.0, "a": 1.0}), 105.0, look())) == "new a c"


@pytest.mark.parametrize("second", [1, 4])
def test_the_servers_of_an_opened_group_and_the_machines_hold_too(second: int) -> None:
    """Each list has an order of its own."""
    orders, opened = WallOrders(), look(opened="a")
    machines = Look([], opened="machines", of_machines=True)
    before = wall({"a": 9.0}, {"x": 90.0, "y": 50.0})
    after = wall({"a": 9.0}, {"x": 10.0, "y": 50.0}, step=-1.0)
    for one in (opened, machines):
        orders.of(before, 100.0, one)

    def servers(at: float) -> list[str]:
        return [one.server.name for group in orders.of(after, at, opened).groups for one in group.servers]

    assert servers(100.0 + second) == ["a-1", "a-0"]
    assert servers(100.0 + HOLD_S) == ["a-0", "a-1"]
    assert [one.name for one in orders.of(after, 100.0 + second, machines).nodes] == ["x", "y"]
    assert [one.name for one in orders.of(after, 100.0 + HOLD_S, machines).nodes] == ["y", "x"]
