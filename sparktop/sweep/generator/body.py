"""Request bodies for both OpenAI-compatible completion APIs: only the prompt and a salt vary within a run."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from sparktop.model.structs import hide_in_repr
from sparktop.sweep.generator.endpoint import Endpoint
from sparktop.sweep.plan.plan import Api
from sparktop.sweep.plan.prompt_file import Prompt

CACHE_SALT = "cache_salt"
MAX_TOKENS, MAX_COMPLETION_TOKENS = "max_tokens", "max_completion_tokens"
"""Names of the field for the length of an answer: the older one, which most servers take, and the newer."""
TOKEN_IDS, STREAM_OPTIONS, CHUNK_USAGE = "return_token_ids", "stream_options", "continuous_usage_stats"
OPTIONAL_FIELDS = (TOKEN_IDS, CACHE_SALT, "min_tokens", "ignore_eos", STREAM_OPTIONS, CHUNK_USAGE)
"""Fields that an OpenAI-compatible server need not support; a server that refuses one gets requests without
it.  `CHUNK_USAGE` is a key within `STREAM_OPTIONS`. It requests the running total of generated tokens in each
chunk of the answer."""
_PATHS = {Api.CHAT: "/v1/chat/completions", Api.COMPLETIONS: "/v1/completions"}


@hide_in_repr("extra")
class BodyForm(Struct, frozen=True):
    """The constant part of request bodies: all except prompt, number of output tokens and cache salt."""

    model: str
    api: Api
    dropped: frozenset[str] = frozenset()
    """Fields that the server refuses: bodies leave out optional ones, and name the length by its newer name
    where it is `MAX_TOKENS`."""
    extra: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """Further fields, which the user gives: they replace optional ones."""

    @property
    def path(self) -> str:
        """URL path of the completion API, beginning with /v1."""
        return _PATHS[self.api]

    @property
    def droppable(self) -> frozenset[str]:
        """Fields of a body, as a refusal may name them, without which a request can be tried again."""
        length = frozenset() if MAX_TOKENS in self.dropped else frozenset({MAX_TOKENS, MAX_COMPLETION_TOKENS})
        return frozenset(OPTIONAL_FIELDS) - self.dropped - self.extra.keys() | length

    def without(self, fields: Collection[str]) -> BodyForm:
        """Return a copy whose bodies also leave out the optional `fields`."""
        return replace(self, dropped=self.dropped | frozenset(fields))

    def body(
        self, prompt: Prompt, output_tokens: int, cache_salt: str | None, context: str | None = None
    ) -> bytes:
        """Return a request body as JSON that asks for a stream of exactly `output_tokens` tokens.

        `context` is text before the prompt, in a chat as a system message; None without one.
        No `temperature` is sent, so the server's default applies. With temperature 0, a model with random
        weights would repeat itself, and routers treat repeated output as a fault.
        """
        found: dict[str, object] = {"model": self.model}
        if self.api is Api.CHAT:
            before = [] if context is None else [{"role": "system", "content": context}]
            own = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
            found["messages"] = [*before, *own]
        else:
            found["prompt"] = prompt if context is None else f"{context}\n{prompt}"
        return _json(found | self._rest(output_tokens, cache_salt))

    def conversation(self, parts: Iterable[bytes], output_tokens: int, cache_salt: str | None) -> bytes:
        """Return a request body as `body` does, for a prompt that is already encoded.

        `parts` together are the content of the JSON array of messages or, for the completions API, of the
        JSON string of the prompt.
        """
        begin, end = (b'{"messages":[', b"],") if self.api is Api.CHAT else (b'{"prompt":"', b'",')
        return b"".join((begin, *parts, end, _json(self._rest(output_tokens, cache_salt))[1:]))

    def _rest(self, output_tokens: int, cache_salt: str | None) -> dict[str, object]:
        """Return all fields of a body except the prompt."""
        length = MAX_COMPLETION_TOKENS if MAX_TOKENS in self.dropped else MAX_TOKENS
        found: dict[str, object] = {"model": self.model, length: output_tokens, "stream": True}
        optional: dict[str, object] = {
            STREAM_OPTIONS: {"include_usage": True}
            | ({} if CHUNK_USAGE in self.dropped else {CHUNK_USAGE: True}),
            TOKEN_IDS: True,
            "ignore_eos": True,
            "min_tokens": output_tokens,
        }
        if cache_salt is not None:
            optional[CACHE_SALT] = cache_salt
        sent = {name: value for name, value in optional.items() if name not in self.dropped}
        return {**found, **sent, **self.extra}

    def request(
        self,
        endpoint: Endpoint,
        prompt: Prompt,
        output_tokens: int,
        cache_salt: str | None,
        context: str | None = None,
    ) -> bytes:
        """Return a complete HTTP request to `endpoint`, head and body, as bytes to write; see `body`."""
        body = self.body(prompt, output_tokens, cache_salt, context)
        return endpoint.head("POST", self.path, len(body)) + body


def _json(found: dict[str, object]) -> bytes:
    return json.dumps(found, separators=(",", ":")).encode()
