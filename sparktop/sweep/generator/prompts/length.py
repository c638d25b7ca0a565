"""Token counts of prompts and of single words, as the server's own tokenizer counts them."""

from __future__ import annotations

from sparktop.sweep.generator.body import BodyForm
from sparktop.sweep.generator.connection import ConnectionPool
from sparktop.sweep.generator.prompts.prompts import Book, PromptMaker, PromptTokens, pieces
from sparktop.sweep.generator.short_call import ask_json
from sparktop.sweep.plan.plan import Api

_BEFORE = "the"
"""Text in front of a word or punctuation mark while its tokens are counted."""
_CHECKED = 3
"""Number of complete prompts that are counted to check that the token counts of single words add up."""


class ServerTokenizer:
    """Client of the `/tokenize` route of vLLM and SGLang, which counts the tokens of a text."""

    def __init__(self, pool: ConnectionPool, form: BodyForm, deadline_s: float) -> None:
        """Use connections of `pool`, and the model and API of `form`; `deadline_s` limits each request."""
        self._pool = pool
        self._form = form
        self._deadline_s = deadline_s

    async def text_length(self, text: str) -> int | None:
        """Return the number of tokens of a text, without special tokens or chat template.

        None if the server does not count it.
        """
        return await self._count({"prompt": text, "add_special_tokens": False})

    async def prompt_length(self, prompt: str) -> int | None:
        """Return the number of prompt tokens of a request with this prompt, chat template included.

        None if the server does not count it.
        """
        if self._form.api is Api.CHAT:
            return await self._count({"messages": [{"role": "user", "content": prompt}]})
        return await self._count({"prompt": prompt})

    async def piece_costs(self) -> dict[str, float] | None:
        """Return the token count of every word and punctuation mark that prompts are made of.

        None if the server has no `/tokenize` route.
        """
        before = await self.text_length(_BEFORE)
        if before is None:
            return None
        costs: dict[str, float] = {}
        for piece in pieces():
            length = await self.text_length(_BEFORE + piece)
            if length is None:
                return None
            costs[piece] = length - before
        return costs

    async def _count(self, question: dict[str, object]) -> int | None:
        found = await ask_json(
            self._pool, "/tokenize", {"model": self._form.model, **question}, self._deadline_s
        )
        count = found.get("count") if isinstance(found, dict) else None
        return count if isinstance(count, int) and not isinstance(count, bool) else None


async def measured_tokens(
    tokenizer: ServerTokenizer, book: Book, length: int
) -> tuple[PromptTokens | None, bool]:
    """Return (token counts of words and of the chat template, whether prompts made with these are exact).

    The counts are None if the server does not count tokens. The second value is True if the server counted
    exactly the computed number of tokens in trial prompts of about `length` tokens. It is False if the counts
    differ, or if the server cannot count a prompt with its chat template.
    """
    costs = await tokenizer.piece_costs()
    if costs is None:
        return None, False
    tokens = PromptTokens(0.0, costs)
    for _ in range(2):
        maker = PromptMaker(book, tokens)
        off = set()
        for number in range(_CHECKED):
            prompt, reckoned = maker.prompt(length, number, "length")
            counted = await tokenizer.prompt_length(prompt)
            if counted is None:
                return PromptTokens(0.0, costs), False
            off.add(counted - reckoned)
        if off == {0}:
            return tokens, True
        # The difference that all prompts share is the cost of the chat template.
        tokens = PromptTokens(tokens.overhead + min(off), costs)
    return tokens, False
