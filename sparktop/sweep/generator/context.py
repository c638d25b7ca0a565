"""The load generator's bursts with context before each prompt, as a server's prefix cache would find it."""

from __future__ import annotations

from itertools import count

from sparktop.sweep.generator.body import BodyForm
from sparktop.sweep.generator.client import LoadClient
from sparktop.sweep.generator.connection import ConnectionPool
from sparktop.sweep.generator.exchange import Request
from sparktop.sweep.generator.prompts.blocks import BlockPrompts
from sparktop.sweep.generator.prompts.prompts import NewPrompt
from sparktop.sweep.generator.run_log import RunLog
from sparktop.sweep.generator.wire.messages import ContextLoad, RunLoad
from sparktop.sweep.plan.prompt_file import Prompt

_TINY = "Go on."
"""The user's message of a run that only fills the cache."""
_BLOCK = 512


class ContextClient(LoadClient):
    """Executes a run whose requests have a context: a system message, or text before the prompt."""

    def __init__(
        self,
        load: RunLoad,
        context: ContextLoad,
        pool: ConnectionPool,
        form: BodyForm,
        prompt: NewPrompt,
        blocks: BlockPrompts,
        log: RunLog,
        *,
        first_event_is_token: bool = False,
    ) -> None:
        """Create the run `load`; `blocks` makes the contexts. For the other arguments see `LoadClient`."""
        super().__init__(load, pool, form, prompt, log, first_event_is_token=first_event_is_token)
        self._context = context
        self._blocks = blocks

    def _make(self) -> Request:
        load, context, number = self._load, self._context, self._made
        self._made += 1
        keys = (f"{number}#{place}" for place in count())
        text, context_tokens = self._blocks.bare(context.tokens, _BLOCK, keys)
        prompt: Prompt = _TINY
        tokens: int | None = context_tokens
        if not context.alone:
            prompt, prompt_tokens = self._prompt(number, load.prompt_salt or f"{load.seed}/{load.id}")
            tokens = None if prompt_tokens is None else context_tokens + prompt_tokens
        salt = self._salt(f"{context.cache_salt}-{number}")
        content = self._form.request(self._pool.endpoint, prompt, load.output_tokens, salt, text)
        return Request(f"{load.id}-{number}", content, tokens, load.output_tokens)
