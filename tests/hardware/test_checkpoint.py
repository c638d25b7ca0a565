"""Weights in files: their size by headers, damaged and hostile files, folders that cannot be read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sparktop.hardware.checkpoint import Checkpoint, hub_folder, read_checkpoint, read_weights
from tests.hardware.conftest import safetensors
from tests.known import known


def checkpoint(place: Path, *, headers: bool = False) -> Checkpoint:
    """Return what is read of a folder or file of weights, which are there."""
    return known(read_checkpoint(place, headers=headers))


def test_headers_tell_the_bytes_and_types_of_tensors(tmp_path: Path) -> None:
    """The headers themselves do not count; a copy beside numbered files, from 0 or 1 on, is not loaded."""
    safetensors(tmp_path / "model-00000-of-00001.safetensors", {"a": ("BF16", 100), "b": ("F8_E4M3", 40)})
    safetensors(tmp_path / "model-00001-of-00001.safetensors", {"c": ("BF16", 60)})
    safetensors(tmp_path / "consolidated.safetensors", {"a": ("BF16", 200)})
    found = checkpoint(tmp_path, headers=True)
    assert (found.weights_bytes, found.files, found.problem) == (200, 2, None)
    assert found.dtypes == {"BF16": 160, "F8_E4M3": 40}
    quick = checkpoint(tmp_path)
    assert (quick.weights_bytes, quick.dtypes) == (200, {})


def test_files_that_are_missing_or_cut_short_are_named(tmp_path: Path) -> None:
    """A download that broke off is seen before the start fails on it."""
    one = safetensors(tmp_path / "model-00001-of-00002.safetensors", {"a": ("BF16", 100)})
    found = checkpoint(tmp_path, headers=True)
    assert found.problem == "model-00002-of-00002.safetensors: No such file or directory"
    os.truncate(one, one.stat().st_size - 30)
    found = checkpoint(tmp_path, headers=True)
    assert (found.weights_bytes, found.problem) == (70, "model-00001-of-00002.safetensors is cut short")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is no safetensors file, or cut short"),
        (b"\x03\x00", "is no safetensors file, or cut short"),
        ((1 << 63).to_bytes(8, "little") + b"{}", "is no safetensors file, or cut short"),
        ((90_000_000).to_bytes(8, "little") + b"{}", "is no safetensors file, or cut short"),
        ((2).to_bytes(8, "little") + b"{]", "has a damaged header"),
        ((2).to_bytes(8, "little") + b"[]", "has a damaged header"),
        ((200_000).to_bytes(8, "little") + b"[" * 200_000, "has a damaged header"),
        ((11).to_bytes(8, "little") + b'{"a": null}', "has a damaged header"),
        ((40).to_bytes(8, "little") + b'{"a":{"dtype":"X","data_offsets":[0]}}  ', "has a damaged header"),
        (
            (47).to_bytes(8, "little") + b'{"a":{"dtype":"X","data_offsets":[0,Infinity]}}',
            "has a damaged header",
        ),
        ((43).to_bytes(8, "little") + b'{"a":{"dtype":"X","data_offsets":[0,1e30]}}', "is cut short"),
        ((42).to_bytes(8, "little") + b'{"a":{"dtype":"X","data_offsets":[-9,9]}} ', "is cut short"),
    ],
    ids=str,
)  # fmt: skip
def test_hostile_headers_are_one_line(tmp_path: Path, content: bytes, problem: str) -> None:
    """A huge length, a file that ends early, deep and wrong JSON: none is read beyond its bounds."""
    (tmp_path / "x.safetensors").write_bytes(content)
    found = checkpoint(tmp_path, headers=True)
    assert found.problem == f"x.safetensors {problem}"
    assert found.weights_bytes <= len(content)
    assert sum(found.dtypes.values()) <= len(content)


def test_types_are_few_and_clean(tmp_path: Path) -> None:
    """A header may name any number of types, in any characters."""
    safetensors(tmp_path / "x.safetensors", {f"t{n}": (f"\x1b[3{n}m{n}", 1) for n in range(100)})
    found = checkpoint(tmp_path, headers=True)
    assert len(found.dtypes) == 32
    assert "\x1b" not in "".join(found.dtypes)


def test_what_is_no_file_is_not_opened(tmp_path: Path) -> None:
    """A pipe in the folder would never answer, a folder of that name cannot be read."""
    os.mkfifo(tmp_path / "a.safetensors")
    (tmp_path / "b.safetensors").mkdir()
    found = checkpoint(tmp_path, headers=True)
    assert (found.weights_bytes, found.problem) == (0, "a.safetensors is no file")


@pytest.mark.parametrize("device", ["/dev/zero", None])
def test_a_device_or_pipe_for_a_revision_is_ignored(tmp_path: Path, device: str | None) -> None:
    """A pipe would wait for a writer, /dev/zero fill all memory: the newest folder counts."""
    home = tmp_path / "models--o--m"
    folder = home / "snapshots/aaa"
    folder.mkdir(parents=True)
    (home / "refs").mkdir()
    safetensors(folder / "model-1.safetensors", {"a": ("BF16", 10)})
    place = home / "refs/main"
    os.mkfifo(place) if device is None else place.symlink_to(device)
    assert hub_folder(tmp_path, "o/m") == folder
    found = checkpoint(folder)
    assert (found.weights_bytes, found.problem) == (10, None)


def test_folders_that_cannot_be_read(tmp_path: Path) -> None:
    """A missing folder and a path that cannot be are unknown to a reader, an empty folder has no weights."""
    assert read_checkpoint(tmp_path) is None
    for path in ("/nowhere", "/a\0b"):
        with pytest.raises((OSError, ValueError)):
            list(read_weights(tmp_path, path))
    with pytest.raises(FileNotFoundError):
        read_checkpoint(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("name", "content", "size"),
    [("passwd", b"root:x:0:0", None), ("sha256-0c44", b"GGUF" + bytes(6), 10), ("m.bin", bytes(10), 10)],
)
def test_a_file_is_a_model_by_its_suffix_or_as_gguf(
    tmp_path: Path, name: str, content: bytes, size: int | None
) -> None:
    """Ollama's models have no suffix; any other file has no weights that could be counted."""
    (tmp_path / name).write_bytes(content)
    found = read_checkpoint(tmp_path / name)
    assert (found and found.weights_bytes) == size


