"""What is quoted of a server's error never repeats the key that it was sent."""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode
from urllib.parse import quote

import pytest

from sparktop.net.failure import server_words

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
    *(
        encode(before + RAW + b"..").decode()
        for encode in (b64encode, urlsafe_b64encode)
        for before in (b"", b"a", b"ab", b"user:")
    ),
]


@pytest.mark.parametrize("echo", ECHOES)
def test_an_echo_of_the_key_is_masked(echo: str) -> None:
    """Plain, percent-encoded, as hexadecimal digits, in base64 at any offset, and backwards."""
    said = server_words(f"bad key {echo} given".encode(), KEY)
    assert said.startswith("bad key ")
    assert "…" in said
    assert "0123" not in said
    assert "3210" not in said
    assert b64encode(RAW).decode()[4:12] not in said


def test_other_words_stay() -> None:
    """A short key does not tear holes into what the server says."""
    assert server_words(b'{"error": {"message": "no such model"}}', "key-of-the-server") == "no such model"
