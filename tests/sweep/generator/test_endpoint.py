"""URLs are parsed once, and unusable ones are refused before anything is sent."""

from __future__ import annotations

import pytest

from sparktop.sweep.generator.connection import EndpointError, resolve
from sparktop.sweep.generator.wire import WorkerTarget


@pytest.mark.outside
async def test_an_address_in_its_parts() -> None:
    """Scheme, port and path come from the URL; a trailing /v1 and slashes are not part of the path."""
    found = await resolve(WorkerTarget("http://127.0.0.1:8000/some path/v1/"), 0.0)
    assert (found.host, found.path, found.tls) == ("127.0.0.1", "/some%20path", None)
    assert found.addresses[0][1:] == ("127.0.0.1", 8000)
    assert (await resolve(WorkerTarget("https://127.0.0.1"), 0.0)).addresses[0][2] == 443


@pytest.mark.outside
async def test_a_head_holds_what_a_server_needs() -> None:
    """A head names host, key and length, and asks for nothing packed."""
    found = await resolve(WorkerTarget("http://[::1]:8000", api_key="key-1"), 0.0)
    head = found.head("POST", "/v1/completions", 12).decode()
    assert head.startswith("POST /v1/completions HTTP/1.1\r\nHost: [::1]:8000\r\n")
    assert head.endswith("\r\n\r\n")
    for line in ("Authorization: Bearer key-1", "Content-Length: 12", "Accept-Encoding: identity"):
        assert f"\r\n{line}\r\n" in head
    assert "key-1" not in repr(found)


@pytest.mark.parametrize(
    ("url", "key", "word"),
    [
        ("ftp://a", None, "unreachable"),
        ("nonsense", None, "unreachable"),
        ("http://a:99999", None, "unreachable"),
        ("http://[::1", None, "unreachable"),
        ("http://127.0.0.1", "ke\ny", "unreachable"),
        ("http://127.0.0.1", "schlüssel", "unreachable"),
        ("http://" + "a" * 70 + ".invalid", None, "dns"),
    ],
)
async def test_what_cannot_be_used_is_told(url: str, key: str | None, word: str) -> None:
    """A wrong scheme, port or key, and a name that cannot exist, end in one line each."""
    with pytest.raises(EndpointError) as caught:
        await resolve(WorkerTarget(url, api_key=key), 0.0)
    assert caught.value.failure.word == word
    assert caught.value.failure.message.isprintable()
