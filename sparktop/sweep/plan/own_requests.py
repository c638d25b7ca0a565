"""What a user adds to each request: prompts of his own, fields of the body, and headers.

Texts of fields and headers may be secrets. Prompts come from a file that is read whole: JSON Lines, a JSON
list, or one prompt a line. An entry of JSON has its prompt under `prompt`, `text`, `text_input` or
`question`, as `messages` of the chat API, or as ShareGPT's `conversations`; it may be below `body`, as in
files of OpenAI's batch API. Of messages that end with an answer, the answer is left out. Of conversations,
what comes before the first answer is the prompt.
"""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Iterator, Mapping
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any, NoReturn

from msgspec import Struct

from sparktop.errors import UsageError
from sparktop.files import read_bounded
from sparktop.model.text import clean, reason_of

MOST_BODY_BYTES = 256 << 10
"""Most bytes of further fields of a body, as JSON."""
MOST_HEADERS = 32
"""Most further headers."""
_LONGEST_VALUE = 8192
"""Characters of a header's value."""
_DIGITS = 8
"""Hexadecimal digits of a digest of requests."""
HIDDEN = "…"
"""Stands for a text that may be a secret."""
_SWEEP_FIELDS = {
    "model": "--model names it",
    "messages": "--prompts gives your own",
    "prompt": "--prompts gives your own",
    "max_tokens": "--tg says how many",
    "max_completion_tokens": "--tg says how many",
    "stream": "it measures streams",
    "stream_options": "it counts tokens by them",
    "return_token_ids": "it counts tokens by them",
    "n": "it measures one answer a request",
    "best_of": "it measures one answer a request",
}
"""Fields of a body that the sweep sets itself, with what to do instead, or why."""
_SWEEP_HEADERS = {
    "authorization": "--api-key-env gives a key to the target that it is for",
    "host": "it follows from the URL",
    "content-length": "it follows from the body",
    "content-type": "bodies are JSON",
    "transfer-encoding": "bodies are sent whole",
    "accept-encoding": "answers are timed as they come",
    "connection": "connections are kept",
}
"""Headers that the sweep sets itself, with what to do instead, or why."""
_HEADER = re.compile(r"[ \t]*([!#$%&'*+.^_`|~0-9A-Za-z-]{1,100})[ \t]*[=:][ \t]*(.*?)[ \t]*", re.DOTALL)
"""A header as NAME=VALUE or NAME: VALUE."""


def parse_extra_body(text: str) -> Mapping[str, Any]:
    """Return the fields of a JSON object, which are added to the body of each request.

    Raises:
        UsageError: the text is not such an object, or has a field that the sweep sets itself.
    """
    try:
        fields = json.loads(text) if len(text) <= MOST_BODY_BYTES else None
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise UsageError("--extra-body: must be a JSON object, as in '{\"temperature\": 0}'")
    return checked_body(fields)


