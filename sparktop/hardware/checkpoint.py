"""The files with a model's weights: their folder, their size, and what their headers say about them.

A safetensors file begins with the length of its header (8 bytes, little-endian), then has the header (JSON:
dtype, shape and data_offsets by tensor) and the tensors, so that length and file size alone give the bytes of
its tensors (https://github.com/huggingface/safetensors, "Format"). Files can lie on a slow network drive, and
can hold anything: what is read of each is bounded.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from sparktop.hardware.kernel_file import open_regular
from sparktop.model.node import ModelWeights
from sparktop.model.text import clean, reason_of

_MOST_FILES = 2000
"""Files of a folder, or of one model, that are counted; servers whose sizes are remembered."""
_WEIGHTS = (".safetensors", ".gguf", ".bin", ".pt", ".pth")
"""Suffixes of files with weights; of several in one folder the first is loaded."""
_HUB_FOLDER = "root/.cache/huggingface/hub"
_MOST_HEADER_BYTES = 64 << 20
"""Most bytes that are read of the headers of all files together."""
_LONGEST_HEADER = 100_000_000
"""The longest header that the format allows."""
_LENGTH_BYTES, _MOST_TYPES = 8, 32
"""Bytes of a header's length, and types of tensors that are counted apart."""
_SHARD = re.compile(r"-\d{5}-of-(\d{5})(?=\.(?:gguf|safetensors)$)")
"""Number of a file, from 0 or 1 on, and how many there are, in the names of files that hold one model."""

_Tensor = tuple[str, str, int, int]
"""(Name, type, begin, end) of a tensor, in bytes."""


class Checkpoint(NamedTuple):
    """The weights of a model as its files have them."""

    weights_bytes: int
    """Bytes of all tensors; of formats other than safetensors, size of the files."""
    files: int
    dtypes: Mapping[str, int] = {}
    """Bytes by type of the tensors, such as "BF16"; empty where headers were not read."""
    tensors: Mapping[str, int] = {}
    """Bytes of each tensor by name, of headers that were read."""
    problem: str | None = None
    """What shows that a file is cut short or missing, in one line; None where all seem whole."""


class FoundWeights(NamedTuple):
    """What is known of the weights of a server; None while it is not."""

    size_bytes: int | None = None
    step: ModelWeights | None = None
    """What a step reads of them."""
    revision: str | None = None


class CheckpointReader:
    """Finds the size of each server's weights once, in the background.

    Only of servers whose files this user may see: its own, or all as root.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        """Read through /proc/PID/root below `root`."""
        self._proc = root / "proc"
        self._found: dict[tuple[int, int], FoundWeights] = {}

    def find(self, pid: int, start: int, model: str | None, flags: tuple[str, ...] = ()) -> FoundWeights:
        """Return what is known of the weights of `model`, a path or name; the first call begins to read them.

        `start` is the start of the server's process in clock ticks, `flags` its options.
        """
        if model is None:
            return FoundWeights()
        key = (pid, start)
        if key not in self._found:
            if len(self._found) >= _MOST_FILES:
                self._found.clear()
            self._found[key] = FoundWeights()
            folder = self._proc / str(pid) / "root"
            if os.access(folder, os.X_OK):
                threading.Thread(
                    target=self._measure,
                    args=(key, folder, model, flags),
                    name="sparktop-weights",
                    daemon=True,
                ).start()
        return self._found[key]

    def _measure(self, key: tuple[int, int], root: Path, model: str, flags: tuple[str, ...]) -> None:
        with contextlib.suppress(
            OSError, ValueError, TypeError, LookupError, ArithmeticError, RecursionError
        ):
            for weights in read_weights(root, model, flags):
                self._found[key] = weights


def _model_path(root: Path, model: str) -> Path | None:
    """Return the file or folder of `model`, a path or a name, below `root`; None without one."""
    return root / model.lstrip("/") if model.startswith("/") else hub_folder(root / _HUB_FOLDER, model)


def read_weights(root: Path, model: str, flags: tuple[str, ...] = ()) -> Iterator[FoundWeights]:
    """Yield what is known of the weights of `model` below `root`, each time more.

    Raises:
        OSError: a file cannot be read.
        ValueError: the path is impossible, or a file is not what its format says.
    """
    path = _model_path(root, model)
    if path is None:
        return
    revision = clean(path.name, 64) if path.parent.name == "snapshots" else ""
    weights = FoundWeights(revision=revision or None)
    yield weights  # known even where the weights cannot be read
    checkpoint = read_checkpoint(path)
    if checkpoint is not None:
        weights = weights._replace(size_bytes=checkpoint.weights_bytes)
        yield weights
    if path.is_dir():
        yield weights._replace(step=read_step_weights(path, flags))


def hub_folder(hub: Path, model: str) -> Path | None:
    """Return the folder of a model in the cache `hub` of Hugging Face, by its name; None without one.

    Of several revisions it is that of `refs/main`, else the newest.
    """
    home = hub / f"models--{model.replace('/', '--')}"
    try:
        with open_regular(home / "refs/main") as file:
            wanted = file.read(64).decode("ascii", "replace").strip()
        if wanted.isalnum() and (home / "snapshots" / wanted).is_dir():
            return home / "snapshots" / wanted
    except OSError:
        pass
    try:
        return max(
            (home / "snapshots").iterdir(), key=lambda snapshot: snapshot.stat().st_mtime, default=None
        )
    except OSError:
        return None


def read_checkpoint(path: Path, *, headers: bool = False) -> Checkpoint | None:
    """Return the weights in a folder or file; None without any.

    With `headers` those of safetensors files are read whole, which tells the types of the tensors.

    Raises:
        OSError: the folder or a file cannot be read.
        ValueError: the path is impossible.
    """
    if path.is_file():
        files = [path] if path.suffix in _WEIGHTS or _is_gguf(path) else []
    else:
        by_suffix: dict[str, list[Path]] = {}
        with os.scandir(path) as entries:
            for item in islice(entries, _MOST_FILES):
                by_suffix.setdefault(Path(item.name).suffix, []).append(path / item.name)
        files = sorted(next((by_suffix[suffix] for suffix in _WEIGHTS if suffix in by_suffix), []))
    return _measure_files(_shards_of(files), headers=headers) if files else None


def _is_gguf(path: Path) -> bool:
    """Return whether a file begins as GGUF: Ollama's have no suffix."""
    with open_regular(path) as file:
        return file.read(4) == b"GGUF"


