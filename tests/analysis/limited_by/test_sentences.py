"""Every clause of a sentence on a server's limit is a condition that held."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sparktop.analysis.evidence import Evidence, Look, Machine, MachineLook, Peer
from sparktop.analysis.limited_by import limited_by
from sparktop.model.balance import Balance, BalanceWord
from sparktop.model.snapshot import LimitKind

WINDOW_S = 30.0
TOO_LITTLE = {LimitKind.CLIENT, LimitKind.CLIENT_OR_ROUTER}

phases = st.lists(
    st.tuples(st.integers(1, 20), st.sampled_from([0, 0, 1, 2, 7, 8]), st.sampled_from([0, 0, 0, 1, 2, 6])),
    min_size=1,
    max_size=6,
)
"""(seconds, running, waiting) of successive phases of a server."""


def looks_of(parts: list[tuple[int, int, int]], kv: float = 30.0) -> tuple[Look, ...]:
    """Return a poll each second of a server that goes through these phases, and is in the last one now."""
    counts = [(running, waiting) for seconds, running, waiting in parts for _ in range(seconds)]
    counts = ([counts[0]] * 60 + counts)[-60:]
    made, found = 0.0, []
    for second, (running, waiting) in enumerate(counts):
        made += 20.0 * running
        totals = {"generated": made, "prompted": made / 4, "steps": 20.0 * second, "finished": made / 100}
        found.append(
            Look(100.0 + second, float(running), float(waiting), float(waiting), kv, preempted=0.0, **totals)
        )
    return tuple(found)


@st.composite
def evidences(draw: st.DrawFn) -> Evidence:
    """Draw everything that a limit is judged by."""
    looks = looks_of(draw(phases))
    word = draw(st.sampled_from([None, *BalanceWord]))
    split = None
    if word is not None:
        window_s = draw(st.sampled_from([10.0, 60.0]))
        split = Balance("proxy", ("a", "b"), word, word, router="proxy", window_s=window_s, needed_s=60.0)
    machine = Machine("spark-1", tuple(MachineLook(look.at) for look in looks))
    if draw(st.booleans()):
        gpu, core = draw(st.sampled_from([20.0, 97.0])), draw(st.sampled_from([None, 30.0, 99.0]))
        machine = Machine("spark-1", tuple(MachineLook(look.at, gpu, 2400.0, core) for look in looks))
    return Evidence(
        looks,
        slots=draw(st.sampled_from([None, 8])),
        machines=draw(st.sampled_from([(), (machine,)])),
        router=None if split is None else "proxy",
        routed=draw(st.sampled_from([None, False, True])),
        held_back=draw(st.sampled_from([None, 0.0, 12.0])),
        slow_router=draw(st.sampled_from([None, "it answers in 406 ms, 60 ms before"])),
        split=split,
        peers=() if split is None else (Peer("b", looks_of(draw(phases)), 8),),
    )


@settings(max_examples=400, deadline=None)
@given(evidences())
def test_every_clause_of_a_limit_held(evidence: Evidence) -> None:
    """What a sentence says of requests, of the GPU, of cores and of the router is so."""
    found = limited_by(evidence)
    if found is None:
        return
    window = [look for look in evidence.looks if look.at >= evidence.looks[-1].at - WINDOW_S - 0.5]
    last, machine_looks = window[-1], [one for machine in evidence.machines for one in machine.looks]
    words = found.words
    if "none waits" in words or "nothing waits" in words:
        assert not any(look.waiting for look in window)
    if (now := re.search(r"(\d+) wait now", words)) is not None:
        assert last.waiting == float(now[1])
    if (share := re.search(r"no request runs in (\d+) % of the time", words)) is not None:
        assert round(100 * sum(look.running == 0 for look in window) / len(window)) == int(share[1])
    if (run := re.search(r"(\d+) of (\d+) run, (\d+) wait", words)) is not None:
        assert max(look.running or 0.0 for look in window) == float(run[1])
        assert any(look.waiting for look in window)
    if "no CPU core is full" in words:
        assert machine_looks
        assert all(one.core_percent is not None for one in machine_looks)
    if "requests are still in proxy" in words:
        assert evidence.held_back == 12.0
    if "is slow" in words:
        assert evidence.slow_router is not None


@settings(max_examples=400, deadline=None)
@given(evidences())
def test_who_sends_too_little_does_so_now(evidence: Evidence) -> None:
    """No client is blamed at a server that queues or is full, nor for a pause that is over."""
    found = limited_by(evidence)
    if found is None:
        return
    window = [look for look in evidence.looks if look.at >= evidence.looks[-1].at - WINDOW_S - 0.5]
    last = window[-1]
    if found.kind in TOO_LITTLE:
        assert not last.waiting
        assert any(look.running == 0 for look in window[-11:])
        assert evidence.slots is None or (last.running or 0.0) < evidence.slots
    if found.kind is LimitKind.CLIENT_OR_ROUTER:
        assert evidence.router is not None


@settings(max_examples=400, deadline=None)
@given(evidences())
def test_a_limit_never_contradicts_the_balance(evidence: Evidence) -> None:
    """A router is blamed for a split only by its own counts and with a bad verdict; else no one is."""
    found = limited_by(evidence)
    split = evidence.split
    if found is None or split is None:
        return
    blames = (
        found.kind is LimitKind.ROUTER and "still in" not in found.reason and "is slow" not in found.reason
    )
    if blames:
        assert evidence.routed is True
        assert split.word.bad
    if split.word in {BalanceWord.OSCILLATING, BalanceWord.STARVED}:
        assert found.kind not in TOO_LITTLE


def test_the_router_says_where_its_requests_are() -> None:
    """Twelve requests inside the router, none at its servers: the router; without its counts, either."""
    looks = looks_of([(20, 1, 0), (3, 0, 0), (20, 1, 0), (5, 0, 0)])
    calm = Balance("proxy", ("a", "b"), BalanceWord.IDLE, BalanceWord.IDLE, router="proxy")
    evidence = Evidence(looks, slots=8, router="proxy", split=calm)
    found = limited_by(evidence)
    assert found is not None
    assert found.title == "limited by client or router"
    found = limited_by(replace(evidence, held_back=12.0, slow_router="it answers in 406 ms, 60 ms before"))
    assert found is not None
    assert found.kind is LimitKind.ROUTER
    assert found.reason.endswith(
        "12 requests are still in proxy; proxy is slow: it answers in 406 ms, 60 ms before"
    )
    found = limited_by(replace(evidence, held_back=0.0))
    assert found is not None
    assert found.kind is LimitKind.CLIENT
