"""The formats of trace files: Mooncake's JSON lines, aiperf's additions to them, and Azure's CSV files."""

from __future__ import annotations

from enum import StrEnum

from sparktop.sweep.plan.traces import fields
from sparktop.sweep.plan.traces.request import FaultError, Recorded


class TraceFormat(StrEnum):
    """The formats of traces, by the names that `--trace-format` accepts."""

    MOONCAKE = "mooncake"
    AIPERF = "aiperf"
    AZURE = "azure"


Memory = dict[str, int]
"""What a reader keeps from the earlier lines of a file."""

_BLOCK = 512
"""Tokens of each block of a Mooncake prompt."""
_AZURE = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_PROMPTS = ("input_length", "text_input", "messages", "payload")
_AIPERF = {"session_id", "delay", "text_input", "messages", "payload"}
"""Fields of a first line, one of which tells aiperf from Mooncake."""
_MS = 1000.0
_KNOWN = ", ".join(TraceFormat)


def read_line(form: TraceFormat, text: str, memory: Memory) -> Recorded | None:
    """Return the request of a line of a file; None for a header.

    `memory` is empty at the first line of a file, and belongs to the file until its end.

    Raises:
        FaultError: the line is not one of such a file.
    """
    return _azure(text, memory) if form is TraceFormat.AZURE else _mooncake(text, memory)


def _mooncake(text: str, lengths: Memory) -> Recorded:
    """Read a line of Mooncake or aiperf.

    The turns of a session hold new text only, so each prompt begins with the one before. In place of the
    server's answer it holds made-up text of the same length. `lengths` has the tokens of the latest prompt
    and answer of each session without block ids.
    """
    row = fields.json_object(text)
    given = [name for name in _PROMPTS if row.get(name) is not None]
    if len(given) != 1:
        raise FaultError(f"exactly one of {', '.join(_PROMPTS[:2])} is needed, not {len(given)}")
    if given[0] in _PROMPTS[2:]:
        raise FaultError(f"'{given[0]}' is not supported: write input_length or text_input")
    session = fields.word(row, "session_id") if row.get("session_id") is not None else None
    has_time = row.get("timestamp") is not None or session is None
    at_s = fields.seconds(row, "timestamp", _MS) if has_time else None
    pause_s, output = fields.pause(row, "delay", _MS), fields.tokens(row, "output_length")
    if given == ["text_input"]:
        prompt = fields.word(row, "text_input")
        return Recorded(at_s, None, output, session=session, pause_s=pause_s, text=prompt)
    length, blocks, scope = fields.tokens(row, "input_length"), fields.block_ids(row), ""
    if session is not None and not blocks:
        scope = f"session {session}"
        length += lengths.get(session, 0)
        lengths[session] = length + output
    size = _BLOCK if blocks else 0
    return Recorded(at_s, length, output, blocks, size, scope, session=session, pause_s=pause_s)


def _azure(text: str, columns: Memory) -> Recorded | None:
    """Read a row of Azure's LLM inference traces of 2023 and 2024; `columns` are the positions by name."""
    row = fields.cells(text)
    if not columns:
        is_header = not row[0][:1].isdecimal()
        columns.update(zip(_AZURE, fields.columns(row, _AZURE) if is_header else (0, 1, 2), strict=True))
        if is_header:
            return None
    when, context, generated = _AZURE
    return Recorded(
        fields.iso_seconds(fields.cell(row, columns[when], when)),
        fields.cell_tokens(row, columns[context], context),
        fields.cell_tokens(row, columns[generated], generated),
    )


def recognise(text: str) -> TraceFormat:
    """Return the format of a file whose first line that is not blank is `text`.

    Raises:
        FaultError: it belongs to none of the formats.
    """
    if text.startswith("["):
        raise FaultError("a JSON list: write one object per line")
    if text.startswith("{"):
        row = fields.json_object(text)
        # The fields of a Qwen-Bailian line have Mooncake's names with other units.
        if "chat_id" in row or not (_AIPERF | {"input_length", "hash_ids"}) & row.keys():
            raise FaultError(f"a JSON object of none of the known formats: {_KNOWN}")
        return TraceFormat.AIPERF if _AIPERF & row.keys() else TraceFormat.MOONCAKE
    row_cells = [one.strip().lower() for one in fields.cells(text)]
    has_header = sum(name.lower() in row_cells for name in _AZURE) > 1
    if has_header or (len(row_cells) == len(_AZURE) and "-" in row_cells[0] and row_cells[0][:1].isdecimal()):
        return TraceFormat.AZURE
    raise FaultError(f"none of the known formats: {_KNOWN}; choose one with --trace-format")
