"""A setting as the options menu shows it."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct


class Setting(Struct, frozen=True):
    """A setting as one line of the menu: its name, its present value and the function that changes it."""

    name: str
    value: Callable[[], str]
    """Returns the present value as text."""
    change: Callable[[int], None]
    """Changes the setting: to its next value (1), its previous value (-1), or at Enter (0) to its next value,
    with the first value after the last."""
    help: str
    """What the setting means, in a sentence or two."""
    key: str = ""
    """The key that changes the setting without the menu; "" if there is none."""
    live: bool = True
    """Whether a change takes effect at once; otherwise when sparktop is started again."""
    file_name: str = ""
    """Name of the setting in the configuration file; "" if it is not stored there."""
    default: str = ""
    """The default value as text; "" if there is none."""
    changed: Callable[[], bool] = lambda: False
    """Returns whether the value was changed and not saved yet."""


class Tab(Struct, frozen=True):
    """A page of the menu: its title and its settings."""

    title: str
    settings: tuple[Setting, ...]
