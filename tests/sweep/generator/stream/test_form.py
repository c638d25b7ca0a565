"""Events that are recognised by an earlier one are read exactly as without it, whatever the stream holds."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparktop.sweep.generator import stream as stream_form
from sparktop.sweep.generator.stream import TokenStream


class WithoutForms(TokenStream):
    """Parses each event separately, without forms."""

    __slots__ = ()

    def feed(self, at: float, body: bytes) -> int:
        """Parse a read."""
        return self._feed_any(at, body)


TEXTS = st.one_of(
    st.sampled_from(
        ["", " word", "\n\n", '"', 'a "reasoning" b', "\\", '"token_ids":[1,2]', '","x":"', "é😀", "\ud800"]
    ),
    st.text(max_size=6),
)
DELTAS = st.one_of(
    TEXTS.map(lambda text: {"content": text}),
    TEXTS.map(lambda text: {"content": text}),
    TEXTS.map(lambda text: {"reasoning_content": text}),
    TEXTS.map(lambda text: {"content": None, "reasoning": text}),
    TEXTS.map(lambda text: {"content": "", "reasoning": text}),
    TEXTS.map(lambda text: {"tool_calls": [{"index": 0, "id": text, "function": {"arguments": text}}]}),
    st.just({"role": "assistant", "content": ""}),
    st.just({}),
)
CHUNKS = st.tuples(
    DELTAS,
    st.integers(0, 3),
    st.integers(0, 3),
    st.sampled_from([None] * 12 + ["length", "absent"]),
    st.sampled_from(
        [None] * 20 + [{"error": {"message": "no"}}, {"choices": [], "usage": {"completion_tokens": 3}}]
    ),
)
SHAPES = st.fixed_dictionaries(
    {name: st.booleans() for name in ("ids", "totals", "chat", "tight", "escaped", "early", "null")}
)
CHANGES = st.lists(
    st.tuples(
        st.integers(0, 5000),
        st.sampled_from([b"", b'"', b"\\", b"0", b"7,8", b"}", b"\xff", b"\n", b":", b",", b"e"]),
    ),
    max_size=2,
)


def bytes_of(chunk: tuple[Any, ...], shape: dict[str, bool], number: int) -> bytes:
    """Return an event of a stream; `number` of its tokens came before."""
    delta, ids, more, finish, other = chunk
    choice: dict[str, Any] = {"index": 0}
    choice |= {"delta": delta} if shape["chat"] else {"text": delta.get("content", "")}
    choice |= {"logprobs": None} | ({} if finish == "absent" else {"finish_reason": finish})
    if shape["ids"]:
        choice["token_ids"] = [1000 + number + one for one in range(ids)]
    found: dict[str, Any] = {"choices": [choice]}
    name = {
        "id": f"chatcmpl-{number if shape['null'] else 7}",
        "created": 1_760_000_000 + number // 3,
        "model": "m",
    }
    found = name | found if shape["early"] else found | name
    if shape["totals"]:
        found["usage"] = {
            "prompt_tokens": 9,
            "total_tokens": 9 + number + more,
            "completion_tokens": number + more,
        }
    elif shape["null"]:
        found["usage"] = None
    separators = (",", ":") if shape["tight"] else None
    text = json.dumps(other or found, separators=separators, ensure_ascii=shape["escaped"])
    return b"data: " + text.encode("utf-8", "surrogatepass") + b"\n\n"


def seen(stream: TokenStream, live: int) -> tuple[object, ...]:
    """Return all that a reader of a stream can see, except the model, which tokens alone do not name."""
    counted = stream.counted(first_event_is_token=True)
    ends = (stream.done, stream.error, stream.fault, stream.finish_reason, stream.usage, stream.prelude_s)
    return live, stream.tokens, stream.has_begun, stream.is_reasoning, list(stream.times), counted, ends


@given(
    SHAPES,
    st.lists(CHUNKS, min_size=3, max_size=14),
    st.lists(st.integers(1, 3), max_size=14),
    CHANGES,
    st.booleans(),
)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_stream_is_read_alike_with_and_without_forms(
    shape: dict[str, bool],
    chunks: list[tuple[Any, ...]],
    sizes: list[int],
    changes: list[tuple[int, bytes]],
    cut: bool,  # noqa: FBT001 - drawn
) -> None:
    """Texts with quotes and keys, ids, totals, errors, damage and cut events: the same at every read."""
    events = [bytes_of(chunk, shape, 2 * number) for number, chunk in enumerate(chunks)]
    reads = []
    for size in [*sizes, *([1] * len(events))]:
        reads.append(b"".join(events[:size]))
        del events[:size]
    for place, new in changes:
        number, at = place % len(reads), place // 7
        read = reads[number]
        reads[number] = read[:at] + new + read[at + 1 :]
    if cut:
        reads = [piece for read in reads for piece in (read[: len(read) // 2], read[len(read) // 2 :])]
    stream_form._patterns.clear()
    quick, careful = TokenStream(), WithoutForms()
    for at, read in enumerate(reads, 1):
        assert seen(quick, quick.feed(float(at), read)) == seen(careful, careful.feed(float(at), read))
