"""An HTTP answer's body comes out whole however it was framed, packed and split."""

from __future__ import annotations

import gzip
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.net.parser import BrokenAnswerError, HttpAnswer


def read(*reads: bytes) -> tuple[HttpAnswer, bytes]:
    answer = HttpAnswer()
    return answer, b"".join(answer.feed(piece) for piece in reads)


def chunked(body: bytes, sizes: list[int]) -> bytes:
    out, at = b"", 0
    for size in sizes:
        piece = body[at : at + size]
        at += size
        if piece:
            out += b"%X;note=1\r\n%s\r\n" % (len(piece), piece)
    if body[at:]:
        out += b"%x\r\n%s\r\n" % (len(body[at:]), body[at:])
    return out + b"0\r\nX-Trailer: 1\r\n\r\n"


@given(
    st.binary(max_size=200),
    st.lists(st.integers(1, 30), max_size=10),
    st.lists(st.integers(0, 1000), max_size=15),
    st.sampled_from(["", "gzip", "deflate"]),
    st.sampled_from(["chunked", "length", "close"]),
)
@settings(max_examples=250, deadline=None)
def test_any_framing_and_split_gives_the_body(
    body: bytes, sizes: list[int], cuts: list[int], packing: str, framing: str
) -> None:
    """Chunked, with a length or up to the close; plain or packed; cut anywhere: the same body."""
    packed = {"": body, "gzip": gzip.compress(body), "deflate": zlib.compress(body)}[packing]
    head = b"HTTP/1.1 200 OK\r\n" + (f"Content-Encoding: {packing}\r\n".encode() if packing else b"")
    if framing == "chunked":
        head, sent = head + b"Transfer-Encoding: chunked\r\n", chunked(packed, sizes)
    elif framing == "length":
        head, sent = head + b"Content-Length: %d\r\n" % len(packed), packed
    else:
        sent = packed
    whole = b"HTTP/1.1 100 Continue\r\n\r\n" + head + b"\r\n" + sent
    places = sorted({cut % (len(whole) + 1) for cut in cuts})
    answer, found = read(*(whole[a:b] for a, b in zip([0, *places], [*places, len(whole)], strict=True)))
    assert found == body
    assert answer.status == 200
    assert answer.done == (framing != "close")
    assert answer.close()
    assert answer.reusable == (framing != "close")


def test_a_body_that_breaks_off_is_not_whole() -> None:
    """A connection closed inside a chunk, or before a length is reached, leaves the answer unfinished."""
    for rest in (b"Transfer-Encoding: chunked\r\n\r\n5\r\nab", b"Content-Length: 5\r\n\r\nab"):
        answer, body = read(b"HTTP/1.1 200 OK\r\n" + rest)
        assert body == b"ab"
        assert not answer.close()


@pytest.mark.parametrize(
    ("said", "reusable"),
    [
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", False),
        (b"HTTP/1.1 204 No Content\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nmore", False),
    ],
)
def test_connections_are_used_again_only_when_both_agree(said: bytes, reusable: bool) -> None:  # noqa: FBT001 - a table
    """`Connection: close`, HTTP/1.0 and bytes after the body end a connection."""
    answer, _ = read(said)
    answer.feed(b"")
    assert answer.done
    assert answer.reusable == reusable


@pytest.mark.parametrize(
    "said",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 2x0 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: \xb2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n+5\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 5000,
        b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 3\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000,
    ],
)
def test_what_is_no_answer_is_refused(said: bytes) -> None:
    """Other protocols, broken numbers, unknown encodings and heads without an end are refused."""
    with pytest.raises(BrokenAnswerError):
        read(said)


def test_a_packed_bomb_is_refused() -> None:
    """A packed body that grows a thousandfold ends before it fills the memory."""
    bomb = gzip.compress(bytes(100 << 20))
    with pytest.raises(BrokenAnswerError):
        read(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb), bomb)
