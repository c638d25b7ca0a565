"""How many bytes of its weights a model reads for a token, by its config.json and the headers of its files.

A safetensors file begins with the length of its header (8 bytes, little-endian) and the header, JSON with the
offsets of each tensor (https://github.com/huggingface/safetensors, "Format"). A step for one token reads all
tensors but the table of embeddings (one row of it, unless the output layer is the same table), and of each
layer's experts as many as a token chooses. What belongs to images, sounds or draft tokens is left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from sparktop.hardware.kernel_file import open_regular
from sparktop.model.node import ModelWeights

_MOST_FILES, _MOST_HEADER, _MOST_HEADERS, _MOST_CONFIG = 256, 8 << 20, 64 << 20, 1 << 20
"""Most files of a model; most bytes of the header of one, of all headers, and of its config.json."""
_LENGTH = 8
_EXPERTS = re.compile(r"(^|\.)experts\.")
_EMBEDDING = re.compile(r"(embed_tokens|word_embeddings|wte|tok_embeddings)\.weight$")
_OUTPUT = re.compile(r"(^|\.)(lm_head|output)\.weight")
_OTHER = re.compile(r"(^|\.)(visual|vision(_tower|_model)?|audio_tower|multi_modal_projector|mtp)\.")
_LAYER = re.compile(r"\.layers\.(\d{1,4})\.")
_COUNTS = ("num_local_experts", "num_experts", "n_routed_experts")
_CHOSEN = ("num_experts_per_tok", "experts_per_token", "num_experts_per_token")
_RESHAPING = "--mxfp4-layers"
_GB = 1e9


def read_step_weights(folder: Path, flags: tuple[str, ...] = ()) -> ModelWeights | None:
    """Return what a step reads of the model in `folder`; None where that is not certain.

    `flags` are options of the server: one that makes other weights of those in the files leaves it unknown.

    Raises:
        OSError: a file cannot be read.
        ValueError: a file is no JSON, or not what its format says.
    """
    with open_regular(folder / "config.json") as file:
        config = _json(file.read(_MOST_CONFIG))
    text = config.get("text_config", config)
    if not isinstance(text, dict) or _is_reshaped(config, text, flags):
        return None
    files = list(islice(folder.glob("model*.safetensors"), _MOST_FILES + 1))
    if not files or len(files) > _MOST_FILES:
        return None
    sizes: dict[str, int] = {}
    left = _MOST_HEADERS
    for path in files:
        tensors, length = _tensors(path, min(left, _MOST_HEADER))
        sizes |= tensors
        left -= length
    return step_weights(text, sizes)


def step_weights(config: Mapping[str, object], sizes: Mapping[str, int]) -> ModelWeights | None:
    """Return what a step reads by a config.json and the bytes of each tensor; None if experts are unclear."""
    layers = config.get("num_hidden_layers")
    read = {name: size for name, size in sizes.items() if not _is_apart(name, layers)}
    if any(_OUTPUT.search(name) for name in read):
        read = {name: size for name, size in read.items() if not _EMBEDDING.search(name)}
    experts = sum(size for name, size in read.items() if _EXPERTS.search(name))
    total = sum(read.values())
    if not experts:
        return ModelWeights(total / _GB) if total else None
    count, chosen = (
        next((config[one] for one in names if one in config), None) for names in (_COUNTS, _CHOSEN)
    )
    if not isinstance(count, int) or not isinstance(chosen, int) or not 0 < chosen <= count:
        return None
    return ModelWeights((total - experts * (1 - chosen / count)) / _GB, mixture=chosen < count)


def _is_apart(name: str, layers: object) -> bool:
    """Return whether a tensor is of images or sounds, or of the layers behind the last that draft tokens."""
    layer = _LAYER.search(name)
    drafts = layer is not None and isinstance(layers, int) and int(layer[1]) >= layers
    return drafts or _OTHER.search(name) is not None


def _is_reshaped(config: Mapping[str, object], text: Mapping[str, object], flags: tuple[str, ...]) -> bool:
    """Return whether the server makes smaller weights of those in the files."""
    wanted = next((one.partition(" ")[2] for one in flags if one.startswith("--quantization ")), None)
    stored = config.get("quantization_config") or text.get("quantization_config")
    method = str(stored.get("quant_method", "")) if isinstance(stored, dict) else ""
    other = wanted is not None and (not method or method.split("-")[0] not in wanted)
    return other or any(one.startswith(_RESHAPING) for one in flags)


def _tensors(path: Path, most: int) -> tuple[dict[str, int], int]:
    """Return (bytes of each tensor of a safetensors file, length of its header, which is `most` at most)."""
    with open_regular(path) as file:
        length = int.from_bytes(file.read(_LENGTH), "little")
        if not 0 < length <= most:
            raise ValueError("no header of a safetensors file, or too long")
        header = _json(file.read(length))
    header.pop("__metadata__", None)
    sizes: dict[str, int] = {}
    for name, one in header.items():
        start, end = one["data_offsets"]
        sizes[name] = max(0, int(end) - int(start))
    return sizes, length


def _json(content: bytes) -> dict[str, Any]:
    found = json.loads(content)
    if not isinstance(found, dict):
        raise TypeError("no JSON object")
    return found
