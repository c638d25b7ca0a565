"""The client of a Prometheus: what it sends, and one clear line for every bad answer."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from aiohttp import web

from sparktop.model.targets import PrometheusTarget
from sparktop.net.failure import AnswerError
from sparktop.sources.prometheus import client as client_module
from sparktop.sources.prometheus.client import PrometheusClient, TooMuchError
from tests.sources.prometheus.api_server import api, refused, scalar, vector

pytestmark = pytest.mark.outside


async def asked(answering: Callable[[str], web.Response], **settings: object) -> object:
    """Return the answer or the error of one query."""
    async with api(answering) as (url, heads):
        client = PrometheusClient(PrometheusTarget("main", url, **settings))  # type: ignore[arg-type]  # any settings of the target
        try:
            return await client.query("up"), heads[0]
        except AnswerError as error:
            return error
        finally:
            await client.close()


async def test_secrets_and_headers_are_sent(tmp_path: Path) -> None:
    """A bearer token, one from a file, a user with a password, and a tenant are sent in headers."""
    token = tmp_path / "token"
    token.write_text("from-file\n")
    for settings, wanted in (
        ({"bearer": "secret"}, "Bearer secret"),
        ({"bearer_file": str(token)}, "Bearer from-file"),
        ({"basic_user": "me", "password": "pass"}, "Basic bWU6cGFzcw=="),
        ({}, None),
    ):
        found = await asked(lambda _: vector(), headers={"X-Scope-OrgID": "a|b"}, **settings)
        assert isinstance(found, tuple), found
        assert found[1].get("Authorization") == wanted
        assert found[1]["X-Scope-OrgID"] == "a|b"
        assert found[1]["Accept-Encoding"] == "gzip"


@pytest.mark.parametrize(
    ("answer", "message", "too_much"),
    [
        (lambda: refused(422, "query\x1b[31m processing"), "422: WHERE refuses the query: query [31m", True),
        (
            lambda: web.Response(status=401),
            "401: WHERE wants a key: bearer_env, bearer_file or basic_",
            False,
        ),
        (lambda: web.Response(status=401, text="no org id\n"), "wants a tenant: headers = {", False),
        (
            lambda: web.Response(status=400, text="Client sent an HTTP request to an HTTPS server.\n"),
            " wants TLS: write https:// in its URL",
            False,
        ),
        (lambda: web.Response(status=404, text="no route /api\n"), "/api/v1/query: no route /api; is", False),
        (lambda: web.Response(text='{"status": "success"}'), "not one of the Prometheus HTTP API", False),
        (lambda: web.Response(text="[" * 100_000), "not one of the Prometheus HTTP API", False),
    ],
)
async def test_bad_answers_are_one_line(
    answer: Callable[[], web.Response], message: str, *, too_much: bool
) -> None:
    """Each is an error with a clean line; those about too much differ."""
    error = await asked(lambda _: answer())
    assert isinstance(error, AnswerError), error
    assert isinstance(error, TooMuchError) is too_much
    assert error.message.isprintable()
    said = message.replace("WHERE", error.message.split(" ")[1] if "WHERE" in message else "")
    assert said in error.message


@pytest.mark.parametrize("settings", [{"bearer": "sk-secret"}, {"basic_user": "me", "password": "sk-secret"}])
async def test_a_secret_that_is_repeated_is_not_quoted(settings: dict[str, object]) -> None:
    """An error that repeats the token or the password is quoted without it."""
    error = await asked(lambda _: web.Response(status=401, text="not valid: sk-secret\n"), **settings)
    assert isinstance(error, AnswerError), error
    assert error.message.endswith(": not valid: …")


async def test_a_missing_path_is_named() -> None:
    """The error of a request that is no query names the path of that request."""
    async with api(lambda _: vector()) as (url, _):
        client = PrometheusClient(PrometheusTarget("main", url))
        with pytest.raises(AnswerError, match="has no /api/v1/targets"):
            await client.get("/api/v1/targets")
        await client.close()


async def test_a_key_with_a_password_is_refused_without_a_question(tmp_path: Path) -> None:
    """A client's key that is encrypted is an error: OpenSSL would ask for its password on the terminal."""
    cert, key = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-subj", "/CN=me", "-passout", "pass:secret"]
    await asyncio.to_thread(
        subprocess.run, [*command, "-keyout", key, "-out", cert], check=True, capture_output=True, timeout=300
    )
    client = PrometheusClient(PrometheusTarget("main", "https://h:1", tls_cert=cert, tls_key=key))
    with pytest.raises(AnswerError, match="has a password"):
        await client.query("up")
    await client.close()


async def test_too_large_and_too_many_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer over the cap, also where gzip made it small, and one with too many series."""
    monkeypatch.setattr(client_module, "MOST_BYTES", 1 << 20)
    large = await asked(lambda _: web.Response(text='{"a": "' + "x" * (2 << 20)))
    assert isinstance(large, TooMuchError)
    assert "over 1 MiB" in large.message


async def test_the_clock_is_the_date_where_instant_queries_lag() -> None:
    """VictoriaMetrics evaluates in the past: the Date header counts there, else the query's time."""
    for behind_s in (300.0, 0.2):
        async with api(lambda _, late=behind_s: scalar(time.time() - late)) as (url, _):  # type: ignore[misc]  # a default argument binds the value
            client = PrometheusClient(PrometheusTarget("main", url))
            _, ahead_s = await client.clock_shift()
            await client.close()
        assert abs(ahead_s) < 60  # a busy machine adds seconds
