"""How much of what comes from outside is read or kept: each bound has the value that was decided for it."""

from __future__ import annotations

import importlib

import pytest

UNITS = {"": 1, "kB": 1 << 10, "MiB": 1 << 20}
BOUNDS = """
net.client.BODY_CAP_BYTES 4 MiB
net.parser._LARGEST_HEAD_BYTES 64 kB
net.parser._LARGEST_UNPACKED_BYTES 64 MiB
sources.decode.MOST_BYTES 4 MiB
sources.decode.TEXT_LIMIT 1000
sources.decode.MOST_ITEMS 64
sources.prometheus.client.MOST_BYTES 20 MiB
sources.prometheus.client.MOST_SERIES 200000
sources.ssh._STDERR_MOST_BYTES 1 MiB
engines.exposition.MAX_SAMPLES 50000
engines.lanes.MAX_LANES 512
engines.lanes.MOST_BUCKETS 512
engines.document.MAX_MODELS 64
agent.reader.LONGEST_LINE 4 kB
agent.access._MOST_TOKEN 1024
browser.server.MOST_VIEWERS 64
browser.server._MOST_FORM 4 kB
browser.drawing._MOST_FILES 2000
hardware.kernel_file.MOST_BYTES 4 MiB
hardware.ras.MOST_BYTES 4 MiB
hardware.ras.MOST_RANKS 4096
hardware.checkpoint._MOST_FILES 2000
hardware.processes.LONGEST_COMMAND 1000
config.watch.MOST_BYTES 1 MiB
watch.discovery.MOST_FOUND 64
watch.listed.MOST_BYTES 1 MiB
watch.listed.MOST_TARGETS 512
recording.frames.MAX_HEAD_BYTES 64 kB
recording.frames.MAX_BODY_BYTES 4 MiB
recording.records.MOST_TARGETS 1024
sweep.generator.stream.LARGEST_EVENT_BYTES 8 MiB
sweep.generator.connection._MOST_BYTES 16 MiB
sweep.result.store.MOST_BYTES 256 MiB
sweep.plan.own_requests.MOST_BYTES 64 MiB
sweep.plan.own_requests.MOST_PROMPTS 100000
sweep.plan.traces.LONGEST_LINE 64 MiB
sweep.plan.traces.MOST_REQUESTS 1000000
sweep.compare.imports.tables._MOST_CHARS 4 MiB
colors.palette._MOST_BYTES 64 kB
"""


@pytest.mark.parametrize("row", BOUNDS.strip().splitlines())
def test_a_bound_has_its_value(row: str) -> None:
    """In bytes with a unit, without one a number of things or characters."""
    place, value, *unit = row.split()
    module, _, name = place.rpartition(".")
    bound = getattr(importlib.import_module(f"sparktop.{module}"), name)
    assert bound == int(value) * UNITS["".join(unit)]
