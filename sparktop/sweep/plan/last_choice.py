"""The last settings chosen in the sweep editor, kept in a file so that the next session starts with them."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec
from msgspec.structs import replace

from sparktop.files import Place, folder_of, write_whole
from sparktop.model.load import LoadMode
from sparktop.model.text import clean
from sparktop.sweep.plan.draft import AUTO_FORMAT, SENT_BEFORE, SENT_TOGETHER, Draft, DraftKind
from sparktop.sweep.plan.plan import Api, Order
from sparktop.sweep.plan.presets import DEFAULT
from sparktop.sweep.plan.traces.replay import FORMAT_NAMES

_LONGEST = 400
"""Maximum length of a field's text, in characters."""
_MOST_TARGETS = 256
_MOST_BYTES = 256 * 1024
_WORDS: Mapping[str, frozenset[str]] = {
    "kind": frozenset(one.value for one in DraftKind),
    "mode": frozenset(one.value for one in LoadMode),
    "context": frozenset((SENT_BEFORE, SENT_TOGETHER)),
    "trace_format": frozenset((AUTO_FORMAT, *FORMAT_NAMES)),
    "order": frozenset(one.value for one in Order),
    "api": frozenset(one.value for one in Api),
}


def choice_file(env: Mapping[str, str]) -> Path:
    """Return the path of the file with the last settings: `sweep.json` in sparktop's state folder."""
    return folder_of(env, Place.STATE) / "sweep.json"


def recall(path: Path) -> Draft | None:
    """Return the editor's last settings from the file `path`; None if the file is missing or not valid."""
    try:
        with path.open("rb") as stream:
            data = json.loads(stream.read(_MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(data, dict):
        return None
    kept = {name: value for name, value in data.items() if isinstance(value, str)}
    texts = {name: clean(kept[name], _LONGEST) for name in Draft.__struct_fields__ if name in kept}
    texts = {name: text for name, text in texts.items() if text in _WORDS.get(name, {text})}
    texts.pop("targets", None)
    texts.pop("warmup", None)
    if "concurrency" not in texts:
        return None
    listed = data.get("targets")
    names = [one for one in listed if isinstance(one, str)] if isinstance(listed, list) else []
    warmup = data.get("warmup")
    return replace(
        Draft(**texts),  # type: ignore[arg-type]  # what is left are fields that hold texts
        targets=tuple(dict.fromkeys(clean(name, _LONGEST) for name in names[:_MOST_TARGETS])),
        warmup=warmup if isinstance(warmup, bool) else True,
    )


def still_there(draft: Draft, presets: Collection[str], targets: Collection[str]) -> Draft:
    """Return `draft` without what no longer exists.

    A preset that is not in `presets` becomes the default preset; names that are not in `targets` are dropped.
    """
    return replace(
        draft,
        preset=draft.preset if draft.preset in presets else DEFAULT,
        targets=tuple(name for name in draft.targets if name in targets),
    )


def remember(path: Path, draft: Draft) -> str | None:
    """Write the editor's settings to the file `path` atomically; return an error message, None on success."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, msgspec.json.encode(draft).decode())
    except OSError as error:
        return error.strerror or type(error).__name__
    return None
