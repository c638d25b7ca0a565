"""Requests to a simulated server, and the bodies of its responses, as vLLM 0.32 has them."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar
from zlib import crc32

from msgspec import Struct, field

from sparktop.model.load import RequestEnded
from sparktop.model.text import clean

Value = TypeVar("Value", int, bool, str)
BAD_REQUEST, NOT_FOUND = 400, 404
_COMPLETION_TOKENS = 16
"""Tokens that /v1/completions generates when max_tokens is not given (the API's own default)."""
_MOST_SALT = 1024
"""Characters of a cache salt that count."""


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


class CompletionRequest(Struct, frozen=True):
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
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RefusedError(f"JSON decode error: {clean(error, 100)}", kind="Bad Request") from None
    if not isinstance(fields, dict):
        raise RefusedError(
            "1 validation error:\n  {'type': 'model_attributes_type', 'loc': ('body',), "
            "'msg': 'Input should be a valid dictionary or object to extract fields from'}",
            kind="Bad Request",
        )
    return fields


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
    prompt = body.get(key)
    if prompt is None:
        raise _validation_error(key, "Field required")
    tokens = tokenize_chat(_roles_and_texts(prompt)) if chat else _prompt_tokens(prompt)
    if not tokens:
        raise RefusedError("The decoder prompt cannot be empty", param=None)
    return tuple(tokens)


def read_completion(body: Mapping[str, Any], *, chat: bool, max_model_len: int) -> CompletionRequest:
    """Parse a request to /v1/completions or, with `chat`, to /v1/chat/completions.

    `max_model_len` is the model's context length in tokens.

    Raises:
        RefusedError: the request cannot be served; the message has the reason.
    """
    prompt = read_prompt(body, chat=chat)
    most_tokens = _value(body, "max_tokens", int)
    if chat and (most_completion_tokens := _value(body, "max_completion_tokens", int)) is not None:
        most_tokens = most_completion_tokens
    room = max_model_len - len(prompt)
    if room < 0:
        count = max_model_len + 1  # vLLM 0.32 does not count beyond the first token that does not fit
        message = (
            f"This model's maximum context length is {max_model_len} tokens. However, your prompt contains "
            f"at least {count} input tokens, which exceeds this limit even without any output tokens. Please "
            "reduce the length of the input prompt."
        )
        raise _parameter_error("input_tokens", count, message)
    default = room if chat else _COMPLETION_TOKENS
    # Tokens that do not fit behind the prompt are silently cut off, as in vLLM; no room at all is an error.
    max_tokens = min(room, default if most_tokens is None else most_tokens)
    min_tokens = max(0, _value(body, "min_tokens", int) or 0)
    if max_tokens < 1:
        raise _parameter_error("max_tokens", max_tokens, f"max_tokens must be at least 1, got {max_tokens}.")
    if min_tokens > max_tokens:
        raise RefusedError(
            f"min_tokens must be less than or equal to max_tokens={max_tokens}, got {min_tokens}."
        )
    if _value(body, "n", int) not in {None, 1}:
        raise RefusedError("the simulated engine gives one choice: n must be 1", param="n")
    salt = _value(body, "cache_salt", str)
    if salt == "":
        raise RefusedError("Parameter 'cache_salt' must be a non-empty string if provided.")
    options = body.get("stream_options")
    return CompletionRequest(
        chat=chat,
        prompt=prompt,
        max_tokens=max_tokens,
        min_tokens=min_tokens,
        ignore_eos=bool(_value(body, "ignore_eos", bool)),
        stream=bool(_value(body, "stream", bool)),
        include_usage=isinstance(options, dict) and bool(_value(options, "include_usage", bool)),
        return_token_ids=bool(_value(body, "return_token_ids", bool)),
        cache_salt=salt and salt[:_MOST_SALT],
        seed=_value(body, "seed", int),
    )


def _roles_and_texts(messages: object) -> list[tuple[str, str]]:
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise _validation_error("messages", "Input should be a valid list")
    return [(str(message.get("role", "user")), _content_text(message.get("content"))) for message in messages]


def _content_text(content: object) -> str:
    """Return the text of a message's content: the string, or all parts of type "text" joined."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise _validation_error("messages", "Input should be a valid string")
    texts = (part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text")
    return "".join(text for text in texts if isinstance(text, str))


def _prompt_tokens(prompt: object) -> list[int]:
    """Return the token ids of a prompt.

    The prompt is a string, a list of token ids, or a list whose only element is one of these.

    Raises:
        RefusedError: the prompt has another form or an invalid token id.
    """
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str):
        return tokenize(prompt)
    if not isinstance(prompt, list) or not all(type(token) is int for token in prompt):
        raise _validation_error("prompt", "Input should be a valid string or one list of tokens")
    if prompt and not 0 <= min(prompt) <= max(prompt) < VOCABULARY:
        raise RefusedError(f"Token id {max(prompt)} is out of vocabulary")
    return prompt


def _value(body: Mapping[str, Any], key: str, kind: type[Value]) -> Value | None:
    """Return the value of a key, None if it is null or missing."""
    value: Value | None = body.get(key)
    if value is not None and type(value) is not kind:
        raise _validation_error(key, f"Input should be a valid {kind.__name__}")
    return value


def _parameter_error(name: str, value: int, message: str) -> RefusedError:
    return RefusedError(f"{message} (parameter={name}, value={value})", param=name)


def _validation_error(key: str, message: str) -> RefusedError:
    detail = f"1 validation error:\n  {{'loc': ('body', '{key}'), 'msg': '{message}'}}"
    return RefusedError(detail, kind="Bad Request")


DONE = b"data: [DONE]\n\n"


class TokenReply(Struct):
    """A response in progress: chooses the words of the answer, and formats them as SSE events or as JSON."""

    request_id: str
    model: str
    created_unix_s: int
    asked: CompletionRequest
    output_tokens: int
    """Tokens to generate, including the stop token."""
    stops: bool
    """True if the last token is a stop token, which has no text."""
    written: int = 0
    """Number of tokens formatted so far."""
    _words: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    """All token ids of the answer, including those that are not formatted yet."""
    _head: bytes = b""

    def __post_init__(self) -> None:
        """Choose the words of the answer, at random or by the request's seed, which repeats it."""
        seed = self.request_id if self.asked.seed is None else self.asked.seed
        self._words = answer_words(seed, self.output_tokens - self.stops)
        self.token_ids = [_token_id(word) for word in self._words]
        if self.stops:
            self._words.append("")
            self.token_ids.append(STOP)
        kind = "chat.completion.chunk" if self.asked.chat else "text_completion"
        self._head = f'data: {_json(self._top_fields(kind))[:-1]},"choices":'.encode()

    def chunk(self, tokens: int, *, last: bool) -> bytes:
        """Return the next `tokens` tokens of the answer as an SSE event.

        If `last`, the event carries the finish reason. In a chat, an event that names the role comes before
        the first event with tokens.
        """
        is_first, self.written = self.written, self.written + tokens
        text, ids = "".join(self._words[is_first : self.written]), self.token_ids[is_first : self.written]
        reason = self._finish_reason() if last else None
        prompt = {"prompt_token_ids": list(self.asked.prompt)} if self.asked.return_token_ids else {}
        if not self.asked.chat:
            return self._sse_event(
                self._choice_fields({"text": text, **({} if is_first else prompt)}, ids, reason)
            )
        content = self._sse_event(self._choice_fields({"delta": {"content": text}}, ids, reason))
        if is_first:
            return content
        role = {"delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
        return self._sse_event({"index": 0, **role}, **prompt) + content

    def usage_chunk(self, ended: RequestEnded) -> bytes:
        """Return the SSE event with the token counts of the request, which follows all other events."""
        return self._sse_event(None, usage=self._usage_fields(ended))

    def whole(self, ended: RequestEnded) -> dict[str, Any]:
        """Return the JSON object of the complete response, for a request without streaming."""
        text = "".join(self._words)
        said: dict[str, Any] = {"text": text}
        if self.asked.chat:
            message = {
                "role": "assistant",
                "content": text,
                "reasoning_content": None,
                "tool_calls": list[str](),
            }
            said = {"message": message}
        choice = self._choice_fields(said, self.token_ids, self._finish_reason())
        body = self._top_fields("chat.completion" if self.asked.chat else "text_completion")
        body |= {"choices": [choice], "usage": self._usage_fields(ended)}
        if self.asked.return_token_ids:
            holder = body if self.asked.chat else choice
            holder["prompt_token_ids"] = list(self.asked.prompt)
        return body

    def _top_fields(self, kind: str) -> dict[str, Any]:
        created = self.created_unix_s
        return {"id": self.request_id, "object": kind, "created": created, "model": self.model}

    def _finish_reason(self) -> str:
        return "stop" if self.stops else "length"

    def _sse_event(self, choice: dict[str, Any] | None, **beside: object) -> bytes:
        more = f",{_json(beside)[1:-1]}" if beside else ""
        return self._head + f"[{_json(choice) if choice else ''}]{more}}}\n\n".encode()

    def _choice_fields(self, choice: dict[str, Any], ids: list[int], reason: str | None) -> dict[str, Any]:
        event = {"index": 0, **choice, "logprobs": None, "finish_reason": reason, "stop_reason": None}
        return event | ({"token_ids": ids} if self.asked.return_token_ids else {})

    def _usage_fields(self, ended: RequestEnded) -> dict[str, Any]:
        prompt, generated = len(self.asked.prompt), ended.generated_tokens or 0
        cached = ended.cached_tokens or 0
        return {
            "prompt_tokens": prompt,
            "total_tokens": prompt + generated,
            "completion_tokens": generated,
            "prompt_tokens_details": {"cached_tokens": cached} if cached else None,
        }


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


# A made-up tokenizer: reproducible token ids for any text, and words that are one token each.
#
# A real tokenizer takes megabytes and would add nothing to the demo. Only three properties matter: equal
# texts have equal tokens, texts with a common beginning share the tokens of this beginning, and a client
# can count the tokens of an answer.


VOCABULARY = 200_000
"""Number of token ids that a text can have."""
START, END, MESSAGE, STOP = range(VOCABULARY, VOCABULARY + 4)
"""Special tokens that occur in no text: three around the parts of a chat's messages, one at an answer's
end."""
_ASSISTANT = "assistant"
# A piece of text that stands for a token: " word", "123", ".", " ".
_PIECE = re.compile(r" ?[^\W\d_]{1,7}| ?\d{1,3}| ?[^\w\s]|\s|_")
_KNOWN_PIECES = 50_000
"""Pieces of text whose ids are cached."""

_WORDS = (
    "about above across after again along always among answer any around ask back batch be because before"
    " begin below best better block both bring build by cache call can change city clear clock close come"
    " cool count day deep desk door down draw each early earth easy eight engine even every face fact far"
    " fast few field find fire first five floor follow form four from full game garden give glass go good"
    " grass great green ground grow half hand hard head hear heat help here high hill hold home house how"
    " idea in just keep kind know land large last late learn leave left less let light line list little"
    " long look low machine make many map mean memory mind model month moon more morning most"
    " move much must name near need never new next night nine no north note now number of off often old"
    " on once one only open order other our out over own page paper part pass path people place plain"
    " plan point power prompt queue quick quiet rain read ready real rest right river road rock roof room"
    " round run same sand say sea second see send seven shape ship short side simple six sky slow small"
    " snow so some song soon sound south space spark speak stand star start stay step still stone stop"
    " story street strong such summer sun table take talk tell ten than that then there these thing think"
    " this three through time to token town tree true turn two under until up use very voice wait walk"
    " wall warm watch water way week well west what wheel when where which while white wide wind window"
    " winter with wood word work world write year yes young"
)
WORDS = tuple(_WORDS.split())
"""Words for answers; each word with a space before it is a single token."""


@lru_cache(_KNOWN_PIECES)
def _token_id(piece: str) -> int:
    return crc32(piece.encode("utf-8", "replace")) % VOCABULARY


def tokenize(text: str) -> list[int]:
    """Return the token ids of a text."""
    return [_token_id(piece) for piece in _PIECE.findall(text)]


def tokenize_chat(messages: Iterable[tuple[str, str]]) -> list[int]:
    """Return the token ids of a chat, up to the start of the answer; `messages` has (role, text) pairs.

    An earlier answer has the tokens with which it was generated, so that a prefix cache finds it again.
    """
    tokens: list[int] = []
    for role, text in messages:
        between = () if role == _ASSISTANT else (MESSAGE,)
        tokens += (START, _token_id(role), *between, *tokenize(text), END)
    return [*tokens, START, _token_id(_ASSISTANT)]


def answer_words(seed: int | str, count: int) -> list[str]:
    """Return `count` random words, each with a space before it; equal seeds return equal words.

    Two successive words are never equal, so that no client suspects a model that repeats itself.
    """
    # Meaningless text needs no cryptographic randomness.
    dice = random.Random(seed)  # noqa: S311
    index, words = dice.randrange(len(WORDS)), []
    for _ in range(count):
        index = (index + dice.randrange(1, len(WORDS))) % len(WORDS)
        words.append(f" {WORDS[index]}")
    return words


def block_hashes(tokens: Sequence[int], block_tokens: int, salt: str | None = None) -> tuple[int, ...]:
    """Return a hash for each full block of `block_tokens` tokens, as vLLM's prefix cache uses them.

    A hash covers `salt` and all tokens from the first one to the end of the block. So prompts with different
    salts have no hash in common.
    """
    # Tuples of integers have the same hash in every process, unlike text.
    before = crc32(salt.encode("utf-8", "replace")) if salt else 0
    hashes: list[int] = []
    for end in range(block_tokens, len(tokens) + 1, block_tokens):
        before = hash((before, *tokens[end - block_tokens : end]))
        hashes.append(before)
    return tuple(hashes)
