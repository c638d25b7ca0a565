"""The Zstandard library: the standard library's from Python 3.14 on, else the package backports.zstd.

Importing this module loads the library (10 ms), so import it only to read or write recordings. If the library
is missing, the import raises `OutputError`.
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
