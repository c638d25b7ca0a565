"""What of a wall is shown, and a drawn wall: its rows, and what of them reacts to keys and clicks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct, field

from sparktop.analysis.wall import Top
from sparktop.panels.board.wall.trends import Trend
from sparktop.panels.parts.rows import Row

Entry = tuple[str, str]
"""Kind and name of what a line stands for, as in a `PanelKey` of the board."""
STATE = "state"
"""Kind of an entry that is no line: the number of servers or machines in a state, whose word is its name."""


class Spot(Struct, frozen=True):
    """What can be clicked: what it stands for, and its cells, from the panel's upper left corner.

    A line that can be selected may have several rows.
    """

    entry: Entry
    x: int
    y: int
    width: int
    height: int = 1


class Look(Struct):
    """What of a wall is shown, and the texts of its frame."""

    title: Row
    status: Row = field(default_factory=list)
    note: str = ""
    """What limits the figures, or why there are none."""
    is_failed: bool = False
    is_direct: bool = True
    """Whether servers and machines are polled, so that each has a screen of its own."""
    fleet: str = ""
    """Name of the Prometheus; "" for what is watched directly."""
    kind: str = "backend"
    """Chooses the colour of the frame."""
    is_selected: bool = False
    marked: Entry | None = None
    first: int = 0
    """Index of the first line of a long list, as long as nothing in it is marked."""
    words: str = ""
    """The words of the filter."""
    top: Top | None = None
    """The list that is shown in full."""
    opened: str | None = None
    """The group whose servers are shown, or `MACHINES` with `of_machines`."""
    of_machines: bool = False
    trend: Trend | None = None
    """Draws a graph of each group; None where servers have no histories."""


class DrawnWall(Struct):
    """A drawn wall: rows, what can be clicked, and all lines that could be selected, in reading order."""

    rows: list[Row] = field(default_factory=list)
    spots: list[Spot] = field(default_factory=list)
    keys: list[Entry] = field(default_factory=list)
    first: int = 0
    range: str = ""
    """Which lines of how many are in sight; "" where all are."""

    def add(self, row: Row) -> None:
        """Add a row that is not selectable."""
        self.rows.append(row)

    def pick(self, entry: Entry, rows: Sequence[Row], width: int) -> None:
        """Add the rows of a line of `width` cells; a click on any of them selects `entry`."""
        self.spots.append(Spot(entry, 1, 1 + len(self.rows), width, len(rows)))
        self.rows += rows

    def listed(
        self,
        entries: Sequence[Entry],
        draw: Callable[[int, bool], list[Row]],
        room: int,
        look: Look,
        noun: str,
        width: int,
    ) -> None:
        """Add the lines of `entries` that fit into `room` rows, among them the marked one."""
        if room < 1:
            self.keys += entries
            return
        first = max(0, min(look.first, len(entries) - room))
        if look.marked in entries:
            at = entries.index(look.marked)
            first = min(max(first, at - room + 1), at)
        self.first = first
        self.keys += entries
        for index in range(first, min(len(entries), first + room)):
            self.pick(entries[index], draw(index, entries[index] == look.marked), width)
        if len(entries) > room:
            self.range = f"{noun} {first + 1}–{first + room} of {len(entries):,}"
