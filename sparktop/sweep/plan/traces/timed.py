"""Traces whose every request has a time: Mooncake and aiperf, Azure, BurstGPT, Bailian.

A reader is called with each line of a file and returns the requests in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparktop.sweep.plan.traces import fields
from sparktop.sweep.plan.traces.request import FaultError, Recorded

MOONCAKE_BLOCK, BAILIAN_BLOCK = 512, 16
AZURE = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
BURSTGPT = ("Timestamp", "Request tokens", "Response tokens")
_BURSTGPT_COLUMNS = {
    8: (0, 4, 5),  # with "Session ID" and "Elapsed time"
    6: (0, 2, 3),
}
"""Positions of these columns in files without a header, by number of columns."""
_MS = 1000.0
_PROMPTS = ("input_length", "text_input", "messages", "payload")


class MooncakeReader:
    """Reads Mooncake's JSON lines and aiperf's additions to them: sessions, delays and texts.

    The turns of a session hold new text only, so each prompt begins with the one before. In place of the
    server's answer it holds made-up text of the same length.
    """

    def __init__(self) -> None:
        """Start without known sessions."""
        self._lengths: dict[str, int] = {}
        """Tokens of the latest prompt and answer of each session without block ids."""

    def read(self, text: str) -> list[Recorded]:
        """Return the request of a line.

        Raises:
            FaultError: the line is not one of a Mooncake or aiperf file.
        """
        row = fields.json_object(text)
        given = [name for name in _PROMPTS if row.get(name) is not None]
        if len(given) != 1:
            raise FaultError(f"exactly one of {', '.join(_PROMPTS[:2])} is needed, not {len(given)}")
        if given[0] in _PROMPTS[2:]:
            raise FaultError(f"'{given[0]}' is not supported: write input_length or text_input")
        session = fields.word(row, "session_id") if row.get("session_id") is not None else None
        at_s = None
        if row.get("timestamp") is not None or session is None:
            at_s = fields.seconds(row, "timestamp", _MS)
        pause_s = fields.pause(row, "delay", _MS)
        output = fields.tokens(row, "output_length")
        if given == ["text_input"]:
            prompt = fields.word(row, "text_input")
            return [Recorded(at_s, None, output, key=session, parent=session, pause_s=pause_s, text=prompt)]
        return [self._sized(row, at_s, session, pause_s, output)]

    def _sized(
        self, row: Mapping[str, object], at_s: float | None, session: str | None, pause_s: float, output: int
    ) -> Recorded:
        length, blocks = fields.tokens(row, "input_length"), fields.block_ids(row)
        scope = ""
        if session is not None and not blocks:
            scope = f"session {session}"
            length += self._lengths.get(session, 0)
            self._lengths[session] = length + output
        return Recorded(
            at_s,
            length,
            output,
            blocks,
            MOONCAKE_BLOCK if blocks else 0,
            scope,
            key=session,
            parent=session,
            pause_s=pause_s,
        )


class AzureReader:
    """Reads the CSV files of Azure's LLM inference traces of 2023 and 2024."""

    def __init__(self) -> None:
        """Expect a header in the first line; without one the columns are in the usual order."""
        self._at: Sequence[int] = ()

    def read(self, text: str) -> list[Recorded]:
        """Return the request of a row; none of the header.

        Raises:
            FaultError: the row has no such columns.
        """
        row = fields.cells(text)
        if not self._at:
            if not row[0][:1].isdecimal():
                self._at = fields.columns(row, AZURE)
                return []
            self._at = (0, 1, 2)
        when, context, generated = self._at
        return [
            Recorded(
                fields.iso_seconds(fields.cell(row, when, AZURE[0])),
                fields.cell_tokens(row, context, AZURE[1]),
                fields.cell_tokens(row, generated, AZURE[2]),
            )
        ]


class BurstGptReader:
    """Reads the CSV files of BurstGPT."""

    def __init__(self) -> None:
        """Expect a header in the first line; without one the columns are in the usual order."""
        self._at: Sequence[int] = ()

    def read(self, text: str) -> list[Recorded]:
        """Return the request of a row; none of the header.

        Raises:
            FaultError: the row has no such columns.
        """
        row = fields.cells(text)
        if not self._at:
            if not row[0][:1].isdecimal():
                self._at = fields.columns(row, BURSTGPT)
                return []
            if len(row) not in _BURSTGPT_COLUMNS:
                raise FaultError(f"{len(row)} columns: a BurstGPT file without a header has 6 or 8")
            self._at = _BURSTGPT_COLUMNS[len(row)]
        when, request, response = self._at
        return [
            Recorded(
                fields.cell_seconds(row, when, BURSTGPT[0]),
                fields.cell_tokens(row, request, BURSTGPT[1]),
                fields.cell_tokens(row, response, BURSTGPT[2]),
            )
        ]


class BailianReader:
    """Reads the JSON lines of the Qwen-Bailian traces: each prompt is complete, and names the one before."""

    def read(self, text: str) -> list[Recorded]:
        """Return the request of a line.

        Raises:
            FaultError: the line is not one of a Bailian file.
        """
        row = fields.json_object(text)
        parent = row.get("parent_chat_id")
        blocks = fields.block_ids(row)
        return [
            Recorded(
                fields.seconds(row, "timestamp"),
                fields.tokens(row, "input_length"),
                fields.tokens(row, "output_length"),
                blocks,
                BAILIAN_BLOCK if blocks else 0,
                key=fields.word(row, "chat_id"),
                parent=None if parent is None or parent == -1 else fields.word(row, "parent_chat_id"),
            )
        ]
