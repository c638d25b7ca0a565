"""The top line, the panels and the alerts say the same of a group that swings."""

from __future__ import annotations

import pytest

from sparktop.analysis.state import verdict
from sparktop.model.balance import BalanceWord
from sparktop.model.router import LITELLM, RouterSample
from sparktop.model.snapshot import LimitKind
from sparktop.model.targets import RouterTarget
from sparktop.store import SourceKey
from tests.store.fed_traces import NAMES, Pair, looks

pytestmark = pytest.mark.long


@pytest.mark.parametrize("counts", [True, False])
@pytest.mark.parametrize("name", ["leastbusy-c16", "leastbusy-c16-b"])
def test_no_client_is_blamed_under_a_verdict_on_the_router(name: str, *, counts: bool) -> None:
    """While the balance oscillates, no panel says client; the router is named where it counts requests."""
    pair = Pair(RouterTarget("proxy", "http://p:4000", "least-busy", NAMES))
    swinging = 0
    trace = looks(name)
    for shown in pair.play(trace, life_s=3.5):
        look = next(one for one in reversed(trace) if one.at <= pair.at - 1000.0)
        answers = {server: tokens / 64 for server, tokens in zip(NAMES, look.tokens, strict=True)}
        sample = RouterSample(pair.at, LITELLM, alive=True, answered=answers if counts else None)
        pair.store.accept(SourceKey.router("proxy"), sample, 2.0)
        (found,) = shown.balance or (None,)
        if found is None or found.word is not BalanceWord.OSCILLATING:
            continue
        swinging += 1
        assert "oscillating" in verdict(shown).words
        kinds = {view.limited_by.kind for view in shown.backends if view.limited_by is not None}
        assert not kinds & {LimitKind.CLIENT, LimitKind.CLIENT_OR_ROUTER}
        assert counts or LimitKind.ROUTER not in kinds
    assert swinging >= 5
