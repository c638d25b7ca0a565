"""Counts and times on the command line: one way to write them in all commands."""

from __future__ import annotations

import pytest

from sparktop.cli import command_module, parser_of, viewer_parser
from sparktop.commands.arguments import Parser


def _parser(command: str) -> Parser:
    parser = viewer_parser() if command == "watch" else parser_of(command)
    command_module(command).add_arguments(parser)
    return parser


@pytest.mark.parametrize(
    ("words", "key", "value"),
    [
        ("sweep --pp 1k,2K", "prompt_lengths", (1024, 2048)),
        ("sweep --pp 128..1k", "prompt_lengths", (128, 256, 512, 1024)),
        ("sweep --pp 1.5k", "prompt_lengths", (1536,)),
        ("sweep --depth 0,4k,16k", "depths", (0, 4096, 16384)),
        ("sweep --duration 1m30s", "duration_s", 90.0),
        ("sweep --timeout 500ms", "timeout_s", 0.5),
        ("sweep --requests 1k", "requests", 1024),
        ("sweep --agents 1-8", "agents", (1, 2, 4, 8)),
        ("sweep -c 1,4,16..256", "concurrency", (1, 4, 16)),
        ("capacity --pp 1k", "pp", (1024,)),
        ("snapshot --seconds 1m", "seconds", 60.0),
        ("record --seconds 2h", "seconds", 7200.0),
        ("record --max-bytes 1.5GiB", "max_bytes", 3 << 29),
        ("watch --interval 500ms", "interval", 0.5),
    ],
)
def test_counts_have_k_and_times_have_units(words: str, key: str, value: object) -> None:
    """A count may be 1k, a range 1-8 or 1..8, and a time 10s or 2m, whichever command takes it."""
    command, *rest = words.split()
    assert getattr(_parser(command).parse_args(rest), key) == value
