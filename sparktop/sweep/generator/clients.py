"""The client for a load run: closed or open loop, bursts with context, or recorded traffic."""

from __future__ import annotations

from sparktop.sweep.generator.calibration import Recipe
from sparktop.sweep.generator.client import LoadClient
from sparktop.sweep.generator.connection import ConnectionPool
from sparktop.sweep.generator.context import ContextClient
from sparktop.sweep.generator.conversations.client import ConversationClient
from sparktop.sweep.generator.conversations.texts import TextMaker
from sparktop.sweep.generator.open_loop import OpenLoopClient
from sparktop.sweep.generator.prompts.blocks import BlockPrompts
from sparktop.sweep.generator.replay import ReplayClient
from sparktop.sweep.generator.run_log import RunLog
from sparktop.sweep.generator.wire.messages import RunLoad


def new_client(load: RunLoad, pool: ConnectionPool, recipe: Recipe, log: RunLog) -> LoadClient:
    """Return the client that executes `load` over `pool`, with requests made as in `recipe`."""
    first = recipe.first_event_is_token
    form, prompt = recipe.form, recipe.prompt
    if (plan := load.conversations) is not None:
        texts = TextMaker(recipe.book, recipe.tokens)
        return ConversationClient(load, plan, pool, form, prompt, texts, log, first_event_is_token=first)
    salt = load.prompt_salt or str(load.seed) if load.context is None else load.context.salt
    blocks = BlockPrompts(recipe.book, recipe.tokens, salt)
    if load.context is not None:
        return ContextClient(load, load.context, pool, form, prompt, blocks, log, first_event_is_token=first)
    if load.open_loop is None:
        return LoadClient(load, pool, form, prompt, log, first_event_is_token=first)
    if load.trace is None:
        return OpenLoopClient(load, load.open_loop, pool, form, prompt, log, first_event_is_token=first)
    return ReplayClient(
        load, load.open_loop, load.trace, pool, form, prompt, blocks, log, first_event_is_token=first
    )
