"""Bytes that a step reads of a model's weights, by files made for the test."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from threading import Thread

import pytest

from sparktop.hardware.checkpoint import read_step_weights
from sparktop.model.node import ModelWeights
from tests.hardware.conftest import safetensors, title_of

GB = 10**9


def model(folder: Path, config: Mapping[str, object], *files: Mapping[str, int]) -> Path:
    """Write a config.json, and headers of safetensors files with these bytes by tensor."""
    (folder / "config.json").write_text(json.dumps(config))
    for number, tensors in enumerate(files):
        sized = {name: ("U8", size) for name, size in tensors.items()}
        safetensors(folder / f"model-{number:05}.safetensors", sized)
    return folder


DENSE = {"model.embed_tokens.weight": GB, "model.layers.0.mlp.up_proj.weight": 6 * GB, "lm_head.weight": GB}
EXPERTS = {
    "model.layers.0.self_attn.qkv.weight": GB,
    "model.layers.0.mlp.shared_experts.up_proj.weight": GB,
    "model.layers.0.mlp.experts.gate_up_proj_blocks": 64 * GB,
    "model.embed_tokens.weight": 2 * GB,
    "lm_head.weight": GB // 2,
}


@pytest.mark.parametrize("name", ["config.json", "model-00000.safetensors"])
def test_a_pipe_or_device_in_place_of_a_file_is_not_read(name: str, tmp_path: Path) -> None:
    """Neither a pipe, which would wait for a writer, nor what a link to a device leads to."""
    place = model(tmp_path, {}, {"lm_head.weight": 8}) / name
    content = place.read_bytes()
    place.unlink()
    os.mkfifo(place)
    writer = Thread(target=place.write_bytes, args=(content,))
    writer.start()
    with pytest.raises((OSError, ValueError), match=r"no regular file|is no file"):
        read_step_weights(tmp_path)
    assert place.read_bytes() == content
    writer.join()
    place.unlink()
    place.symlink_to("/dev/null")
    with pytest.raises((OSError, ValueError), match=r"no regular file|is no file"):
        read_step_weights(tmp_path)


def test_what_is_read_is_bounded(tmp_path: Path) -> None:
    """A config.json beyond 1 MiB is cut, hence no JSON; of all headers 64 MiB are read."""
    folder = model(tmp_path, {"a": "x" * (1 << 20)}, DENSE)
    with pytest.raises(ValueError, match="Unterminated string"):
        read_step_weights(folder)
    model(tmp_path, {}, DENSE)
    for number in range(1, 10):
        file = tmp_path / f"model-{number:05}.safetensors"
        header = b'{"t%d": {"dtype": "U8", "data_offsets": [0, 8]}}' % number
        file.write_bytes((8 << 20).to_bytes(8, "little") + header.ljust(8 << 20) + bytes(8))
    with pytest.raises(ValueError, match="too long"):
        read_step_weights(folder)


def test_dense_weights(tmp_path: Path) -> None:
    """All but the embeddings; all where the output layer is the embeddings; several files are one model."""
    tied = {name: size for name, size in DENSE.items() if name != "lm_head.weight"}
    for number, (files, expected) in enumerate((((DENSE,), 7.0), ((tied,), 7.0), ((DENSE, {"x": GB}), 8.0))):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert read_step_weights(model(folder, {}, *files)) == ModelWeights(expected)


@pytest.mark.parametrize(
    "names", [("num_local_experts", "num_experts_per_tok"), ("n_routed_experts", "experts_per_token")]
)
def test_of_experts_a_token_reads_those_that_it_chooses(names: tuple[str, str], tmp_path: Path) -> None:
    """1 + 1 + 0.5 GB and 4 of 128 experts of 64 GB: 4.5 GB."""
    found = read_step_weights(model(tmp_path, dict(zip(names, (128, 4), strict=True)), EXPERTS))
    assert found == ModelWeights(4.5, mixture=True)


def test_drafts_and_images_are_left_out(tmp_path: Path) -> None:
    """A layer behind the last, a draft head and a vision tower are not read in each step."""
    more = {"model.layers.1.x": GB, "mtp.x": GB, "model.visual.blocks.0.x": GB, "vision_tower.x": GB}
    config = {"text_config": {"num_hidden_layers": 1}}
    assert read_step_weights(model(tmp_path, config, DENSE | more)) == ModelWeights(7.0)


@pytest.mark.parametrize(
    ("config", "flags", "known"),
    [
        ({}, (), True),
        ({}, ("--quantization fp8",), False),
        ({"quantization_config": {"quant_method": "mxfp4"}}, ("--quantization mxfp4",), True),
        ({"quantization_config": {"quant_method": "mxfp4"}}, ("--mxfp4-layers moe",), False),
    ],
)
def test_weights_that_the_server_makes_smaller_are_unknown(
    config: dict[str, object], flags: tuple[str, ...], *, known: bool, tmp_path: Path
) -> None:
    """An option that quantizes while loading leaves the bytes unknown."""
    assert (read_step_weights(model(tmp_path, config, DENSE), flags) is not None) is known


def test_what_is_not_certain_is_unknown(tmp_path: Path) -> None:
    """Experts without their number, and a folder without safetensors."""
    assert read_step_weights(model(tmp_path, {}, EXPERTS)) is None
    (tmp_path / "model-00000.safetensors").unlink()
    assert read_step_weights(tmp_path) is None


@pytest.mark.parametrize(
    "content", [b"", b"\xff" * 8, b"\x02" + bytes(7) + b"[]", b"\x0e" + bytes(7) + b'{"a":{"b":[]}}']
)
def test_damaged_files_raise_what_the_reader_expects(content: bytes, tmp_path: Path) -> None:
    """Each is one of the errors that leave the bytes unknown."""
    model(tmp_path, {}, DENSE)
    (tmp_path / "model-00000.safetensors").write_bytes(content)
    with pytest.raises((OSError, ValueError, TypeError, KeyError)):
        read_step_weights(tmp_path)


def test_of_a_command_line_only_known_options_are_kept() -> None:
    """Keys and other words are dropped; JSON is short; another value that is no plain word is a digest."""
    line = "vllm serve m --api-key s3cret --max_num_seqs=64 --enforce-eager --hf-token t -tp 2"
    title = title_of([*line.split(), "--speculative-config", '{"method": "mtp"}'])
    shown = '--enforce-eager --max-num-seqs 64 --speculative-config {"method":"mtp"} -tp 2'
    assert " ".join(title.flags) == shown
    assert "s3cret" not in str(title)


RECIPE = [1, 2, 4, 5, 8, 10, *range(16, 257, 8), *range(272, 1025, 16)]


@pytest.mark.parametrize(
    ("option", "kept"),
    [
        (
            ("--compilation-config", json.dumps({"mode": 3, "cudagraph_capture_sizes": RECIPE})),
            '{"cudagraph_capture_sizes":[1,2,4,5,8,10,16,24,32',
        ),
        (("--compilation-config.cudagraph_mode", "FULL"), "--compilation-config.cudagraph-mode FULL"),
        (("-O3", ""), "-O3"),
        (
            ("--speculative-config", '{"model": "/home/me/m/eagle", "num_speculative_tokens": 3}'),
            '--speculative-config {"model":"eagle","num_speculative_tokens":3}',
        ),
        (("--compilation-config", "[1, 2"), "--compilation-config #"),
        (("--compilation-config", "{" * 30_000), "--compilation-config #"),
        (("--compilation-config", '{"a":' * 5_000 + "1" + "}" * 5_000), "--compilation-config "),
    ],
)
def test_json_of_an_option_can_be_compared(option: tuple[str, str], kept: str) -> None:
    """Its fields are in order; what is long is cut; a folder is left out."""
    title = title_of(["vllm", "serve", "m", *filter(None, option)])
    (shown,) = title.flags
    assert kept.rstrip("{}") in shown
    assert len(shown) < 300
    assert "/home" not in shown


def test_what_may_be_secret_in_json_is_a_digest() -> None:
    """A key by its name, and text that is no plain word; the same text has the same digest."""
    value = {"hf_token": "s3cret", "x": {"api_key": "s3cret", "password": 12345}, "url": "http://me:s3cret@h"}
    said = json.dumps({**value, "a b": ["s3cret x"]})
    title = title_of(["vllm", "serve", "m", "--speculative-config", said])
    assert not any(word in str(title) for word in ("s3cret", "12345", "a b"))
    digests = re.findall('"(?:hf_token|api_key)":"(#[0-9a-f]{8})"', str(title.flags))
    assert len(digests) == 2
    assert len(set(digests)) == 1
