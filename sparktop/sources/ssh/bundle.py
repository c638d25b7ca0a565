"""The reader that is sent over ssh: a zip file of this package's modules that read a machine, and pynvml.

The file holds the source as it stands here. The same installation always makes the same bytes.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from importlib.util import find_spec

from msgspec import Struct

_PACKAGES = ("hardware",)
"""Packages that are sent whole."""
_MODULES = (
    "__init__",
    "agent/__init__",
    "agent/reader",
    "ending",
    "model/__init__",
    "model/ending",
    "model/failure",
    "model/instant",
    "model/node",
    "model/ranks",
    "model/text",
    "model/workload",
    "sources/__init__",
    "sources/local",
    "sources/wire/__init__",
    "sources/wire/json_line",
    "sources/wire/ranks",
    "sources/wire/reply",
)
"""The other modules that these and `sparktop.agent.reader` import, as paths below the package."""
_MAIN = '''"""Read this machine for the viewer that sent this file: `python3 -I -S reader.pyz`."""

import sys

from sparktop.agent.reader import run

sys.exit(run())
'''
_TIME = (1980, 1, 1, 0, 0, 0)
"""The time of every file in the zip file: the oldest that the format can express."""
_UNIX, _MODE = 3, 0o644
_LEVEL = 6
"""Of compression: 9 takes twice as long for 1 kB less."""


class Bundle(Struct, frozen=True):
    """The zip file and its digest."""

    data: bytes
    sha256: str
    """In hexadecimal digits."""


@cache
def reader_bundle() -> Bundle:
    """Return the reader of this version of sparktop; it is built at the first call, which takes 20 ms."""
    sources = {"__main__.py": _MAIN.encode(), **dict(_own_files()), **dict(_nvml_file())}
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for name in sorted(sources):
            entry = zipfile.ZipInfo(name, _TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system, entry.external_attr = _UNIX, _MODE << 16
            archive.writestr(entry, sources[name], compresslevel=_LEVEL)
    data = written.getvalue()
    return Bundle(data, hashlib.sha256(data).hexdigest())


def _own_files() -> Iterator[tuple[str, bytes]]:
    """Yield name in the zip file and source of each module of this package that is sent."""
    root = files("sparktop")
    for module in _MODULES:
        yield f"sparktop/{module}.py", root.joinpath(f"{module}.py").read_bytes()
    for package in _PACKAGES:
        yield from _below(root.joinpath(package), f"sparktop/{package}")


def _below(folder: Traversable, name: str) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each Python file in `folder` and the folders in it."""
    for entry in folder.iterdir():
        if entry.name.endswith(".py"):
            yield f"{name}/{entry.name}", entry.read_bytes()
        elif entry.is_dir() and entry.name != "__pycache__":
            yield from _below(entry, f"{name}/{entry.name}")


def _nvml_file() -> Iterator[tuple[str, bytes]]:
    """Yield name and source of pynvml, without loading it; nothing where it is not installed."""
    spec = find_spec("pynvml")
    read = None if spec is None else getattr(spec.loader, "get_data", None)  # it may be in a zip file itself
    if spec is not None and read is not None:
        yield "pynvml.py", read(spec.origin)
