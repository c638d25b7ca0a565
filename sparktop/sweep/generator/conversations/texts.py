"""Texts of conversations with a given number of tokens, and prompts that grow by the server's answers."""

from __future__ import annotations

import json

from sparktop.sweep.generator.prompts.prompts import Book, PromptMaker, PromptTokens
from sparktop.sweep.plan.conversations.lane import Lane, Step
from sparktop.sweep.plan.plan import Api

_LONGEST_SLICE = 20_000
"""Most tokens that are cut from the book at once: it is finite."""
_OPENING_TOKENS = 1.0
"""Tokens of the first word of a text."""
_SHARED = "shared start"


class TextMaker:
    """Makes texts with a given number of tokens; equal salts give equal texts."""

    def __init__(self, book: Book, tokens: PromptTokens) -> None:
        """Make texts of slices of `book`; `tokens` has the token count of each of its words."""
        self._maker = PromptMaker(book, tokens.with_overhead(_OPENING_TOKENS))

    def text(self, tokens: int, salt: str) -> str:
        """Return a text of `tokens` tokens, as far as the tokens of its words are known."""
        slices: list[str] = []
        while tokens > 0:
            size = min(tokens, _LONGEST_SLICE)
            slices.append(self._maker.prompt(size, len(slices), salt)[0])
            tokens -= size
        return " ".join(slices)


class Texts:
    """The texts of all conversations of a run."""

    def __init__(self, maker: TextMaker, api: Api, salt: str, shared_tokens: int) -> None:
        """Make texts of `maker` for a completion API; runs with another `salt` get other texts.

        All conversations begin with the same `shared_tokens` tokens.
        """
        self._maker = maker
        self.salt = salt
        self.api = api
        self.shared = _escaped(
            maker.text(shared_tokens, f"{salt}/{_SHARED}") + "\n\n" if shared_tokens else ""
        )
        """The start that all conversations share, as the content of a JSON string."""

    def text(self, tokens: int, name: str) -> str:
        """Return a text of `tokens` tokens that is the same whenever it has the same `name`."""
        return self._maker.text(tokens, f"{self.salt}/{name}")


class Dialogue:
    """The prompt of one user's or agent's conversation, as parts of a request's JSON body."""

    def __init__(self, texts: Texts, lane: Lane) -> None:
        """Create the dialogue of `lane`, without messages."""
        self.lane = lane
        self._texts = texts
        self._parts: list[bytes] = []
        is_chat = texts.api is Api.CHAT
        self._user = b'{"role":"user","content":"' if is_chat else b""
        self._model = b'{"role":"assistant","content":"' if is_chat else b""
        self._end = b'"}' if is_chat else b"\\n\\n"
        self._comma = b"," if is_chat else b""

    def past(self) -> Step | None:
        """Write the past of a conversation under way, with made-up answers; return its warm-up call.

        The warm-up call is the last one before the conversation goes on; it is not answered yet. Return None
        for a conversation without a past.
        """
        last: Step | None = None
        for step in self.lane.past():
            if last is not None:
                self.add_answer(self._texts.text(last.call.output_tokens, f"{_name(last)}/answer"))
            self.add_call(step)
            last = step
        return last

    def add_call(self, step: Step) -> None:
        """Append the new text of a call; begin anew for a new conversation and for a compacted context."""
        place, call = step.place, step.call
        if place.turn and not place.compacted:
            text = self._texts.text(call.new_tokens, _name(step))
            self._parts += (self._comma, self._user, _escaped(text), self._end)
            return
        text = self._texts.text(step.prompt.tokens - self.lane.shared_tokens, _name(step))
        self._parts = [self._user, self._texts.shared, _escaped(text), self._end]

    def add_answer(self, text: str) -> None:
        """Append the server's answer to the last call."""
        self._parts += (self._comma, self._model, _escaped(text), self._end)

    def parts(self) -> list[bytes]:
        """Return the encoded prompt; see `BodyForm.conversation`."""
        return self._parts


def _name(step: Step) -> str:
    place = step.place
    return f"{place.lane}.{place.conversation}.{place.turn}"


def _escaped(text: str) -> bytes:
    """Return `text` as the content of a JSON string."""
    return json.dumps(text)[1:-1].encode()
