"""The Zstandard library: of Python from 3.14 on, its backport before.

Importing this module loads it (10 ms): only what reads or writes recordings does. Without the library the
import raises `OutputError`.
"""

from __future__ import annotations

import sys

from sparktop.errors import OutputError

_MISSING = (
    "recordings need the Python package backports.zstd (Python 3.14 has its own): install sparktop anew"
)

try:
    if sys.version_info >= (3, 14):
        from compression.zstd import (
            CompressionParameter,
            DecompressionParameter,
            ZstdCompressor,
            ZstdDecompressor,
            ZstdError,
        )
    else:
        from backports.zstd import (
            CompressionParameter,
            DecompressionParameter,
            ZstdCompressor,
            ZstdDecompressor,
            ZstdError,
        )
except ImportError as error:
    raise OutputError(_MISSING) from error

__all__ = [
    "CompressionParameter",
    "DecompressionParameter",
    "ZstdCompressor",
    "ZstdDecompressor",
    "ZstdError",
]
