"""Requests to a simulated server, its toy tokenizer, and the bodies of responses, as vLLM 0.32 has them."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any
from zlib import crc32

import msgspec
from msgspec import Struct, field

from sparktop.model.load import RequestEnded
from sparktop.model.text import clean

BAD_REQUEST, NOT_FOUND = 400, 404
_COMPLETION_TOKENS = 16
"""Tokens that /v1/completions generates when max_tokens is not given (the API's own default)."""


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


class ChatMessage(Struct, frozen=True):
    """A message of a chat."""

    role: str = "user"
    content: str | list[dict[str, Any]] | None = None
    """The text, or parts with a "type" each."""

    @property
    def text(self) -> str:
        """The text, or that of all parts that are text, joined."""
        if self.content is None or isinstance(self.content, str):
            return self.content or ""
        texts = (part.get("text") for part in self.content if part.get("type") == "text")
        return "".join(text for text in texts if isinstance(text, str))


class RequestBody(Struct, frozen=True):
    """The fields of a request that the simulated server reads, as clients send them."""

    model: str | None = None
    messages: list[ChatMessage] | None = None
    prompt: str | list[int] | None = None
    """Text or token ids."""
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    """Of a chat, in place of `max_tokens`."""
    min_tokens: int | None = None
    n: int | None = None
    ignore_eos: bool | None = None
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    return_token_ids: bool | None = None
    cache_salt: str | None = None
    seed: int | None = None


class CompletionRequest(Struct, frozen=True):
    """A completion request that can be served."""

    body: RequestBody
    chat: bool
    prompt: tuple[int, ...]
    """Token ids of the prompt."""
    max_tokens: int
    min_tokens: int


def read_body(body: bytes) -> RequestBody:
    """Parse a request body.

    Raises:
        RefusedError: the body is not a JSON object, or a field of it has another type.
    """
    try:
        return msgspec.json.decode(body, type=RequestBody)
    except (ValueError, RecursionError) as error:
        raise RefusedError(f"1 validation error: {clean(error, 100)}", kind="Bad Request") from None


def check_model(body: RequestBody, served: str) -> None:
    """Check that a request names the model `served`, or no model.

    Raises:
        RefusedError: the request names another model.
    """
    if body.model not in {None, served}:
        message = f"The model `{clean(body.model, 200)}` does not exist."
        raise RefusedError(message, status=NOT_FOUND, kind="NotFoundError", param="model")


def read_prompt(body: RequestBody, *, chat: bool) -> tuple[int, ...]:
    """Return the token ids of the prompt or, with `chat`, of the messages.

    Raises:
        RefusedError: the request has no prompt.
    """
    if chat:
        tokens = tokenize_chat([(message.role, message.text) for message in body.messages or ()])
    else:
        tokens = tokenize(body.prompt) if isinstance(body.prompt, str) else body.prompt or []
    if not tokens or (chat and not body.messages):
        raise RefusedError("The decoder prompt cannot be empty")
    return tuple(tokens)


def read_completion(body: RequestBody, *, chat: bool, max_model_len: int) -> CompletionRequest:
    """Return what a request to /v1/completions or, with `chat`, to /v1/chat/completions asks for.

    `max_model_len` is the model's context length in tokens.

    Raises:
        RefusedError: the request cannot be served; the message has the reason.
    """
    prompt = read_prompt(body, chat=chat)
    room = max_model_len - len(prompt)
    if room < 0:
        count = max_model_len + 1  # vLLM 0.32 does not count beyond the first token that does not fit
        message = (
            f"This model's maximum context length is {max_model_len} tokens. However, your prompt contains "
            f"at least {count} input tokens, which exceeds this limit even without any output tokens. Please "
            "reduce the length of the input prompt."
        )
        raise _parameter_error("input_tokens", count, message)
    most_tokens = body.max_tokens
    if chat and body.max_completion_tokens is not None:
        most_tokens = body.max_completion_tokens
    default = room if chat else _COMPLETION_TOKENS
    # Tokens that do not fit behind the prompt are silently cut off, as in vLLM; no room at all is an error.
    max_tokens = min(room, default if most_tokens is None else most_tokens)
    if max_tokens < 1:
        raise _parameter_error("max_tokens", max_tokens, f"max_tokens must be at least 1, got {max_tokens}.")
    if body.n not in {None, 1}:
        raise RefusedError("the simulated engine gives one choice: n must be 1", param="n")
    min_tokens = min(max_tokens, max(0, body.min_tokens or 0))
    return CompletionRequest(body, chat, prompt, max_tokens, min_tokens)


def _parameter_error(name: str, value: int, message: str) -> RefusedError:
    return RefusedError(f"{message} (parameter={name}, value={value})", param=name)


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
    """What each SSE event begins with: its fields up to those of the choices, whose object is still open."""

    def __post_init__(self) -> None:
        """Choose the words of the answer, at random or by the request's seed, which repeats it."""
        seed = self.request_id if self.asked.body.seed is None else self.asked.body.seed
        self._words = answer_words(seed, self.output_tokens - (1 if self.stops else 0))
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
        start, self.written = self.written, self.written + tokens
        text, ids = "".join(self._words[start : self.written]), self.token_ids[start : self.written]
        reason = self._finish_reason() if last else None
        with_prompt = start == 0 and self.asked.body.return_token_ids
        prompt = {"prompt_token_ids": list(self.asked.prompt)} if with_prompt else {}
        if not self.asked.chat:
            return self._sse_event(self._choice_fields({"text": text, **prompt}, ids, reason))
        content = self._sse_event(self._choice_fields({"delta": {"content": text}}, ids, reason))
        if start:
            return content
        role = {"delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
        return self._sse_event({"index": 0, **role}, **prompt) + content

    def usage_chunk(self, ended: RequestEnded) -> bytes:
        """Return the SSE event with the token counts of the request, which follows all other events."""
        return self._sse_event(None, usage=self._usage_fields(ended))

    def whole(self, ended: RequestEnded) -> dict[str, Any]:
        """Return the JSON object of the complete response, for a request without streaming."""
        text = "".join(self._words)
        message = {"role": "assistant", "content": text, "reasoning_content": None, "tool_calls": list[str]()}
        content: dict[str, Any] = {"message": message} if self.asked.chat else {"text": text}
        choice = self._choice_fields(content, self.token_ids, self._finish_reason())
        body = self._top_fields("chat.completion" if self.asked.chat else "text_completion")
        body |= {"choices": [choice], "usage": self._usage_fields(ended)}
        if self.asked.body.return_token_ids:
            holder = body if self.asked.chat else choice
            holder["prompt_token_ids"] = list(self.asked.prompt)
        return body

    def _top_fields(self, kind: str) -> dict[str, Any]:
        created = self.created_unix_s
        return {"id": self.request_id, "object": kind, "created": created, "model": self.model}

    def _finish_reason(self) -> str:
        return "stop" if self.stops else "length"

    def _sse_event(self, choice: dict[str, Any] | None, **beside: object) -> bytes:
        """Return an event: `_head`, the choices, the fields `beside` them, and the end of the object."""
        more_fields = f",{_json(beside)[1:-1]}" if beside else ""
        return self._head + f"[{_json(choice) if choice else ''}]{more_fields}}}\n\n".encode()

    def _choice_fields(self, choice: dict[str, Any], ids: list[int], reason: str | None) -> dict[str, Any]:
        event = {"index": 0, **choice, "logprobs": None, "finish_reason": reason, "stop_reason": None}
        return event | ({"token_ids": ids} if self.asked.body.return_token_ids else {})

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
    hash_before = crc32(salt.encode("utf-8", "replace")) if salt else 0
    hashes: list[int] = []
    for end in range(block_tokens, len(tokens) + 1, block_tokens):
        hash_before = hash((hash_before, *tokens[end - block_tokens : end]))
        hashes.append(hash_before)
    return tuple(hashes)
