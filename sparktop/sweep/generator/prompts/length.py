"""How many tokens the pieces of a prompt make, as the server itself counts them."""

from __future__ import annotations

from sparktop.sweep.generator.body import BodyForm
from sparktop.sweep.generator.connection import ConnectionPool
from sparktop.sweep.generator.prompts.prompts import Book, PromptMaker, PromptTokens, pieces
from sparktop.sweep.generator.short_call import ask_json
from sparktop.sweep.plan.plan import Api

_BEFORE = "the"
"""What a piece is counted behind."""
_CHECKED = 3
"""Prompts that are counted whole, to see that pieces add up."""


class ServerTokenizer:
    """The `/tokenize` page that vLLM and SGLang have."""

    def __init__(self, pool: ConnectionPool, form: BodyForm, deadline_s: float) -> None:
        """Ask over a pool; each question may take `deadline_s`."""
        self._pool = pool
        self._form = form
        self._deadline_s = deadline_s

    async def text_length(self, text: str) -> int | None:
        """Count a text without any template."""
        return await self._count({"prompt": text, "add_special_tokens": False})

    async def prompt_length(self, prompt: str) -> int | None:
        """Count a prompt as a request with it would be counted."""
        if self._form.api is Api.CHAT:
            return await self._count({"messages": [{"role": "user", "content": prompt}]})
        return await self._count({"prompt": prompt})

    async def piece_costs(self) -> dict[str, float] | None:
        """Count every piece of a prompt; None where the server has no such page."""
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
    """Find out what pieces and template cost; tell also whether whole prompts came out as reckoned.

    None where the server does not count, or not what its chat template makes of a prompt.
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
        # What they are off by in common is the template.
        tokens = PromptTokens(tokens.overhead + min(off), costs)
    return tokens, False