def _shards_of(files: Sequence[Path]) -> Sequence[Path]:
    """Return the files of one model: where files are numbered, all of the last series, also missing ones.

    Engines do not load a second copy beside them (consolidated.safetensors).
    """
    numbered = {file: match for file in files if (match := _SHARD.search(file.name)) is not None}
    if not numbered:
        return files
    last_file, match = numbered.popitem()
    series = {file for file in files if _SHARD.sub("", file.name) == _SHARD.sub("", last_file.name)}
    names = (
        _SHARD.sub(f"-{number:05}-of-{match[1]}", last_file.name)
        for number in range(1, min(int(match[1]), _MOST_FILES) + 1)
    )
    return sorted(series.union(map(last_file.with_name, names)))


def _measure_files(files: Iterable[Path], *, headers: bool) -> Checkpoint:
    """Return the weights in files, of which some may be missing."""
    total, count, left = 0, 0, _MOST_HEADER_BYTES if headers else 0
    dtypes: dict[str, int] = {}
    sizes: dict[str, int] = {}
    problems: list[str] = []
    for path in files:
        name = clean(path.name, 80)
        try:
            file_bytes, read, tensors, problem = _measure_file(path, left)
        except OSError as error:
            problems.append(f"{name}: {reason_of(error)}")
            continue
        total, count, left = total + file_bytes, count + 1, left - read
        for tensor, dtype, begin, end in tensors:
            sizes[tensor] = max(0, min(end, file_bytes) - max(0, begin))
            if dtype in dtypes or len(dtypes) < _MOST_TYPES:
                dtypes[dtype] = dtypes.get(dtype, 0) + sizes[tensor]
        problems += [] if problem is None else [f"{name} {problem}"]
    return Checkpoint(total, count, dtypes, sizes, problems[0] if problems else None)


def _measure_file(path: Path, most_bytes: int) -> tuple[int, int, Sequence[_Tensor], str | None]:
    """Return (bytes of the tensors in a file, bytes read of its header, its tensors, what is wrong with it).

    Without tensors if the header is longer than `most_bytes`.
    """
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        return 0, 0, (), "is no file"
    if path.suffix != ".safetensors":
        return status.st_size, 0, (), None
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        data_bytes = size - _LENGTH_BYTES - length
        if length > _LONGEST_HEADER or data_bytes < 0:
            return size, 0, (), "is no safetensors file, or cut short"
        if length > most_bytes:
            return data_bytes, 0, (), None
        content = file.read(length)
    try:
        tensors = [
            (name, clean(tensor["dtype"], 16), int(tensor["data_offsets"][0]), int(tensor["data_offsets"][1]))
            for name, tensor in json.loads(content).items()
            if name != "__metadata__"
        ]
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError):
        return data_bytes, length, (), "has a damaged header"
    is_cut = max((end for *_, end in tensors), default=0) > data_bytes
    return data_bytes, length, tensors, "is cut short" if is_cut else None


