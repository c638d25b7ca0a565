"""Parses requests to a simulated server, with vLLM's checks and error messages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from sparktop.demo.engine.tokens import VOCABULARY, tokenize, tokenize_chat
from sparktop.model.text import clean

BAD_REQUEST, NOT_FOUND = 400, 404
_COMPLETION_TOKENS = 16
"""Tokens that /v1/completions generates when max_tokens is not given (the API's own default)."""
_MOST_SALT = 1024


class RefusedError(Exception):
    """A request that the simulated server does not accept; the exception's text is vLLM's error message."""

    def __init__(
        self,
        message: str,
        *,
        status: int = BAD_REQUEST,
        kind: str = "BadRequestError",
        param: str | None = None,
    ) -> None:
        """Store the fields of the error response: message, HTTP status, error type and invalid parameter."""
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.param = param

    def body(self) -> dict[str, object]:
        """Return the JSON object of the error response."""
        error = {"message": str(self), "type": self.kind, "param": self.param, "code": self.status}
        return {"error": error}


class Asked(Struct, frozen=True):
    """A parsed completion request."""

    chat: bool
    prompt: tuple[int, ...]
    """Token ids of the prompt."""
    max_tokens: int
    min_tokens: int = 0
    ignore_eos: bool = False
    stream: bool = False
    include_usage: bool = False
    return_token_ids: bool = False
    cache_salt: str | None = None
    seed: int | None = None


def read_body(body: bytes) -> dict[str, Any]:
    """Parse a request body as a JSON object.

    Raises:
        RefusedError: the body is not a JSON object.
    """
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RefusedError(f"JSON decode error: {clean(error, 100)}", kind="Bad Request") from None
    if not isinstance(found, dict):
        raise RefusedError(
            "1 validation error:\n  {'type': 'model_attributes_type', 'loc': ('body',), "
            "'msg': 'Input should be a valid dictionary or object to extract fields from'}",
            kind="Bad Request",
        )
    return found


def check_model(body: Mapping[str, Any], served: str) -> None:
    """Check that a request names the model `served`, or no model.

    Raises:
        RefusedError: the request names another model.
    """
    model = body.get("model")
    if model is not None and model != served:
        raise RefusedError(
            f"The model `{clean(model, 200)}` does not exist.",
            status=NOT_FOUND,
            kind="NotFoundError",
            param="model",
        )


def read_prompt(body: Mapping[str, Any], *, chat: bool) -> tuple[int, ...]:
    """Return the token ids of the prompt or, with `chat`, of the messages.

    Raises:
        RefusedError: the request has no prompt, or its prompt cannot be parsed.
    """
    key = "messages" if chat else "prompt"
    found = body.get(key)
    if found is None:
        raise _invalid(key, "missing", "Field required")
    tokens = tokenize_chat(_messages(found)) if chat else _prompt(found)
    if not tokens:
        raise RefusedError("The decoder prompt cannot be empty", param=None)
    return tuple(tokens)


def read_completion(body: Mapping[str, Any], *, chat: bool, max_model_len: int) -> Asked:
    """Parse a request to /v1/completions or, with `chat`, to /v1/chat/completions.

    `max_model_len` is the model's context length in tokens.

    Raises:
        RefusedError: the request cannot be served; the message has the reason.
    """
    prompt = read_prompt(body, chat=chat)
    wanted = _whole(body, "max_tokens")
    if chat and (newer := _whole(body, "max_completion_tokens")) is not None:
        wanted = newer
    _check_length(len(prompt), longest=max_model_len, is_text=chat or _is_text(body["prompt"]))
    room = max_model_len - len(prompt)
    default = room if chat else _COMPLETION_TOKENS
    # Tokens that do not fit behind the prompt are silently cut off, as in vLLM; no room at all is an error.
    max_tokens = min(room, default if wanted is None else wanted)
    min_tokens = _whole(body, "min_tokens") or 0
    if max_tokens < 1:
        raise _parameter("max_tokens", max_tokens, f"max_tokens must be at least 1, got {max_tokens}.")
    if min_tokens < 0:
        raise RefusedError(f"min_tokens must be greater than or equal to 0, got {min_tokens}.")
    if min_tokens > max_tokens:
        raise RefusedError(
            f"min_tokens must be less than or equal to max_tokens={max_tokens}, got {min_tokens}."
        )
    if _whole(body, "n") not in {None, 1}:
        raise RefusedError("the simulated engine gives one choice: n must be 1", param="n")
    options = body.get("stream_options")
    return Asked(
        chat=chat,
        prompt=prompt,
        max_tokens=max_tokens,
        min_tokens=min_tokens,
        ignore_eos=_flag(body, "ignore_eos"),
        stream=_flag(body, "stream"),
        include_usage=isinstance(options, dict) and _flag(options, "include_usage"),
        return_token_ids=_flag(body, "return_token_ids"),
        cache_salt=_salt(body),
        seed=_whole(body, "seed"),
    )


def _check_length(prompt: int, *, longest: int, is_text: bool) -> None:
    """Raise `RefusedError` if a prompt of `prompt` tokens is longer than the context of `longest` tokens.

    The message is that of vLLM 0.32, which does not count a text prompt (`is_text`) beyond the first token
    that does not fit.
    """
    if prompt <= longest:
        return
    count = longest + 1 if is_text else prompt
    qualifier = "at least " if count == longest + 1 else ""
    message = (
        f"This model's maximum context length is {longest} tokens. However, your prompt contains "
        f"{qualifier}{count} input tokens, which exceeds this limit even without any output tokens. Please "
        "reduce the length of the input prompt."
    )
    raise _parameter("input_tokens", count, message)


def _messages(found: object) -> list[tuple[str, str]]:
    if not isinstance(found, list) or not all(isinstance(message, dict) for message in found):
        raise _invalid("messages", "list_type", "Input should be a valid list")
    return [(str(message.get("role", "user")), _text(message.get("content"))) for message in found]


def _text(content: object) -> str:
    """Return the text of a message's content: the string, or all parts of type "text" joined."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise _invalid("messages", "string_type", "Input should be a valid string")
    texts = (part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text")
    return "".join(text for text in texts if isinstance(text, str))


def _is_text(prompt: object) -> bool:
    """Return whether a prompt is a string or a list of one string, instead of token ids."""
    return isinstance(prompt, str) or (
        isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str)
    )


def _prompt(found: object) -> list[int]:
    """Return the token ids of a prompt.

    The prompt is a string, a list of token ids, or a list whose only element is one of these.

    Raises:
        RefusedError: the prompt has another form or an invalid token id.
    """
    if isinstance(found, list) and len(found) == 1 and isinstance(found[0], str | list):
        found = found[0]
    if isinstance(found, str):
        return tokenize(found)
    if not isinstance(found, list) or not all(type(token) is int for token in found):
        raise _invalid("prompt", "string_type", "Input should be a valid string or one list of tokens")
    if found and not 0 <= min(found) <= max(found) < VOCABULARY:
        raise RefusedError(f"Token id {max(found)} is out of vocabulary")
    return found


def _whole(body: Mapping[str, Any], key: str) -> int | None:
    found = body.get(key)
    if found is not None and type(found) is not int:
        raise _invalid(key, "int_type", "Input should be a valid integer")
    return found


def _flag(body: Mapping[str, Any], key: str) -> bool:
    found = body.get(key)
    if found is not None and type(found) is not bool:
        raise _invalid(key, "bool_type", "Input should be a valid boolean")
    return bool(found)


def _salt(body: Mapping[str, Any]) -> str | None:
    found = body.get("cache_salt")
    if found is None:
        return None
    if not isinstance(found, str) or not found:
        raise RefusedError("Parameter 'cache_salt' must be a non-empty string if provided.")
    return found[:_MOST_SALT]


def _parameter(name: str, value: int, message: str) -> RefusedError:
    return RefusedError(f"{message} (parameter={name}, value={value})", param=name)


def _invalid(key: str, kind: str, message: str) -> RefusedError:
    detail = f"1 validation error:\n  {{'type': '{kind}', 'loc': ('body', '{key}'), 'msg': '{message}'}}"
    return RefusedError(detail, kind="Bad Request")
