"""The reader of one machine for a viewer at the other end of standard input and output.

`sparktop agent --stdio` runs it, and a viewer that reaches this machine over ssh can send it here. All that
it imports needs the standard library of Python 3.10 alone, and pynvml where there is an NVIDIA driver.
"""

from __future__ import annotations

import asyncio
import logging

from sparktop.agent.sampler import Sampler
from sparktop.agent.stdio import serve
from sparktop.sources.local import LocalSource

_STDIN, _STDOUT = 0, 1


def run(source: int = _STDIN, sink: int = _STDOUT) -> int:
    """Read requests from the file descriptor `source` and write replies to `sink`; return the exit code.

    Write nothing else, not even a log.
    """
    logging.getLogger().addHandler(logging.NullHandler())
    return asyncio.run(serve(Sampler(LocalSource("agent")), source, sink))
