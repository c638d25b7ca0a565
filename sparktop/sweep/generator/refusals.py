"""What the refusal of a request says: the field at fault, or that the prompt is too long for the context."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from typing import Any

from sparktop.model.failure import RequestFailure
from sparktop.net.failure import server_words
from sparktop.sweep.terms.request_errors import ERROR_EVENT, HTTP

_REFUSING = frozenset({f"{HTTP}:400", f"{HTTP}:413", f"{HTTP}:422"})
"""Error codes of requests that a server rejects as such."""
_MOST_CHARACTERS = 4000
"""Of an error message that are searched: some servers repeat the whole request after it."""
_NAME = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*")
"""A name, perhaps with dots, in an error message."""
_QUOTED = re.compile(r"""['"`]([A-Za-z_]\w*(?:\.\w+)*)['"`]""")
"""A name in quotes in an error message."""


def faulty_fields(body: bytes, fields: Collection[str]) -> frozenset[str]:
    """Return those of the request's `fields` that the refusal `body` names as its faults; may be empty.

    Named are the `param` of OpenAI's errors and the `loc` of each of FastAPI's. Without these, the first of
    `fields` that stands in quotes in the message is the fault, else the first that stands there at all: what
    follows lists what is supported, or repeats the request.
    """
    found = _parse_json(body)
    named = {last for path in _named_fields(found) if (last := path.rpartition(".")[2]) in fields}
    if named:
        return frozenset(named)
    words = server_words(body, None, _MOST_CHARACTERS)
    for pattern in (_QUOTED, _NAME):
        for name in pattern.findall(words):
            if (last := name.rpartition(".")[2]) in fields:
                return frozenset({last})
    return frozenset()


def _parse_json(body: bytes) -> Any:  # noqa: ANN401 - JSON of any shape
    try:
        return json.loads(body.strip().removeprefix(b"data:"))
    except (ValueError, RecursionError):
        return None


def _named_fields(found: Any) -> Iterator[str]:  # noqa: ANN401 - as above
    """Yield the dotted path of each field that an error names as its fault."""
    if not isinstance(found, dict):
        return
    for holder in (found.get("error"), found):
        if not isinstance(holder, dict):
            continue
        if isinstance(param := holder.get("param"), str):
            yield param
        for key in ("detail", "errors"):
            listed = holder.get(key)
            for one in listed if isinstance(listed, list) else ():
                place = one.get("loc") if isinstance(one, dict) else None
                if isinstance(place, list):
                    yield ".".join(str(step) for step in place)


_NUMBER = r"(\d{1,3}(?:[,  ]\d{3})+|\d{3,9})(?![\d,])"
"""A number of tokens, with or without separators of thousands."""
_LIMITS = tuple(
    re.compile(pattern.replace("NUMBER", _NUMBER), re.IGNORECASE)
    for pattern in (
        # vLLM, SGLang, OpenAI, LM Studio, llama.cpp and most others
        r"context[ _](?:length|size|window)(?:(?!exceed)\D){0,40}?NUMBER",
        r"n_ctx\D{0,8}?NUMBER",
        # vLLM of a long prompt, LMDeploy, TabbyAPI, TensorRT-LLM
        r"max\w{0,5}[ _](?:model|session|input|seq\w*|prompt)[ _]len(?:gth)?(?:(?!exceed)\D){0,20}?NUMBER",
        r"(?:session_len|max_num_tokens|max_position_embeddings)\D{0,8}?NUMBER",
        # TGI
        r"must be <= NUMBER",
        r"must have less than NUMBER tokens",
        # Anthropic's form, which gateways pass on
        r"> NUMBER maximum",
    )
)
"""How servers state the limit of their context."""
_TOO_LONG = re.compile(
    r"context[ _](?:length|size|window|the)\b.{0,60}(?:exceed|overflow|too small|reached)"
    r"|(?:exceed|overflow|longer than|greater than|larger than).{0,60}context"
    r"|(?:prompt|input)\b.{0,40}\btoo long"
    r"|reduce the length of the (?:messages|prompt|input)",
    re.IGNORECASE,
)
"""How servers say that a prompt is too long, without the limit."""


def stated_context(words: str) -> int | None:
    """Return the limit in tokens that a refusal states, the smallest if several; None if it states none."""
    found = (match[1] for pattern in _LIMITS for match in pattern.finditer(words))
    return min((int(re.sub(r"\D", "", number)) for number in found), default=None)


def is_too_long(words: str) -> bool:
    """Return whether a server's error message says that a prompt is too long for its context."""
    return stated_context(words) is not None or _TOO_LONG.search(words) is not None


def is_refusal(failure: RequestFailure) -> bool:
    """Return whether the server rejected the request rather than failed to serve it.

    It does with HTTP 400, 413 or 422. With another status, or in a stream, its words say that the prompt is
    too long.
    """
    return failure.word in _REFUSING or (
        failure.word.startswith((HTTP, ERROR_EVENT)) and is_too_long(failure.message)
    )