def checked_body(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return `body` if it can be added to the body of each request.

    Raises:
        UsageError: it has a field that the sweep sets itself, or a value that JSON cannot hold.
    """
    for name, reason in _SWEEP_FIELDS.items():
        if name in body:
            raise UsageError(f"--extra-body: the sweep sets {name} itself: {reason}")
    try:
        text = json.dumps(body, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise UsageError("--extra-body: holds a value that is not JSON, such as a date or NaN") from None
    if len(text) > MOST_BODY_BYTES:
        raise UsageError(f"--extra-body: is larger than {MOST_BODY_BYTES >> 10} KiB")
    return body


def parse_headers(texts: list[str]) -> Mapping[str, str]:
    """Return headers by name, of texts such as "X-Tenant=a" or "X-Tenant: a".

    Raises:
        UsageError: a text is no header, or one that the sweep sets itself. The message quotes no value.
    """
    headers: dict[str, str] = {}
    for text in texts:
        match = _HEADER.fullmatch(text)
        if match is None:
            raise UsageError("--header: write NAME=VALUE, as in X-Tenant=a")
        headers[match[1]] = match[2]
    return checked_headers(headers)


def checked_headers(headers: Mapping[str, str]) -> Mapping[str, str]:
    """Return `headers` if they can be added to each request.

    Raises:
        UsageError: as `parse_headers`.
    """
    for name, value in headers.items():
        shown_name = clean(name, 60)
        if (reason := _SWEEP_HEADERS.get(name.lower())) is not None:
            raise UsageError(f"--header: the sweep sets {shown_name} itself: {reason}")
        if _HEADER.fullmatch(f"{name}=") is None:
            raise UsageError(f"--header: {shown_name} is no name of a header")
        if not (value.isascii() and value.isprintable()) or len(value) > _LONGEST_VALUE:
            raise UsageError(f"--header: the value of {shown_name} holds what no HTTP header may hold")
    if len(headers) > MOST_HEADERS:
        raise UsageError(f"--header: {len(headers)} headers: at most {MOST_HEADERS}")
    return headers


def without_texts(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Return a JSON value with "…" in place of each text, which may be a secret; names of fields stay."""
    if isinstance(value, Mapping):
        return {name: without_texts(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [without_texts(part) for part in value]
    return HIDDEN if isinstance(value, str) else value


def texts_of(value: Any) -> Iterator[str]:  # noqa: ANN401 - any JSON value
    """Yield each text in a JSON value, at any depth; names of fields are none."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from texts_of(part)


def request_digest(body: Mapping[str, Any], headers: Mapping[str, str]) -> str | None:
    """Return the first digits of the SHA-256 of what a user adds to each request; None for nothing.

    They are too few to find a text by trial, and enough to see that two sweeps sent different ones.
    """
    if not body and not headers:
        return None
    names = {name.lower(): value for name, value in headers.items()}
    return sha256(json.dumps([dict(body), names], sort_keys=True).encode()).hexdigest()[:_DIGITS]


MOST_BYTES = 64 << 20
"""Most bytes of a file of prompts."""
MOST_PROMPTS = 100_000
"""Most prompts of a file."""
_LETTERS_PER_TOKEN = 4
"""A guess, for forecasts."""
_TEXTS = ("prompt", "text", "text_input", "question")
"""Keys of a prompt in an entry."""
_TALKS = ("conversations", "conversation")
"""Keys of ShareGPT's conversations in an entry."""
_ROLES = {"human": "user", "user": "user", "system": "system"}
"""Roles of messages by the `from` of ShareGPT's turns; any other turn is an answer."""
_ANSWERS = frozenset({"assistant"})
"""Roles of answers in messages."""
_IS_LIST = re.compile(r"\s*\[\s*[{\"\]]")
"""The begin of a JSON list."""

Prompt = str | tuple[Mapping[str, Any], ...]
"""A text, or messages of the chat API."""


class PromptFile(Struct, frozen=True):
    """A file of prompts that was read once."""

    path: str
    digest: str
    """SHA-256 of its content in hexadecimal digits."""
    count: int
    """Number of prompts."""
    about_tokens: int
    """Mean length in tokens as a guess, four letters each: the servers count the true one."""
    has_messages: bool = False
    """True if a prompt is a list of messages, which only the chat API takes."""

    @property
    def name(self) -> str:
        """Name of the file without its folder, for display."""
        return clean(Path(self.path).name, 60)


def find_prompts(path: str) -> PromptFile:
    """Read a file of prompts and return what it holds; one that has not changed is not read again.

    Raises:
        UsageError: the file cannot be used; the message has the line, or the entry of a list.
    """
    digest, prompts = _read_file(path, _state_of(path))
    total = sum(map(letters, prompts))
    has_messages = any(not isinstance(prompt, str) for prompt in prompts)
    about = max(1, round(total / _LETTERS_PER_TOKEN / len(prompts)))
    return PromptFile(str(Path(path).absolute()), digest, len(prompts), about, has_messages)


@lru_cache(maxsize=2)
def read_prompts(file: PromptFile) -> tuple[Prompt, ...]:
    """Return the prompts of a file that `find_prompts` has read; they are kept.

    Raises:
        UsageError: the file cannot be used, or has changed since.
    """
    digest, prompts = _read_file(file.path, _state_of(file.path))
    if digest != file.digest:
        raise UsageError(f"{file.name}: has changed since the sweep began")
    return prompts


def _state_of(path: str) -> tuple[int, ...] | None:
    """Return what differs after a change of a file; None for one that is not there."""
    try:
        about = Path(path).stat()
    except (OSError, ValueError):
        return None
    return about.st_ino, about.st_size, about.st_mtime_ns


def prompt_at(file: PromptFile, number: int, salt: str) -> tuple[Prompt, None]:
    """Return (the prompt of a request, None for its unknown length).

    Requests of one `salt` have the prompts of the file in order, from one that depends on the salt on.
    """
    prompts = read_prompts(file)
    start = Random(salt).randrange(len(prompts))  # noqa: S311 - a load, no secret
    return prompts[(start + number) % len(prompts)], None


@lru_cache(maxsize=2)
def _read_file(path: str, _state: tuple[int, ...] | None) -> tuple[str, tuple[Prompt, ...]]:
    """Return (SHA-256, prompts) of a file.

    Raises:
        UsageError: as `find_prompts`.
    """
    shown_path = clean(path, 200)
    try:
        body, about = read_bounded(Path(path), MOST_BYTES)
    except (OSError, ValueError) as error:
        raise UsageError(f"{shown_path}: cannot be read: {reason_of(error)}") from None
    if not stat.S_ISREG(about.st_mode):
        raise UsageError(f"{shown_path}: is not a regular file: the load generator reads it again")
    if len(body) > MOST_BYTES:
        raise UsageError(f"{shown_path}: is larger than {MOST_BYTES >> 20} MiB: give a part of it")
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = body.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{shown_path}, line {line:,}: is not UTF-8") from None
    prompts: list[Prompt] = []
    for where, prompt in _entries(shown_path, text, is_text=path.lower().endswith(".txt")):
        if not prompt:
            raise UsageError(f"{where}: the prompt is empty")
        prompts.append(prompt)
        if len(prompts) > MOST_PROMPTS:
            raise UsageError(f"{shown_path}: has more than {MOST_PROMPTS:,} prompts: give a part of it")
    if not prompts:
        raise UsageError(f"{shown_path}: holds no prompt")
    return sha256(body).hexdigest(), tuple(prompts)


def _entries(shown_path: str, text: str, *, is_text: bool) -> Iterator[tuple[str, Prompt]]:
    """Yield (where it stands, prompt) for each entry of a file."""
    if not is_text and _IS_LIST.match(text):
        for number, entry in enumerate(_parse_json(shown_path, text), 1):
            where = f"{shown_path}, entry {number:,}"
            yield where, _prompt_of(where, entry)
        return
    is_json = not is_text and text.lstrip().startswith("{")
    for number, line in enumerate(text.split("\n"), 1):
        where = f"{shown_path}, line {number:,}"
        if line.strip():
            yield where, _prompt_of(where, _parse_json(where, line)) if is_json else line.strip()


def _parse_json(where: str, text: str) -> Any:  # noqa: ANN401 - JSON of any shape
    try:
        return json.loads(text)
    except RecursionError:
        raise UsageError(f"{where}: is nested too deeply") from None
    except ValueError as error:
        raise UsageError(f"{where}: is not JSON: {clean(error, 80)}") from None


def _prompt_of(where: str, entry: object) -> Prompt:
    """Return the prompt of an entry of a file; `where` names it in messages."""
    if isinstance(entry, str):
        return entry
    if isinstance(entry, dict) and isinstance(entry.get("body"), dict):
        entry = entry["body"]
    if not isinstance(entry, dict):
        _refuse(where)
    if "messages" in entry:
        return _chat_messages(where, entry["messages"])
    if (talk := next((entry[key] for key in _TALKS if key in entry), None)) is not None:
        return _opening_messages(where, talk)
    prompt = next((entry[key] for key in _TEXTS if entry.get(key) is not None), None)
    if isinstance(prompt, list):
        return _chat_messages(where, prompt)
    return prompt if isinstance(prompt, str) else _refuse(where)


def _refuse(where: str) -> NoReturn:
    raise UsageError(f"{where}: has no prompt: write it as prompt, messages or conversations")


def _chat_messages(where: str, listed: object) -> Prompt:
    """Return messages of the chat API without the answers at their end."""
    messages = listed if isinstance(listed, list) else []
    roles = [message.get("role") if isinstance(message, dict) else None for message in messages]
    if not messages or not all(isinstance(role, str) for role in roles):
        raise UsageError(f"{where}: messages must be a list of objects with role and content")
    while messages and messages[-1]["role"] in _ANSWERS:
        messages = messages[:-1]
    if not messages:
        raise UsageError(f"{where}: has only answers")
    return tuple(messages)


def _opening_messages(where: str, talk: object) -> Prompt:
    """Return the turns of a conversation of ShareGPT before its first answer, as messages."""
    messages: list[Mapping[str, str]] = []
    turns = talk if isinstance(talk, list) else []
    for turn in turns:
        if not isinstance(turn, dict):
            break
        role = _ROLES.get(str(turn.get("from", turn.get("role"))))
        content = turn.get("value", turn.get("content"))
        if role is None or not isinstance(content, str):
            if messages:
                break
            continue  # some begin with an answer
        messages.append({"role": role, "content": content})
    if not any(message["role"] == "user" and message["content"] for message in messages):
        raise UsageError(f"{where}: the conversation has no turn of a person before its first answer")
    return messages[0]["content"] if len(messages) == 1 else tuple(messages)


def letters(prompt: Prompt) -> int:
    """Return the number of characters of a prompt, all its messages together."""
    if isinstance(prompt, str):
        return len(prompt)
    contents = (message.get("content") for message in prompt)
    return sum(len(content) for content in contents if isinstance(content, str))
