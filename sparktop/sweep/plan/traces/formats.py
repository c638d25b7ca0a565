"""The formats of trace files, and their recognition from the first line."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Protocol

from sparktop.sweep.plan.traces import fields
from sparktop.sweep.plan.traces.conversations import TraceLabReader, WekaReader
from sparktop.sweep.plan.traces.request import FaultError, Recorded
from sparktop.sweep.plan.traces.timed import (
    AZURE,
    BURSTGPT,
    AzureReader,
    BailianReader,
    BurstGptReader,
    MooncakeReader,
)


class TraceFormat(StrEnum):
    """The formats of traces, by the names that `--trace-format` accepts."""

    MOONCAKE = "mooncake"
    AIPERF = "aiperf"
    AZURE = "azure"
    BURSTGPT = "burstgpt"
    BAILIAN = "bailian"
    WEKA = "weka"
    TRACELAB = "tracelab"


class LineReader(Protocol):
    """Reads the lines of one file in order."""

    def read(self, text: str) -> list[Recorded]:
        """Return the requests of a line; raise `FaultError` if it cannot be used."""


_READERS: dict[TraceFormat, Callable[[], LineReader]] = {
    TraceFormat.MOONCAKE: MooncakeReader,
    TraceFormat.AIPERF: MooncakeReader,
    TraceFormat.AZURE: AzureReader,
    TraceFormat.BURSTGPT: BurstGptReader,
    TraceFormat.BAILIAN: BailianReader,
    TraceFormat.WEKA: WekaReader,
    TraceFormat.TRACELAB: TraceLabReader,
}
_FIELDS = (
    (TraceFormat.WEKA, {"requests"}),
    (TraceFormat.TRACELAB, {"round_index", "newly_append_tokens"}),
    (TraceFormat.BAILIAN, {"chat_id"}),
    (TraceFormat.AIPERF, {"session_id", "delay", "text_input", "messages", "payload"}),
    (TraceFormat.MOONCAKE, {"input_length", "hash_ids"}),
)
"""Formats of JSON lines, in order, with fields of which a first line has at least one."""
_KNOWN = ", ".join(TraceFormat)


def new_reader(form: TraceFormat) -> LineReader:
    """Return a reader for a file of the format `form`."""
    return _READERS[form]()


def recognise(text: str) -> TraceFormat:
    """Return the format of a file whose first line that is not blank is `text`.

    Raises:
        FaultError: it belongs to none of the formats.
    """
    if text.startswith("["):
        raise FaultError("a JSON list: write one object per line")
    if text.startswith("{"):
        row = fields.json_object(text)
        for form, names in _FIELDS:
            if names & row.keys():
                return form
        raise FaultError(f"a JSON object of none of the known formats: {_KNOWN}")
    row_cells = [one.strip().lower() for one in fields.cells(text)]
    for form, names_of in ((TraceFormat.AZURE, AZURE), (TraceFormat.BURSTGPT, BURSTGPT)):
        if sum(name.lower() in row_cells for name in names_of) > 1:
            return form
    if len(row_cells) == len(AZURE) and "-" in row_cells[0] and row_cells[0][:1].isdecimal():
        return TraceFormat.AZURE
    if len(row_cells) in {6, 8} and row_cells[0][:1].isdecimal():
        return TraceFormat.BURSTGPT
    raise FaultError(f"none of the known formats: {_KNOWN}; choose one with --trace-format")
