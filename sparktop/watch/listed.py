"""Servers that files on this machine list, as the file_sd files of a Prometheus do.

A file is a list of `{"targets": ["host:port", …], "labels": {…}}` in JSON or, named .yml or .yaml, in
YAML, replaced by rename when it changes. A listed address is probed with read-only requests, and watched
if an inference server answers there.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from errno import EFBIG, EINVAL
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from msgspec.structs import replace

from sparktop.analysis.placement import address_of
from sparktop.model.engine import EngineSample
from sparktop.model.targets import BackendTarget
from sparktop.model.text import clean, reason_of
from sparktop.store import Store
from sparktop.watch.ways import poll_once

if TYPE_CHECKING:
    from sparktop.watch.ways import Ways


READ_EVERY_S = 60.0
"""Seconds between two readings of the files."""
MOST_FILES, MOST_BYTES, MOST_TARGETS = 64, 1 << 20, 512
"""Most files, most bytes of each file, and most servers of all files together."""
_AT_ONCE = 16
"""Servers that are probed at a time."""
_PROBE_S = 3.0
"""Seconds that a probe may take."""
MOST_NAME_CHARACTERS = 64
"""Most characters of a name."""
_WILDCARD = re.compile(r"[*?[]")
"""What makes a path a pattern."""
_YAML = frozenset({".yml", ".yaml"})
NO_YAML = "YAML needs PyYAML: install sparktop with the extra sparkrun, or PyYAML beside it"


def read_lists(patterns: Iterable[str]) -> tuple[list[BackendTarget], list[str]]:
    """Return the servers in the files that match `patterns`, each once, and a message for each unusable file.

    At most `MOST_FILES` files of at most `MOST_BYTES` are read, and at most `MOST_TARGETS` servers returned;
    a message says what is left out.
    """
    result: dict[str, BackendTarget] = {}
    listed_urls: set[str] = set()
    problems: list[str] = []
    paths: dict[Path, None] = {}
    for pattern in patterns:
        matching = _matching_paths(pattern)
        if not matching and not _WILDCARD.search(pattern):
            problems.append(f"{clean(pattern, 120)}: no such file")
        paths |= dict.fromkeys(matching)
    if len(paths) > MOST_FILES:
        problems.append(f"{len(paths)} files match; the first {MOST_FILES} are used")
    for path in islice(paths, MOST_FILES):
        groups = _read_groups(path)
        if isinstance(groups, str):
            problems.append(f"{clean(path, 120)}: cannot be used: {clean(groups, 120)}")
            continue
        for target in _targets_in(groups):
            listed_urls.add(target.url)
            if len(result) < MOST_TARGETS:
                result.setdefault(target.url, target)
    if len(listed_urls) > MOST_TARGETS:
        problems.append(f"{len(listed_urls)} servers listed; the first {MOST_TARGETS} are used")
    return list(result.values()), problems


def _matching_paths(pattern: str) -> list[Path]:
    """Return the paths that match a pattern, whose folders may have wildcards, too."""
    if os.path.exists(pattern):  # noqa: PTH110 - Path.exists raises an error where folders are closed
        return [Path(pattern)]
    parts = Path(pattern).parts
    first_wild = next((index for index, part in enumerate(parts) if _WILDCARD.search(part)), len(parts))
    if first_wild == len(parts):
        return []
    wild = re.sub(r"\*+", "*", "/".join(parts[first_wild:]))  # ** would search everything below
    return sorted(Path(*parts[:first_wild]).glob(wild))


def _read_groups(path: Path) -> list[object] | str:
    """Return the groups of targets in a file, or why it cannot be used."""
    try:
        body = read_file(path, MOST_BYTES)
        groups = load_yaml(body) if path.suffix in _YAML else json.loads(body)
    except ImportError:
        return NO_YAML
    except OSError as error:
        return reason_of(error)
    except (ValueError, RecursionError):
        return f"not valid {'YAML' if path.suffix in _YAML else 'JSON'}"
    return groups if isinstance(groups, list) else "no list of targets, as file_sd has"


def read_file(path: Path, most_bytes: int) -> bytes:
    """Return the content of a regular file.

    Raises:
        OSError: it cannot be read, is no regular file, or is larger than `most_bytes`.
    """
    if not path.is_file():
        raise OSError(EINVAL, "not a regular file")  # opening a pipe would wait for its writer
    with path.open("rb") as stream:
        body = stream.read(most_bytes + 1)
    if len(body) > most_bytes:
        raise OSError(EFBIG, f"larger than {most_bytes >> 20} MiB")
    return body


def load_yaml(body: bytes) -> object:
    """Return what a YAML file holds.

    Raises:
        ValueError: it is not valid YAML.
        ImportError: PyYAML is missing.
    """
    yaml: Any = importlib.import_module("yaml")
    try:
        return yaml.load(body, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except Exception as error:  # a tag such as !!bool raises what its conversion raises
        raise ValueError from error


def _targets_in(groups: Sequence[object]) -> Iterator[BackendTarget]:
    """Yield the usable targets in the groups of a file."""
    for group in groups:
        if not isinstance(group, dict) or not isinstance(group.get("targets"), list):
            continue
        given_labels = group.get("labels")
        labels = given_labels if isinstance(given_labels, dict) else {}
        model, namespace = _text(labels.get("model_name")), _text(labels.get("namespace"))
        group_name = clean(f"{model} {namespace}".rstrip(), MOST_NAME_CHARACTERS) if model else None
        for address in group["targets"]:
            url = _target_url(address, labels)
            if url is not None:
                yield BackendTarget(clean(address, MOST_NAME_CHARACTERS), url, group=group_name)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _target_url(address: object, labels: Mapping[object, object]) -> str | None:
    """Return the URL of a target, without the usual path of a metrics page; None for anything unusable."""
    scheme, path = labels.get("__scheme__", "http"), labels.get("__metrics_path__", "/metrics")
    if not isinstance(address, str) or "/" in address or not isinstance(path, str):
        return None
    if scheme not in ("http", "https"):  # a list has no hash
        return None
    url = f"{scheme}://{address}{path.removesuffix('/metrics')}".rstrip("/")
    try:
        parts = urlsplit(url)
        has_server = parts.hostname is not None and parts.port != 0
    except ValueError:
        return None
    is_plain = clean(url, 300) == url and " " not in url and parts.username is None and not parts.query
    return url if has_server and is_plain else None


async def probe_files(
    patterns: Sequence[str],
    ways: Ways,
    store: Store,
    watch: Callable[[Sequence[BackendTarget]], None],
) -> None:
    """Read the files that match `patterns` once, and probe the servers that are not watched yet.

    `watch` is called with new servers that answer; a message about a file or its servers is an event.
    """
    note = partial(store.note, "target files")
    listed, problems = await asyncio.to_thread(read_lists, patterns)
    for problem in problems:
        note(problem)
    watched = {address_of(target.url) for target in store.targets() if target.url}
    unwatched = [target for target in listed if address_of(target.url) not in watched]
    answered = await find_answering(ways, unwatched)
    if answered:
        watch(answered)
    files = clean(", ".join(patterns), 200)
    if listed and len(unwatched) == len(listed) and not answered:
        note(f"{files}: no inference server answers there (addresses listed: {len(listed)})")
    if not listed and not problems:
        note(f"no servers in {files}")


async def follow_files(
    patterns: Sequence[str],
    ways: Ways,
    store: Store,
    watch: Callable[[Sequence[BackendTarget]], None],
    sleep: Callable[[float], Awaitable[None]],
) -> None:
    """Read the files that match `patterns` again and again, and watch the servers that answer."""
    while True:
        await probe_files(patterns, ways, store, watch)
        await sleep(READ_EVERY_S)


async def find_answering(ways: Ways, targets: Sequence[BackendTarget]) -> list[BackendTarget]:
    """Return those targets at which an inference server answers, with the engine that it is."""
    answered: list[BackendTarget] = []
    for start in range(0, len(targets), _AT_ONCE):
        polled = targets[start : start + _AT_ONCE]
        answered += [
            replace(target, engine=reading.engine)
            for target, reading in await poll_once(ways, polled, _PROBE_S)
            if isinstance(reading, EngineSample)
        ]
    return answered
