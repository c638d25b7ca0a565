"""What NCCL says of ranks, in the text and Markdown forms of a snapshot."""

from __future__ import annotations

from msgspec.structs import replace

from sparktop.model.event import Progress, ProgressView
from sparktop.model.ranks import RanksVerdict, RanksView, RanksWord
from sparktop.model.snapshot import BackendView, Snapshot
from sparktop.report import html, markdown, text_snapshot

SENTENCE = "rank 1 on spark-b does not answer: its process is dead"
VERDICT = RanksVerdict(RanksWord.MISSING, SENTENCE, "look at spark-b first", 3, 10.2)
RANKS = RanksView(VERDICT, 4.0, node="spark-a")


def asked(full: Snapshot, *, stands: bool) -> Snapshot:
    """Return a snapshot whose first backend has an answer of NCCL; it may be stuck for that reason."""
    why = ProgressView(Progress.STUCK, 70.0, SENTENCE) if stands else None
    first: BackendView = replace(full.backends[0], ranks=RANKS, progress=why)
    return replace(full, backends=(first, *full.backends[1:]))


def test_the_verdict_is_a_line_below_its_backend(full_snapshot: Snapshot) -> None:
    """With the number of answers; the sentence is not repeated where the standstill has it."""
    text = text_snapshot.render(asked(full_snapshot, stands=False), 140)
    assert f"  ranks (NCCL): {SENTENCE} (3 answers over 10 s)" in text
    text = text_snapshot.render(asked(full_snapshot, stands=True), 140)
    assert text.count(SENTENCE) == 1
    assert "  ranks (NCCL): rank missing (3 answers over 10 s)" in text


def test_the_verdict_is_a_line_of_the_lists(full_snapshot: Snapshot) -> None:
    """Markdown and HTML have a part of their own for it; without a query there is none."""
    lines = markdown.render(asked(full_snapshot, stands=False)).splitlines()
    start = lines.index("### Ranks, by NCCL")
    assert SENTENCE in lines[start + 2]
    assert "### Ranks, by NCCL" not in markdown.render(full_snapshot)
    assert SENTENCE in html.render(asked(full_snapshot, stands=False), "")
