"""Actions of the keys that show the balance of a group of backends.

The state of the overview that these actions share with other actions is here too.
"""

from __future__ import annotations

from collections.abc import Callable

from sparktop.analysis.state import verdict
from sparktop.config.keys import KEYS, Key
from sparktop.model.balance import BalanceWord, leading
from sparktop.model.snapshot import Snapshot
from sparktop.panels.board.layout import PanelKey
from sparktop.panels.board.view import View
from sparktop.ui.screens.base import BaseScreen

_GRAVITY = tuple(word for word in BalanceWord if word.bad) + tuple(
    word for word in BalanceWord if not word.bad
)
"""All verdicts on a group's balance, bad ones first, each in the order of the enum."""


class BalanceActions(BaseScreen[None]):
    """A screen that can show one group's balance alone, or the evidence for its verdict."""

    want_group: Callable[[str], str] | None = None
    """Begins to read a group of a Prometheus sample by sample, and returns a message; None as below."""
    look_closer: Callable[[str], str] | None = None
    """Begins to poll the servers of a group directly, and returns a message; None if nothing is polled."""

    def __init__(self) -> None:
        """Start with all panels shown and none selected."""
        super().__init__()
        self._scroll = 0
        self._first_row = 0
        self._board_height = 0
        self._room = 0
        """Rows of the screen for the board."""
        self.key_table: tuple[Key, ...] = KEYS
        self.view = View()
        self.selected: PanelKey | None = None
        self.zoomed: PanelKey | None = None
        self._why_on_board = False
        """Whether the evidence was opened from the board, to which Esc then returns."""

    @property
    def shown(self) -> Snapshot | None:
        """The snapshot on screen; None before the first."""
        raise NotImplementedError

    @property
    def on_processes(self) -> bool:
        """Whether a node is shown alone, so that sorting and filtering apply to its processes."""
        return self.zoomed is not None and self.zoomed.kind in {"node", "processes"}

    def show_as(self, view: View) -> None:
        """Draw with another view: preset, boxes, sort orders and filters."""
        raise NotImplementedError

    def action_back(self) -> None:
        """Go back by one step of navigation; a subclass defines the steps."""
        raise NotImplementedError

    def _paint(self) -> None:
        raise NotImplementedError

    def _leave(self) -> None:
        raise NotImplementedError

    def action_zoom(self) -> None:
        """Show the selected panel alone; if a panel is shown alone, show all panels again."""
        raise NotImplementedError

    def action_select(self, step: int) -> None:
        """Move the selection over the panels: 1 to the next panel, -1 to the previous one."""
        raise NotImplementedError

    def in_header(self, kind: str) -> PanelKey | None:
        """Return the "node" or "backend" that the header's words are about; None if it is neither."""
        if self.shown is None:
            return None
        views = self.shown.nodes if kind == "node" else self.shown.backends
        subject = verdict(self.shown).subject
        return PanelKey(kind, subject) if subject in {view.name for view in views} else None

    def _group_keys(self) -> list[tuple[str, str]]:
        """Return (key, text) pairs that the footer shows first while a group is shown alone.

        The list is empty while no group is shown alone.
        """
        if self.zoomed is None or not self._on_group:
            return []
        shown = {key.name: key.shown for key in self.key_table}
        several = self.shown is not None and len(self.shown.balance) > 1
        if self.zoomed.kind == "balance":
            closer = [(shown["open"], "look closer")] if self._too_slow() is not None else []
            keys = [*closer, (shown["why"], "why?")]
        else:
            keys = [(shown["why"], "picture")]
        return [*keys, *([(shown["turn"], "next group")] if several else [])]

    def action_balance(self) -> None:
        """Show the balance of a group alone; if a group is shown alone, show all panels again."""
        if self._on_group:
            self._leave()
        elif (group := self._chosen_group()) is not None:
            self.zoomed = self.selected = PanelKey("balance", group)
            self._scroll = 0
        self._paint()

    def action_why(self) -> None:
        """Show the evidence for a group's verdict; if it is shown already, show the balance again."""
        self._why_on_board = self.zoomed is None
        if self.zoomed is not None and self._on_group:
            kind = "evidence" if self.zoomed.kind == "balance" else "balance"
            self.zoomed = PanelKey(kind, self.zoomed.name)
        elif (group := self._chosen_group()) is not None:
            self.selected = PanelKey("balance", group)
            self.zoomed = PanelKey("evidence", group)
        self._scroll = 0
        self._paint()

    @property
    def _on_group(self) -> bool:
        return self.zoomed is not None and self.zoomed.kind in {"balance", "evidence"}

    def _chosen_group(self) -> str | None:
        """Return the name of the selected group, or of the selected backend's group.

        Otherwise return the group with the worst verdict. If there is no group, notify the user and return
        None.
        """
        groups = self.shown.balance if self.shown is not None else ()
        if not groups:
            self.notify("no group of two or more backends to compare", timeout=2)
            return None
        name = (self.zoomed or self.selected or PanelKey("", "")).name
        chosen = [one for one in groups if name in {one.group, one.lanes_of, *one.backends}]
        first = leading(chosen or groups) or chosen
        return min(first, key=lambda one: _GRAVITY.index(one.word)).group

    def action_open(self) -> None:
        """Show the selected panel alone; if a balance is shown alone, show the evidence for its verdict.

        If the samples of a group are too seldom for a verdict on swings, poll its servers directly instead.
        """
        if self._on_group and (group := self._too_slow()) is not None:
            self.notify(
                self.look_closer(group) if self.look_closer else "nothing is polled here", markup=False
            )
        elif self._on_group:
            self.action_why()
        else:
            self.action_zoom()

    def _too_slow(self) -> str | None:
        """Return the group that is shown alone, if it is judged by samples too seldom to see a swing."""
        name = "" if self.zoomed is None else self.zoomed.name
        groups = self.shown.balance if self.shown is not None else ()
        slow = (one.group for one in groups if one.group == name and one.is_slow)
        return next(slow, None)

    def action_turn(self, step: int) -> None:
        """Change to the next (1) or previous (-1) group, or move the selection if no group is shown alone."""
        groups = [balance.group for balance in self.shown.balance] if self.shown is not None else []
        zoomed = self.zoomed
        if zoomed is None or not self._on_group or zoomed.name not in groups:
            self.action_select(step)
            return
        name = groups[(groups.index(zoomed.name) + step) % len(groups)]
        self.zoomed = PanelKey(zoomed.kind, name)
        self.selected = PanelKey("balance", name)
        self._scroll = 0
        self._paint()
