"""HTTP: bodies in any framing, one table of failures, and no key in what is quoted."""

from __future__ import annotations

import asyncio
import gzip
import time
import zlib
from base64 import b64encode, urlsafe_b64encode
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktop.model.failure import FailureKind
from sparktop.net.client import Request, SharedSession
from sparktop.net.failure import AnswerError, server_words
from sparktop.net.once import post
from sparktop.net.parser import BrokenAnswerError, HttpAnswer
from tests.sources.conftest import RawServer, Serve, answer

# Single GETs: one table of failures, and the status where only the body is unusable.

LOCKED = answer(b"x", "401 Unauthorized", "Content-Encoding: br")
CUT = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nConnection: close\r\n\r\nab"


async def wait_for_the_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Accept and never answer."""
    await reader.read()
    writer.close()


async def ask(server: RawServer, *, deadline_s: float = 60.0) -> int:
    session = SharedSession()
    session.join()
    try:
        request = Request(f"{server.url}/x", "spark-a:80")
        return (
            await session.get(request, deadline_s=deadline_s, clock=time.monotonic, cap_bytes=1000)
        ).status
    finally:
        await session.leave()


async def test_a_redirect_of_the_last_slash_is_followed(serve: Serve) -> None:
    """Discovery and the doctor find a page that is mounted at /x/, as the monitor does."""
    server = await serve({"/x": answer(b"", "307 Away", "Location: /x/"), "/x/": answer(b"page")})
    assert (await ask(server), server.paths) == (200, ["/x", "/x/"])


async def test_an_unreadable_body_keeps_the_status(serve: Serve) -> None:
    """A server that wants a key is known by it, whatever it writes below; so is one that took a document."""
    assert await ask(await serve(LOCKED)) == 401
    server = await serve(CUT)
    assert await post(f"{server.url}/x", b"{}", where="spark-a:80", deadline_s=60.0, token=None) == 200


async def test_without_headers_there_is_no_status(serve: Serve) -> None:
    """The failure of a silent server is one line that names it."""
    with pytest.raises(AnswerError, match="spark-a:80") as raised:
        await ask(await serve(wait_for_the_end), deadline_s=0.2)
    assert raised.value.kind is FailureKind.TIMEOUT


# An HTTP answer's body comes out whole however it was framed, packed and split.


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


@pytest.mark.parametrize(
    "said",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n+5\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 5000,
        b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 3\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000,
    ],
)
def test_what_is_no_answer_is_refused(said: bytes) -> None:
    """Other protocols, broken numbers, unknown encodings and heads without an end are refused."""
    with pytest.raises(BrokenAnswerError):
        read(said)


# What is quoted of a server's error never repeats the key that it was sent.

KEY = "sk-a/B+c=0123 456?ü"
RAW = KEY.encode()


ECHOES = [
    KEY,
    KEY.upper(),
    KEY[::-1],
    quote(KEY, safe=""),
    quote(KEY, safe="").lower(),
    "".join(f"%{byte:02X}" for byte in RAW),
    RAW.hex(),
    RAW.hex(" "),
    "\u200b".join(KEY),
    " ".join(KEY),
    f"{KEY[:10]}\n{KEY[10:]}",
    KEY.replace("/", "\\/"),
    KEY.replace("/", "&#47;"),
    quote(quote(KEY, safe=""), safe=""),
    *(
        encode(before + RAW + b"..").decode()
        for encode in (b64encode, urlsafe_b64encode)
        for before in (b"", b"a", b"ab", b"user:")
    ),
]


@pytest.mark.parametrize("echo", ECHOES)
def test_an_echo_of_the_key_is_masked(echo: str) -> None:
    """Plain, apart, percent-encoded, in hexadecimal digits, in base64 at any offset, and backwards."""
    said = server_words(f"bad key {echo} given".encode(), KEY)
    assert said.startswith("bad key ")
    assert "…" in said
    assert "0123" not in said
    assert "3210" not in said
    assert b64encode(RAW).decode()[4:12] not in said


def test_other_words_stay() -> None:
    """A short key does not tear holes into what the server says."""
    assert server_words(b'{"error": {"message": "no such model"}}', "key-of-the-server") == "no such model"
