"""How many tokens each read brought: by ids, by running totals, by the total at the end, or by chunks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktop.model.load import TokenSource
from sparktop.sweep.generator.stream import CountedTokens, TokenStream

WORD = {"content": " word"}
ROLE = {"role": "assistant", "content": ""}
CALL = {"tool_calls": [{"index": 0, "function": {"arguments": '{"content":"x"}'}}]}


def event(
    delta: Mapping[str, Any] | None, *, total: int | None = None, finish: str | None = None, ids: int = 0
) -> dict[str, Any]:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    if ids:
        choices[0]["token_ids"] = list(range(ids))
    usage = None if total is None else {"prompt_tokens": 9, "completion_tokens": total}
    return {"choices": choices, "usage": usage}


def raw(found: object) -> bytes:
    return f"data: {json.dumps(found, separators=(',', ':'))}\n\n".encode()


def counted(*reads: Sequence[Mapping[str, Any]], first_event_is_token: bool = False) -> CountedTokens:
    """Feed one read a second from second 1 on; return the count."""
    stream = TokenStream()
    for at, events in enumerate(reads, 1):
        stream.feed(float(at), b"".join(map(raw, events)))
    return stream.counted(first_event_is_token=first_event_is_token)


def parts(found: CountedTokens) -> tuple[list[float], list[int], TokenSource | None, int | None]:
    return list(found.times), found.counts, found.source, found.generated


def test_one_token_a_chunk_is_what_the_total_at_the_end_says() -> None:
    """Three chunks and a total of three: every token's time is known."""
    found = counted(
        [event(ROLE)], [event(WORD)], [event(WORD)], [event(WORD, finish="stop"), event(None, total=3)]
    )
    assert parts(found) == ([2.0, 3.0, 4.0], [1, 1, 1], TokenSource.USAGE, 3)


def test_a_finish_event_is_the_end_token_if_it_comes_a_step_later() -> None:
    """The token that ends a text has no text of its own; its step took as long as any other."""
    ending = [event({}, finish="stop"), event(None, total=4)]
    late = counted([event(WORD)], [event(WORD)], [event(WORD)], ending)
    assert parts(late) == ([1.0, 2.0, 3.0, 4.0], [1, 1, 1, 1], TokenSource.USAGE, 4)
    at_once = counted([event(WORD)], [event(WORD)], [event(WORD), *ending])
    assert parts(at_once) == ([1.0, 2.0, 3.0], [1, 1, 1], TokenSource.USAGE, 4)


def test_running_totals_count_whatever_a_chunk_shows() -> None:
    """Several tokens in a chunk, a part of a call, an empty text, a finish event: all count what they add."""
    found = counted(
        [event(ROLE, total=0)],
        [event(WORD, total=1)],
        [event(WORD, total=4), event(CALL, total=5)],
        [event({"content": ""}, total=6)],
        [event({}, total=9, finish="length"), event(None, total=9)],
    )
    assert parts(found) == ([2.0, 3.0, 4.0, 5.0], [1, 4, 1, 3], TokenSource.CHUNK_USAGE, 9)
    assert found.hidden_before == 0


@pytest.mark.parametrize(
    ("totals", "hidden"),
    [
        ((1, 2, 3, 4), 0),
        ((2, 3, 4, 5), 1),
        ((41, 42, 43, 44), 40),
        ((8, 16, 24, 31), 0),
        ((9,), 8),
        ((1,), 0),
    ],
)
def test_a_first_chunk_larger_than_the_others_hides_what_came_before(
    totals: tuple[int, ...], hidden: int
) -> None:
    """Forty tokens of hidden reasoning, or an unsent first token, are hidden; eight in each chunk are not."""
    found = counted(*([event(WORD, total=total)] for total in totals), [event(None, total=totals[-1])])
    assert found.hidden_before == hidden
    assert sum(found.counts) + hidden == totals[-1]


def test_a_total_without_a_chunk_before_it_is_no_running_total() -> None:
    """Totals only in the finish event, all 0 until then, or missing in a chunk: the chunks count one each."""
    for middle in (None, 0):
        found = counted(
            [event(WORD, total=middle)], [event(WORD, total=middle)], [event({}, total=40, finish="stop")]
        )
        assert parts(found) == ([1.0, 2.0], [1, 1], TokenSource.USAGE, 40)
    found = counted([event(WORD, total=1)], [event(WORD)], [event(WORD, total=9)], [event(None, total=9)])
    assert parts(found) == ([1.0, 2.0, 3.0], [1, 1, 1], TokenSource.USAGE, 9)


def test_ids_that_hold_back_a_part_are_not_the_whole() -> None:
    """Ids of what is shown do not add up to the total where reasoning is hidden."""
    found = counted([event(WORD, ids=1)], [event(WORD, ids=2)], [event(None, total=9)])
    assert parts(found) == ([1.0, 2.0], [1, 2], TokenSource.USAGE, 9)
    whole = counted([event({}, ids=1)], [event(WORD, ids=2)], [event(None, total=3)])
    assert parts(whole) == ([1.0, 2.0], [1, 2], TokenSource.TOKEN_IDS, 3)
    both = counted([event(WORD, ids=1, total=7)], [event(WORD, ids=1, total=8)], [event(None, total=8)])
    assert parts(both) == ([1.0, 2.0], [1, 1], TokenSource.CHUNK_USAGE, 8)
    assert both.hidden_before == 6


@given(st.lists(st.integers(1, 9), min_size=1, max_size=30))
def test_running_totals_place_every_token(sizes: list[int]) -> None:
    """Whatever the chunks hold, reads and hidden tokens add up to the server's count."""
    totals = [sum(sizes[: at + 1]) for at in range(len(sizes))]
    found = counted(*([event(WORD, total=total)] for total in totals))
    assert found.source is TokenSource.CHUNK_USAGE
    assert sum(found.counts) + found.hidden_before == found.generated == sum(sizes)
    assert min(found.counts) > 0
