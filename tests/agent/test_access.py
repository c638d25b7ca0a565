"""Who may send requests to an agent: addresses, tokens and certificates, before anything is served."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktop.agent.access import (
    Guard,
    bind,
    checked_token,
    is_local,
    is_reachable_from_outside,
    open_tls,
    parse_listen,
    prepare,
    read_token,
)
from sparktop.errors import UsageError

TOKEN = "a-token-of-more-than-16-characters"  # noqa: S105 - known to the tests only


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("127.0.0.1:9750", ("127.0.0.1", 9750)),
        ("spark-a", ("spark-a", 9750)),
        ("[::1]:9751", ("::1", 9751)),
        ("[::]", ("::", 9750)),
    ],
)
def test_an_address_is_host_and_port(text: str, place: tuple[str, int]) -> None:
    """An address is HOST:PORT; the port may be left out, and an IPv6 address stands in brackets."""
    assert parse_listen(text) == place


@pytest.mark.parametrize("text", ["", "::1", "99", "a:65536", "[::1", "http://a:1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    """Any other text is refused with an error that shows the form of an address."""
    with pytest.raises(UsageError, match="HOST:PORT"):
        parse_listen(text)


@pytest.mark.outside
def test_a_socket_of_loopback_is_local() -> None:
    """127.0.0.1 and localhost can be reached from this machine only, 0.0.0.0 from others too."""
    for host, local in (("127.0.0.1", True), ("localhost", True), ("127.8.9.10", True), ("0.0.0.0", False)):
        sockets = bind(host, 0)
        assert is_local(sockets) is local
        assert is_reachable_from_outside(host) is not local
        assert len({one.getsockname()[1] for one in sockets}) == 1
        for one in sockets:
            one.close()


def test_an_address_that_others_reach_needs_a_token_or_insecure(certificate: tuple[Path, Path]) -> None:
    """An address that others reach needs a token or `--insecure`; either warns of what it leaves open."""
    place = ("0.0.0.0", 0)
    with pytest.raises(UsageError, match="--insecure"):
        prepare(place, None, cert=None, key=None, insecure=False)
    cert, key = map(str, certificate)
    warnings = []
    for token, tls in ((None, None), (TOKEN, None), (TOKEN, cert)):
        service = prepare(place, token, cert=tls, key=tls and key, insecure=token is None)
        warnings.append(service.warning())
        service.listeners[0].close()
    assert [one and one.partition(":")[0] for one in warnings] == ["insecure", "no TLS", None]


def test_the_first_line_of_the_file_is_the_token(tmp_path: Path) -> None:
    """The token is the first line of the file, without surrounding spaces; the environment comes second."""
    path = tmp_path / "token"
    path.write_text(f"  {TOKEN} \r\nanother line\n", encoding="utf-8")
    path.chmod(0o600)
    env = {"SPARKTOP_TOKEN": f"{TOKEN}-of-the-environment"}
    assert read_token(str(path), env) == (TOKEN, None)
    assert read_token(None, env) == (f"{TOKEN}-of-the-environment", None)
    assert read_token(None, {}) == (None, None)
    path.chmod(0o604)
    assert "chmod 600" in (read_token(str(path), env)[1] or "")


@pytest.mark.parametrize(
    "text",
    ["", "x" * 15, "x" * 1025, "two words of 16 letters", "ein-Schlüssel-mit-ü"],
)
def test_a_token_that_cannot_serve_is_refused(text: str) -> None:
    """A token that is too short, too long or invalid in a header is refused, without showing it."""
    with pytest.raises(UsageError, match="openssl rand") as refused:
        checked_token(text, "SPARKTOP_TOKEN")
    assert len(text.strip()) < 5 or text not in str(refused.value)


@given(st.text(max_size=60))
def test_only_the_token_is_admitted(given_token: str) -> None:
    """No text but the token is admitted, whatever characters it holds."""
    assert not Guard(TOKEN).admits(f"Bearer {given_token}")
    assert not Guard(TOKEN).admits(given_token)


def test_a_key_with_a_password_is_refused_without_a_question(
    certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    """An encrypted key is refused: OpenSSL would ask for its password, and a service would wait forever."""
    cert, key = certificate
    locked = tmp_path / "locked.pem"
    command = ["openssl", "ec", "-in", str(key), "-aes256", "-passout", "pass:secret", "-out", str(locked)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)  # noqa: S603 - words of this file
    with pytest.raises(UsageError, match="has a password"):
        open_tls(str(cert), str(locked))


@pytest.mark.outside
def test_a_port_in_use_leaves_no_socket_behind() -> None:
    """A port in use is reported in one line, and no socket stays bound."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(
            UsageError, match=f"127.0.0.1:{port}: address already in use: choose another port, or end"
        ):
            bind("127.0.0.1", port)
