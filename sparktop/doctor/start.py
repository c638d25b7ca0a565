"""Whether a server would start on this machine, by the command line that would start it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import ceil
from pathlib import Path

from msgspec.structs import replace

from sparktop.analysis.start_memory import MOST_SHARE, fit_of, newest_start, room_of, start_need
from sparktop.doctor.check import Check, Status
from sparktop.errors import UsageError
from sparktop.graphics.numbers import count_words
from sparktop.hardware.checkpoint import Checkpoint, hub_folder, read_checkpoint
from sparktop.hardware.processes import Title, option, options_of, read_title
from sparktop.model.event import Sure
from sparktop.model.failure import Failure
from sparktop.model.node import GIB, MemoryAsk, NodeIdentity, NodeSample, Workload
from sparktop.model.snapshot import PastStart, StartMemory
from sparktop.model.text import clean, reason_of

_LONGEST, _MOST_WORDS = 16_384, 400
"""Characters of a command, and words of it that are read."""
_IMAGE = re.compile(r"(?:.*/)?vllm-openai(?:[:@].*)?")
"""vLLM's container image, whose entry point is `vllm serve`."""
_MOST_TYPES = 3
"""Types of weights that are shown."""
_SHRINKS: Mapping[str, float] = {"fp8": 0.5, "bitsandbytes": 0.3}
"""About what is left of 16-bit weights that are quantised as they are loaded."""
_WIDE = ("BF16", "F16")
"""Types that are quantised as they are loaded."""


_HUB_IN_IMAGE = "/root/.cache/huggingface/hub"
"""Hugging Face's cache in an image whose user is root, as in vLLM's."""


def parse_start(command: str) -> tuple[Title, list[str], list[str]]:
    """Return (what a command line says about the server that it starts, words before it, its own words).

    What stands before the server's program (sudo, variables, docker run, another command) is no option of it.

    Raises:
        UsageError: there is no server that is known in the command line.
    """
    if len(command) > _LONGEST:
        raise UsageError(f"--start: the command is over {_LONGEST} characters long")
    try:
        words = shlex.split(command)[:_MOST_WORDS]
    except ValueError as error:
        raise UsageError(f"--start: {clean(error)}: quote the command as for a shell") from None
    images = [index for index, word in enumerate(words) if _IMAGE.fullmatch(word)]
    starts = [(words[:index], words[index:]) for index in range(len(words))]
    starts += [(words[:index], ["vllm", "serve", *words[index + 1 :]]) for index in images]
    for before, options in starts:
        title = read_title(options)
        if title is not None and title.role == "server":
            return title, before, options
    shown = clean(command, 60) or "nothing"
    raise UsageError(
        f"--start: no server that is known in '{shown}': write what starts it, such as \"vllm serve MODEL\""
    )


