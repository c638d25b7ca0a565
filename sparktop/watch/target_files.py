"""Servers listed in files of Prometheus' file_sd format, such as the one that Ray writes.

A file is a list of `{"targets": ["host:port", …], "labels": {…}}` in JSON or, named .yml or .yaml, in YAML,
replaced by rename when it changes. A listed address is probed with read-only requests, and watched if an
inference server answers there.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from msgspec.structs import replace

from sparktop.model.engine import EngineSample
from sparktop.model.targets import BackendTarget
from sparktop.model.text import clean
from sparktop.store import Store

if TYPE_CHECKING:
    from sparktop.watch.ways import Ways

AGAIN_S = 60.0
MOST_FILES, MOST_BYTES, MOST_TARGETS = 64, 1 << 20, 512
_AT_ONCE = 16
_DEADLINE_S = 3.0
_SETTLED_S = 2.0
"""When a file that is being rewritten is whole again."""
_NAME = 64
_WILDCARD = re.compile(r"[*?[]")
_YAML = frozenset({".yml", ".yaml"})
_NO_JSON_TEXT, _NO_YAML_TEXT = "not valid JSON", "not valid YAML"
_NO_LIST = "no list of targets, as file_sd has"
_HALF_WRITTEN = frozenset({_NO_JSON_TEXT, _NO_YAML_TEXT, _NO_LIST})
"""What is found wrong with a file that is being rewritten: half of a YAML file may be valid YAML."""
NO_YAML = "YAML needs PyYAML: install sparktop with the extra sparkrun, or PyYAML beside it"


def listed_targets(patterns: Iterable[str]) -> tuple[list[BackendTarget], list[str]]:
    """Return the servers in the files that match `patterns`, each once, and a message for each unusable file.

    At most `MOST_FILES` files of at most `MOST_BYTES` are read, and at most `MOST_TARGETS` servers returned;
    a message says what is left out.
    """
    found, problems, _ = _read(patterns)
    return found, problems


async def settled_targets(
    patterns: Sequence[str], sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> tuple[list[BackendTarget], list[str]]:
    """Return what `listed_targets` does, after a second reading where a file may be half written."""
    found, problems, half_written = await asyncio.to_thread(_read, patterns)
    if half_written:
        await sleep(_SETTLED_S)
        found, problems, _ = await asyncio.to_thread(_read, patterns)
    return found, problems


def _read(patterns: Iterable[str]) -> tuple[list[BackendTarget], list[str], bool]:
    """Return the servers, the messages, and whether a file may be half written."""
    found: dict[str, BackendTarget] = {}
    urls: set[str] = set()
    problems: list[str] = []
    half_written = False
    paths: dict[Path, None] = {}
    for pattern in patterns:
        matching = _matching(pattern)
        if not matching and not _WILDCARD.search(pattern):
            problems.append(f"{clean(pattern, 120)}: no such file")
        paths |= dict.fromkeys(matching)
    if len(paths) > MOST_FILES:
        problems.append(f"{len(paths)} files match; the first {MOST_FILES} are used")
    for path in islice(paths, MOST_FILES):
        groups = _groups(path)
        if isinstance(groups, str):
            problems.append(f"{clean(path, 120)}: cannot be used: {clean(groups, 120)}")
            half_written |= groups in _HALF_WRITTEN
            continue
        for target in _targets(groups):
            urls.add(target.url)
            if len(found) < MOST_TARGETS:
                found.setdefault(target.url, target)
    if len(urls) > MOST_TARGETS:
        problems.append(f"{len(urls)} servers listed; the first {MOST_TARGETS} are used")
    return list(found.values()), problems, half_written


def _matching(pattern: str) -> list[Path]:
    """Return the paths that match a pattern, whose folders may have wildcards, too."""
    if os.path.exists(pattern):  # noqa: PTH110 - Path.exists raises an error where folders are closed
        return [Path(pattern)]
    parts = Path(pattern).parts
    first = next((place for place, part in enumerate(parts) if _WILDCARD.search(part)), len(parts))
    if first == len(parts):
        return []
    wild = re.sub(r"\*+", "*", "/".join(parts[first:]))  # ** would search everything below
    return sorted(Path(*parts[:first]).glob(wild))


def _groups(path: Path) -> list[object] | str:
    """Return the groups of targets in a file, or why it cannot be used."""
    try:
        if not path.is_file():
            return "not a regular file"  # opening a pipe would wait for its writer
        with path.open("rb") as stream:
            body = stream.read(MOST_BYTES + 1)
        if len(body) > MOST_BYTES:
            return f"larger than {MOST_BYTES >> 20} MiB"
        groups = _yaml(body) if path.suffix in _YAML else json.loads(body)
    except ImportError:
        return NO_YAML
    except OSError as error:
        return error.strerror or type(error).__name__
    except (ValueError, RecursionError):
        return _NO_YAML_TEXT if path.suffix in _YAML else _NO_JSON_TEXT
    return groups if isinstance(groups, list) else _NO_LIST


def _yaml(body: bytes) -> object:
    """Return what a YAML file holds.

    Raises:
        ValueError: it is not valid YAML.
        ImportError: PyYAML is missing.
    """
    yaml: Any = importlib.import_module("yaml")
    try:
        return yaml.load(body, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise ValueError from error


def _targets(groups: Sequence[object]) -> Iterator[BackendTarget]:
    for group in groups:
        if not isinstance(group, dict) or not isinstance(group.get("targets"), list):
            continue
        given = group.get("labels")
        labels = given if isinstance(given, dict) else {}
        for address in group["targets"]:
            url = _url(address, labels)
            if url is not None:
                name = clean(address, _NAME)
                yield BackendTarget(name, url, group=_group(labels))


def _url(address: object, labels: Mapping[object, object]) -> str | None:
    """Return the URL of a target, without the usual path of a metrics page; None for anything unusable."""
    scheme, path = labels.get("__scheme__", "http"), labels.get("__metrics_path__", "/metrics")
    if (
        not (isinstance(address, str) and isinstance(path, str))
        or "/" in address
        or scheme not in {"http", "https"}
    ):
        return None
    url = f"{scheme}://{address}{path.removesuffix('/metrics')}".rstrip("/")
    try:
        parts = urlsplit(url)
        usable = parts.hostname is not None and parts.port != 0 and parts.username is None
    except ValueError:
        return None
    return url if usable and clean(url, 300) == url and " " not in url and not parts.query else None


def _group(labels: Mapping[object, object]) -> str | None:
    """Return the group that labels name: the model with its namespace; None where no model is named."""
    parts = [labels.get(name) for name in ("model_name", "namespace")]
    known = [part for part in parts if isinstance(part, str) and part]
    return clean(" ".join(known), _NAME) if isinstance(parts[0], str) and known else None


async def follow_files(
    patterns: Sequence[str],
    ways: Ways,
    store: Store,
    watch: Callable[[Sequence[BackendTarget]], None],
    sleep: Callable[[float], Awaitable[None]],
) -> None:
    """Read the files that match `patterns` again and again; call `watch` with new servers that answer."""

    def watched() -> list[str]:
        return [one.url for one in store.targets() if one.url]

    note = partial(store.note, "target files")
    await TargetFiles(patterns, ways, watched, watch, note, sleep).run()


class TargetFiles:
    """Reads the files once a minute, and reports the servers in them that answer."""

    def __init__(
        self,
        patterns: Sequence[str],
        ways: Ways,
        watched: Callable[[], Collection[str]],
        watch: Callable[[Sequence[BackendTarget]], None],
        note: Callable[[str], None],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Read the files that match `patterns`.

        `watched` returns the URLs that are watched already, `watch` is called with new servers that answer,
        and `note` with a message about a file or its servers.
        """
        self._patterns = patterns
        self._ways = ways
        self._watched = watched
        self._watch = watch
        self._note = note
        self._sleep = sleep

    async def run(self) -> None:
        """Read the files again and again."""
        while True:
            await self.look()
            await self._sleep(AGAIN_S)

    async def look(self) -> None:
        """Read the files, and probe the servers that are not watched yet."""
        listed, problems = await settled_targets(self._patterns, self._sleep)
        for problem in problems:
            self._note(problem)
        known = set(self._watched())
        new = [target for target in listed if target.url not in known]
        answered = await answering(self._ways, new)
        if answered:
            self._watch(answered)
        files = clean(", ".join(self._patterns), 200)
        if listed and len(new) == len(listed) and not answered:
            self._note(f"{files}: no inference server answers there (addresses listed: {len(listed)})")
        if not listed and not problems:
            self._note(f"no servers in {files}")


async def answering(ways: Ways, targets: Sequence[BackendTarget]) -> list[BackendTarget]:
    """Return those targets at which an inference server answers, with the engine that it is."""
    answered: list[BackendTarget] = []
    for start in range(0, len(targets), _AT_ONCE):
        some = targets[start : start + _AT_ONCE]
        sources = ways.backends(some)
        try:
            readings = await asyncio.gather(*(one.poll(_DEADLINE_S) for one in sources))
        finally:
            await asyncio.gather(*(one.close() for one in sources), return_exceptions=True)
        answered += [
            replace(target, engine=reading.engine)
            for target, reading in zip(some, readings, strict=True)
            if isinstance(reading, EngineSample)
        ]
    return answered
