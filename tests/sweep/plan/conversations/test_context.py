"""A conversation's context grows, is compacted, and says where it cannot go on."""

from __future__ import annotations

from sparktop.model.conversation import CallStart
from sparktop.sweep.plan.conversations import Call, ContextLength, ConversationPreset, Draw, Prompt, Script

CALL = Call(CallStart.HUMAN, 0, 100, 50, 0.0)
SCRIPT = Script(0, 300, (CALL,), 0.0, 0.5)


def _preset(limit: int) -> ConversationPreset:
    return ConversationPreset(
        "x", Draw(100), Draw(50), Draw(1), limit, shared_tokens=1_000, summary_tokens=200
    )


def test_the_context_grows_by_prompts_and_answers() -> None:
    """The first prompt shares only the common start; the next one everything before its own text."""
    context = ContextLength(_preset(10_000), SCRIPT)
    assert context.prompt(CALL) == Prompt(1_400, 1_000, compacted=False, fits=True)
    context.answered(1_410, 50)  # the server counts ten tokens of template
    assert context.prompt(CALL) == Prompt(1_560, 1_460, compacted=False, fits=True)


def test_a_context_beyond_the_limit_is_compacted() -> None:
    """What is left is the shared start and the summary; only the start is in an endless cache."""
    context = ContextLength(_preset(1_500), SCRIPT)
    context.prompt(CALL)
    context.answered(1_400, 50)
    assert context.prompt(CALL) == Prompt(1_300, 1_000, compacted=True, fits=True)
    assert context.compactions == 1


def test_the_servers_limit_counts_where_it_is_lower() -> None:
    """A model length below the preset's limit compacts earlier; below the compacted prompt nothing fits."""
    assert ContextLength(_preset(10_000), SCRIPT, 1_350).prompt(CALL).compacted
    assert not ContextLength(_preset(10_000), SCRIPT, 1_300).prompt(CALL).fits