def check_start(
    command: str,
    reading: NodeSample | Failure,
    identity: NodeIdentity,
    starts: Sequence[PastStart],
    env: Mapping[str, str],
) -> list[Check]:
    """Return the checks of a start by `command` on this machine, of which `reading` is a sample.

    `starts` are earlier starts, of any server. Of GPUs with memory of their own the emptiest count.

    Raises:
        UsageError: as `parse_start`.
    """
    title, before, options = parse_start(command)
    asks = title.asks or MemoryAsk()
    weights, weights_check = _check_weights(title, before, options, env)
    room = None if isinstance(reading, Failure) else room_of(reading, asks.ranks)
    if room is None:
        unknown = "not known if it fits: this machine's GPU memory is not known"
        return [weights_check, Check("memory", Status.SKIP, unknown)]
    process = Workload(0, title.engine, model=title.model, asks=asks, checkpoint_bytes=weights)
    about = StartMemory("", identity.hostname or "", process)
    about = replace(about, last=newest_start(starts, about.key))
    fit_finding = fit_of(start_need(about, room, starts), room)
    is_known = fit_finding.sure is not Sure.UNKNOWN
    status = Status.OK if is_known else Status.SKIP
    if fit_finding.severity is not None:
        status = Status.FAIL
    return [
        weights_check,
        Check("memory", status, f"{title.engine} {fit_finding.said}", fit_finding.fix or ""),
        *(Check(name, Status.OK, text) for name, text in fit_finding.evidence),
        *_check_pool(title, asks, None if weights is None else weights // asks.ranks, room.total_bytes),
    ]


_ROOM_SHARE = 0.05
"""Share of the memory that KV cache and activations take at least."""


def _check_pool(title: Title, asks: MemoryAsk, weights: int | None, total_bytes: int) -> list[Check]:
    """Return the check whether the share that vLLM may take exceeds its weights; [] where that is moot."""
    if title.engine != "vllm" or asks.kv_bytes is not None or weights is None:
        return []
    share = asks.share or MOST_SHARE
    budget = round(share * total_bytes)
    if asks.share is None and weights < budget:
        return []  # the default is not known for sure
    by_default = "" if asks.share else ", the default,"
    shares = f"gpu_memory_utilization {share:g}{by_default} is {budget / GIB:.1f} GiB"
    if weights >= budget:
        least = ceil(100 * (weights / total_bytes + _ROOM_SHARE)) / 100
        more = f"ask for {least:.2f} or more" if least < 1 else "use smaller weights, or more machines"
        return [Check("KV cache", Status.FAIL, f"no room: {shares}, weights {weights / GIB:.1f}", more)]
    left = (budget - weights) / GIB
    return [Check("KV cache", Status.OK, f"{shares}: {left:.1f} GiB beside the weights, with activations")]


def _check_weights(
    title: Title, before: Sequence[str], options: Sequence[str], env: Mapping[str, str]
) -> tuple[int | None, Check]:
    """Return (bytes of the weights in memory, None if unknown; the check of their files).

    `before` and `options` are the words before the server's program and from it on.
    """
    name, model = "weights", title.path
    if model is None:
        return None, Check(name, Status.SKIP, "the command names no model")
    shown = clean(model, 80)
    try:
        checkpoint = _first_checkpoint(_places(model, before, options, env))
    except (OSError, ValueError, RuntimeError) as error:
        return None, Check(name, Status.SKIP, f"{shown}: {reason_of(error)}", "its weights are not counted")
    if checkpoint is None:
        advice = "download them (Hugging Face's cache: HF_HOME) and run this again: their size is needed"
        return None, Check(name, Status.SKIP, f"no files of {shown} on this machine", advice)
    quantised = option(options, ("--quantization", "-q")) or ""
    wide = sum(checkpoint.dtypes.get(kind, 0) for kind in _WIDE)
    size = checkpoint.weights_bytes - round(wide * (1 - _SHRINKS.get(quantised, 1.0)))
    types = sorted(checkpoint.dtypes.items(), key=lambda kind: -kind[1])[:_MOST_TYPES]
    kinds = ", ".join(f"{dtype} {count / GIB:.1f}" for dtype, count in types)
    files = count_words(checkpoint.files, "file")
    said = f"{checkpoint.weights_bytes / GIB:.1f} GiB in {files}"
    said += f" ({kinds})" if kinds else ""
    said += f", about {size / GIB:.1f} in memory by {quantised}" if size != checkpoint.weights_bytes else ""
    if checkpoint.problem is not None:
        return size, Check(name, Status.FAIL, f"{said}: {checkpoint.problem}", "download the model again")
    return size, Check(name, Status.OK, said)


def _first_checkpoint(folders: Iterable[Path]) -> Checkpoint | None:
    """Return the checkpoint in the first folder that has one; errors as of `read_checkpoint`."""
    for folder in folders:
        checkpoint = read_checkpoint(folder, headers=True) if folder.exists() else None
        if checkpoint is not None:
            return checkpoint
    return None


def _places(
    model: str, before: Sequence[str], options: Sequence[str], env: Mapping[str, str]
) -> Iterable[Path]:
    """Yield where a model's files may be: at the path, at what a container mounts there, in the cache."""
    yield Path(model).expanduser()
    mounts = list(_mounts(before))
    yield from _outside_paths(model, mounts)
    cache = env.get("HF_HOME") or Path(env.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    download_folder = option(options, ("--download-dir",)) or env.get("HF_HUB_CACHE")
    hubs = _outside_paths(_HUB_IN_IMAGE, mounts)
    for hub in (*([Path(download_folder)] if download_folder else []), *hubs, Path(cache, "hub")):
        if (folder := hub_folder(hub.expanduser(), model)) is not None:
            yield folder


def _outside_paths(path: str, mounts: Iterable[tuple[Path, str]]) -> list[Path]:
    """Return where the `path` of a container is here, by each of its `mounts` (here, in it) that has it."""
    return [
        outside / path[len(inside) :].lstrip("/")
        for outside, inside in mounts
        if path == inside or path.startswith(f"{inside}/")
    ]


def _mounts(words: Sequence[str]) -> Iterator[tuple[Path, str]]:
    """Yield (folder here, folder in the container) of each mount of a `docker run`."""
    for name, value in options_of(words):
        if name not in {"-v", "--volume", "--mount"}:
            continue
        outside, _, inside = value.partition(":")
        if name == "--mount":
            pairs = (part.partition("=") for part in value.split(","))
            parts = {key: part_value for key, _, part_value in pairs}
            outside = parts.get("source") or parts.get("src") or ""
            inside = parts.get("target") or parts.get("destination") or parts.get("dst") or ""
        inside = inside.partition(":")[0].rstrip("/")
        if outside and inside:
            yield Path(outside).expanduser(), inside
