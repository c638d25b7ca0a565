"""Checks what the presets of a configuration file say about their load, beyond the types of the values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from sparktop.errors import UsageError
from sparktop.model.targets import SweepSettings
from sparktop.sweep.plan.arrivals import parse_pattern, rates_or_auto
from sparktop.sweep.plan.conversations.reading import find_conversations
from sparktop.sweep.plan.plan import SweepTarget
from sparktop.sweep.plan.presets import make_plan
from sparktop.sweep.plan.traces.replay import parse_range

_OPTION = re.compile(r"--([a-z-]+)")
_KEYS = {
    "duration": "duration_s",
    "depth": "depths",
    "header": "headers",
    "timeout": "timeout_s",
}
"""Keys of a preset that are called otherwise than the options of the command line."""
_AXES = ("trace", "rate", "agents", "concurrency")
_ANY = SweepTarget("any", "http://127.0.0.1")


def preset_faults(preset: SweepSettings) -> Iterator[tuple[str, str]]:
    """Yield (key, message) for each setting of a preset that no sweep can use; a trace is read once."""
    values: tuple[tuple[str, str | None, Callable[[str], object]], ...] = (
        ("rate", preset.rate, rates_or_auto),
        ("arrivals", preset.arrivals, parse_pattern),
        ("workload", preset.workload, find_conversations),
        ("trace_range", preset.trace_range, parse_range),
    )
    is_usable = True
    for key, text, parse in values:
        if text is None:
            continue
        try:
            parse(text)
        except UsageError as error:
            is_usable = False
            yield key, _named(str(error))
    if not is_usable:
        return
    try:
        make_plan(preset, (_ANY,))
    except UsageError as error:
        yield _key(str(error), preset), _named(str(error))


def _key(message: str, preset: SweepSettings) -> str:
    """Return the key of the preset that an error message is about; its axis if the message names no key."""
    for key in ("trace", "prompts"):
        if (path := getattr(preset, key)) is not None and path in message:
            return key
    for option in _OPTION.findall(message):
        key = _key_of(option)
        if getattr(preset, key, None):
            return key
    return next((key for key in _AXES if getattr(preset, key)), "name")


def _named(message: str) -> str:
    """Return an error message of the command line with the keys of the configuration for its options."""
    return _OPTION.sub(lambda found: _key_of(found[1]), message)


def _key_of(option: str) -> str:
    return _KEYS.get(option, option.replace("-", "_"))
