"""Types of the values of the configuration file, each with its validation."""

from __future__ import annotations

import re
from enum import Enum
from typing import Annotated, TypeAlias, TypeVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from sparktop.colors.palette import palettes, theme_problems
from sparktop.model.text import clean
from sparktop.nearest import did_you_mean

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LONGEST_QUERY = 2000


def _printable_name(name: str) -> str:
    if not name or clean(name, 64) != name:
        raise ValueError("must be 1 to 64 printable characters without space at the ends")
    return name


def _http_url(url: str) -> str:
    """Return `url` without a trailing slash.

    Raises:
        ValueError: not a plain http(s) URL. The message never quotes it, because it may hold a password.
    """
    example = "as in 'http://127.0.0.1:8000'"
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"must start with http:// or https://, {example}")
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  # a port that is not a number raises ValueError here
    except ValueError:
        raise ValueError(f"is not a URL, {example}") from None
    if not parts.hostname or clean(url, 500) != url or " " in url:
        raise ValueError(f"is not a URL, {example}")
    if parts.username is not None or parts.query or parts.fragment:
        raise ValueError("must hold no password, query or fragment; keys go into environment variables")
    return url.rstrip("/")


def _variable(name: str) -> str:
    """Return `name` if it can name an environment variable.

    Raises:
        ValueError: no variable can have this name. The message never quotes it: it may be the secret itself.
    """
    if not _VARIABLE.fullmatch(name):
        raise ValueError("must be the name of an environment variable, never the key itself")
    return name


def known_theme(name: str) -> str:
    """Return `name` if it is the name of a theme.

    Raises:
        ValueError: there is no such theme; the message has the most similar name.
    """
    known = palettes()
    if name not in known:
        near = _broken_theme(name) or did_you_mean(name, known) or f" (known: {', '.join(known)})"
        raise ValueError(f"names no theme: '{clean(name, 40)}'{near}")
    return name


def _broken_theme(name: str) -> str:
    """Return "; " and the fault of the user's theme file called `name`; "" if there is no such fault."""
    files = tuple(f"{clean(name, 60)}{suffix}:" for suffix in (".toml", ".theme"))
    return next((f"; {problem}" for problem in theme_problems() if problem.startswith(files)), "")


def _file_name(name: str) -> str:
    if not name or clean(name, 4096) != name:
        raise ValueError("must name a file")
    return name


def _command(name: str) -> str:
    if not name or clean(name, 256) != name or name.startswith("-"):
        raise ValueError("must be a command or its path: 1 to 256 printable characters, no '-' in front")
    return name


def _webhook_url(url: str) -> str:
    """Return `url` unchanged if it is a valid webhook URL.

    Raises:
        ValueError: the URL is invalid. The message never quotes the URL, because it may contain a secret.
    """
    address, _, query = url.partition("?")
    if "@" in address.partition("://")[2].partition("/")[0]:
        raise ValueError("must hold no user name or password: a token goes into webhook_token_env")
    _http_url(address)
    if clean(query, _LONGEST_QUERY) != query or " " in query or "#" in query:
        raise ValueError("is no URL, as in 'https://example.org/alerts'")
    return url


def _argument(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must be printable text: a program or one of its arguments")
    return text


def arguments(value: object) -> object:
    """Return `value` unchanged; raise a `ValueError` if it is a string, because a hook must be a list."""
    if isinstance(value, str):
        message = "must be a list: a program and its arguments, as in ['/path/to/program', 'argument']"
        raise ValueError(message)  # noqa: TRY004 - pydantic reports a ValueError only
    return value


Name = Annotated[str, AfterValidator(_printable_name)]
Url = Annotated[str, AfterValidator(_http_url)]
Variable = Annotated[str, AfterValidator(_variable)]
FileName = Annotated[str, AfterValidator(_file_name)]
Command = Annotated[str, AfterValidator(_command)]
WebhookUrl = Annotated[str, AfterValidator(_webhook_url)]
Argument = Annotated[str, AfterValidator(_argument)]
Count = Annotated[int, Field(ge=1)]
Number = Annotated[int, Field(ge=1, le=65_536)]
Depth = Annotated[int, Field(ge=0, le=10_000_000)]
Share = Annotated[float, Field(gt=0, le=1)]
Percent = Annotated[float, Field(gt=0, le=100)]
Limit = Annotated[float, Field(gt=0)]


class Reach(Enum):
    """What a setting can do beyond addresses and looks, in words for the question whether to trust its file.

    Each setting has one of these marks, its own or that of its table. One without a mark is not harmless.
    The worst come first.
    """

    PROGRAM = "runs a program"
    SECRET = "sends a secret to a server that the file names"  # noqa: S105 - a sentence
    FILE = "reads a file"
    REQUEST = "sends what the file says to a server that the file names"
    LOAD = "puts load on servers when it is started"
    CONTROL = "changes keys, limits or what is stored and asked"
    UNKNOWN = "does what a found file may not do"
    NONE = ""


_T = TypeVar("_T")
Runs: TypeAlias = Annotated[_T, Reach.PROGRAM]
SendsSecret: TypeAlias = Annotated[_T, Reach.SECRET]
ReadsFile: TypeAlias = Annotated[_T, Reach.FILE]
Sends: TypeAlias = Annotated[_T, Reach.REQUEST]
Loads: TypeAlias = Annotated[_T, Reach.LOAD]
Steers: TypeAlias = Annotated[_T, Reach.CONTROL]
Harmless: TypeAlias = Annotated[_T, Reach.NONE]
"""The mark of an address, or of how something is shown or judged: a file found by chance may set it."""


class Strict(BaseModel):
    """Base of all tables of the file: no unknown keys, no type conversions, no NaN."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)