def test_a_gguf_model_may_be_cut_into_files(tmp_path: Path) -> None:
    """The command names the first."""
    for number, size in ((1, 10), (2, 5)):
        (tmp_path / f"m-0000{number}-of-00002.gguf").write_bytes(bytes(size))
    found = checkpoint(tmp_path / "m-00001-of-00002.gguf")
    assert (found.weights_bytes, found.files) == (15, 2)
    (tmp_path / "n-00001-of-99999.gguf").write_bytes(b"x")
    found = checkpoint(tmp_path / "n-00001-of-99999.gguf")
    assert (found.files, found.problem) == (1, "n-00002-of-99999.gguf: No such file or directory")


def test_the_cache_of_hugging_face(tmp_path: Path) -> None:
    """By the revision that main is at, else the newest; the name in refs cannot lead elsewhere."""
    home = tmp_path / "models--o--m"
    for revision in ("aaa", "bbb"):
        (home / "snapshots" / revision).mkdir(parents=True)
    os.utime(home / "snapshots/aaa", (1, 1))
    assert hub_folder(tmp_path, "o/m") == home / "snapshots/bbb"
    (home / "refs").mkdir()
    (home / "refs/main").write_text("aaa\n")
    assert hub_folder(tmp_path, "o/m") == home / "snapshots/aaa"
    (home / "refs/main").write_text("../../../etc")
    assert hub_folder(tmp_path, "o/m") == home / "snapshots/bbb"
    assert hub_folder(tmp_path, "o/other") is None
