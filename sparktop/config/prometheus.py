"""The table `[[prometheus]]` of the configuration file: its schema, its checks, and its target."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from sparktop.config.fields import (
    FileName,
    Harmless,
    Name,
    ReadsFile,
    Sends,
    SendsSecret,
    Strict,
    Url,
    Variable,
)

_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER = re.compile(r"[A-Za-z0-9-]{1,64}")
_SECRET = frozenset({"authorization", "proxy-authorization", "cookie", "x-api-key"})
_LONGEST = 1000


def _label(name: str) -> str:
    if not _LABEL.fullmatch(name):
        raise ValueError("must be the name of a label, as in 'namespace'")
    return name


def _api_url(url: str) -> str:
    for end in ("/api/v1/query", "/api/v1"):
        url = url.removesuffix(end)
    return url.rstrip("/")


def _selector(text: str) -> str:
    """Return label matchers without braces around them.

    Raises:
        ValueError: the text is too long, cannot be printed, or has unequal quotes.
    """
    inner = text.strip().removeprefix("{").removesuffix("}").strip()
    if len(inner) > _LONGEST or not inner.isprintable() or inner.replace('\\"', "").count('"') % 2:
        raise ValueError("must be label matchers, as in 'namespace=\"llm\"'")
    return inner


def _headers(given: dict[str, str]) -> dict[str, str]:
    """Return the headers.

    Raises:
        ValueError: one of them cannot be sent, or would hold a secret. The message never quotes a value.
    """
    for name, value in given.items():
        if not _HEADER.fullmatch(name) or not (value.isascii() and value.isprintable()):
            raise ValueError('must be names and values of HTTP headers, as in { X-Scope-OrgID = "team" }')
        if name.lower() in _SECRET:
            raise ValueError("must hold no secret: use bearer_env, bearer_file or password_env")
    return given


def _listed(given: object) -> object:
    return [given] if isinstance(given, str) else given


Hosts = Annotated[list[Name], BeforeValidator(_listed), Field(min_length=1, max_length=64)]
"""A host, or a list of hosts."""


class PrometheusTable(Strict):
    """`[[prometheus]]`: a Prometheus, or another server with its API, through which servers are watched."""

    name: Harmless[Name] = "prometheus"
    url: Harmless[Annotated[Url, AfterValidator(_api_url)]]
    bearer_env: SendsSecret[Variable | None] = None
    bearer_file: SendsSecret[FileName | None] = None
    basic_user: SendsSecret[Name | None] = None
    password_env: SendsSecret[Variable | None] = None
    tls_ca: ReadsFile[FileName | None] = None
    tls_cert: ReadsFile[FileName | None] = None
    tls_key: ReadsFile[FileName | None] = None
    headers: Sends[Annotated[dict[str, str], AfterValidator(_headers)]] = Field(default_factory=dict)
    selector: Harmless[Annotated[str, AfterValidator(_selector)]] = ""
    group_by: Harmless[list[Annotated[str, AfterValidator(_label)]]] = Field(default_factory=list)
    machine_selector: Harmless[Annotated[str, AfterValidator(_selector)]] = ""
    machines: Harmless[dict[str, Hosts]] = Field(default_factory=dict)
    closer: Harmless[Literal["ask", "auto", "never"]] = "ask"