_MOST_CONFIG_BYTES = 1 << 20
"""Most bytes of a model's config.json."""
# "model.layers.3.mlp.experts.7.up_proj.weight".
_EXPERTS = re.compile(r"(^|\.)experts\.")
# "model.embed_tokens.weight".
_EMBEDDING = re.compile(r"(embed_tokens|word_embeddings|wte|tok_embeddings)\.weight$")
# "lm_head.weight".
_OUTPUT = re.compile(r"(^|\.)(lm_head|output)\.weight")
# "model.visual.blocks.0.attn.qkv.weight": what no step of text generation reads.
_OTHER_TENSORS = re.compile(r"(^|\.)(visual|vision(_tower|_model)?|audio_tower|multi_modal_projector|mtp)\.")
# "model.layers.12.": the number of the layer.
_LAYER = re.compile(r"\.layers\.(\d{1,4})\.")
_COUNTS = ("num_local_experts", "num_experts", "n_routed_experts")
_CHOSEN = ("num_experts_per_tok", "experts_per_token", "num_experts_per_token")
"""Names in a config.json for a layer's experts, and for those that a token chooses."""
_RESHAPING = "--mxfp4-layers"
"""An option that makes other weights of those in the files."""
_GB = 1e9


def read_step_weights(folder: Path, flags: tuple[str, ...] = ()) -> ModelWeights | None:
    """Return what a step reads of the model in `folder`; None where that is not certain.

    `flags` are options of the server: one that makes other weights of those in the files leaves it unknown.

    Raises:
        OSError: a file cannot be read.
        ValueError: a file is no JSON, or not what its format says.
    """
    with open_regular(folder / "config.json") as file:
        config = json.loads(file.read(_MOST_CONFIG_BYTES))
    text = config.get("text_config", config) if isinstance(config, dict) else None
    if not isinstance(text, dict) or _is_reshaped(config, text, flags):
        return None
    checkpoint = read_checkpoint(folder, headers=True)
    if checkpoint is None:
        return None
    if checkpoint.problem is not None or sum(checkpoint.tensors.values()) < checkpoint.weights_bytes:
        raise ValueError(checkpoint.problem or "its headers are too long")
    return step_weights(text, checkpoint.tensors)


def step_weights(config: Mapping[str, object], sizes: Mapping[str, int]) -> ModelWeights | None:
    """Return what a step reads by a config.json and the bytes of each tensor; None if experts are unclear.

    A step for one token reads all tensors but the table of embeddings (one row of it, unless the output layer
    is the same table), and of each layer's experts as many as a token chooses. What belongs to images, sounds
    or draft tokens is left out.
    """
    layers = config.get("num_hidden_layers")
    read = {name: size for name, size in sizes.items() if not _is_side_part(name, layers)}
    if any(_OUTPUT.search(name) for name in read):
        read = {name: size for name, size in read.items() if not _EMBEDDING.search(name)}
    experts = sum(size for name, size in read.items() if _EXPERTS.search(name))
    total = sum(read.values())
    if not experts:
        return ModelWeights(total / _GB) if total else None
    count = next((config[name] for name in _COUNTS if name in config), None)
    chosen = next((config[name] for name in _CHOSEN if name in config), None)
    if not isinstance(count, int) or not isinstance(chosen, int) or not 0 < chosen <= count:
        return None
    return ModelWeights((total - experts * (1 - chosen / count)) / _GB, mixture=chosen < count)


def _is_side_part(name: str, layers: object) -> bool:
    """Return whether a tensor is of images or sounds, or of the layers behind the last that draft tokens."""
    layer = _LAYER.search(name)
    drafts = layer is not None and isinstance(layers, int) and int(layer[1]) >= layers
    return drafts or _OTHER_TENSORS.search(name) is not None


def _is_reshaped(config: Mapping[str, object], text: Mapping[str, object], flags: tuple[str, ...]) -> bool:
    """Return whether the server makes smaller weights of those in the files."""
    wanted = next((flag.partition(" ")[2] for flag in flags if flag.startswith("--quantization ")), None)
    stored = config.get("quantization_config") or text.get("quantization_config")
    method = str(stored.get("quant_method", "")) if isinstance(stored, dict) else ""
    is_other_method = wanted is not None and (not method or method.split("-")[0] not in wanted)
    return is_other_method or any(flag.startswith(_RESHAPING) for flag in flags)
