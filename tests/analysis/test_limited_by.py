"""What limits a server, the sentence that says so, and the reason where no limit can be named."""

from __future__ import annotations

import random
import re
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from sparktop.analysis.evidence import Evidence, MachineEvidence, MachinePoll, Peer, Poll
from sparktop.analysis.limited_by import limited_by
from sparktop.model.balance import Balance, BalanceWord
from sparktop.model.event import Finding, FindingKind
from sparktop.model.snapshot import Limit, LimitKind, SpeedState
from tests.analysis.looks import Served, machine
from tests.known import known

UNEVEN = Balance("proxy", ("server-1", "server-2"), BalanceWord.UNEVEN, BalanceWord.UNEVEN, router="proxy")


def limit(evidence: Evidence) -> Limit:
    """Return the verdict, which there is."""
    return known(limited_by(evidence))


def judged(served: Served, **seen: object) -> Limit:
    """Return the verdict on a server on one busy GPU, with further evidence from `seen`."""
    evidence = Evidence(**{"polls": served.polls(), "machines": (machine(),), **seen})  # type: ignore[arg-type]  # the tests name the fields
    return limit(evidence)


def peer(**load: float) -> tuple[Peer, ...]:
    """Return the other server of a group, with 16 slots."""
    return (Peer("server-2", Served(**load).polls(), 16),)


FULL = Served(running=16, waiting=9)
BALANCED = replace(UNEVEN, word=BalanceWord.BALANCED, word_now=BalanceWord.BALANCED)
ROUTED = {"slots": 16, "router": "proxy", "routed": True}
PINNED = machine(clock=712.0, speed=SpeedState("slow clock", "712 of 3003 MHz at 96 % load, 16 W"))
SLOW_LINK = Finding(
    FindingKind.SLOW_LINK,
    "b",
    "slow link: RDMA carries 3.2 of 200 Gb/s, steps take 2.1 × its best",
    values={"rdma_bytes_per_s": 4e8, "ceiling_bytes_per_s": 5e8},
)
STALLED = Served(swing=16).polls()[-1]._replace(running=0.0, waiting=6.0)
Is = LimitKind
CASES: dict[str, tuple[Served, dict[str, object], LimitKind, str]] = {
    "full slots, room in the KV cache": (
        Served(running=16, waiting=9, kv_percent=41.0),
        {"slots": 16},
        Is.SLOTS,
        "16 of 16 run, 9 wait on average; KV cache 41 %; room for about 21 more of this length",
    ),
    "no room for the next request: 4 % are free, 12 % are needed": (
        Served(running=8, waiting=5, kv_percent=96.0),
        {"slots": 64},
        Is.KV,
        "a request takes 12.0 % on average: about 8 fit",
    ),
    "the same in each of four lanes": (
        Served(running=32, waiting=5, kv_percent=96.0),
        {"slots": 256, "cores": 4},
        Is.KV,
        "a request takes 12.0 % of its DP rank's KV cache on average: about 33 fit",
    ),
    "steps as long for 24 requests as for 8": (
        Served(swing=16),
        {"slots": 48},
        Is.BANDWIDTH,
        "32 of 48 slots free on average: twice the requests give about 2.0 × the tok/s",
    ),
    "steps that grow": (
        Served(swing=16, per_token_s=0.001, prompt_tokens=0.0),
        {"slots": 48},
        Is.BANDWIDTH,
        "a step takes 65 ms with 15 requests on average; 32 of 48 slots free",
    ),
    "reads of two DP ranks on two machines are a sum": (
        Served(swing=16),
        {"spans": 2, "cores": 2, "read_gb_per_s": 431.0, "read_percent": 79.0},
        Is.BANDWIDTH,
        "reads 431 of 546 GB/s over all DP ranks",
    ),
    "those of one engine are of each machine": (
        Served(swing=16),
        {"spans": 2, "read_gb_per_s": 199.0, "read_percent": 73.0},
        Is.BANDWIDTH,
        "reads 199 of 273 GB/s on each machine",
    ),
    "prompts take 60 % of the time": (Served(prompt_tokens=3000.0), {}, Is.PREFILL, ""),
    "an idle GPU and a full core": (
        Served(),
        {"machines": (machine(gpu=40.0, core=99.0),)},
        Is.CPU,
        "one is 99 % used, the GPU is busy only 40 % of the time",
    ),
    "a pinned clock comes before the slots that it fills": (
        FULL,
        {"slots": 16, "machines": (PINNED,)},
        Is.POWER,
        "",
    ),
    "a busy link between the ranks": (
        Served(),
        {"machines": (machine(link=0.6), machine("spark-2", link=0.6)), "spans": 2},
        Is.NETWORK,
        "rocep1s0f0 of spark-1 carries 7.5 of 12.5 GB/s on average",
    ),
    "ranks that wait for a slow link, which is not full": (
        Served(),
        {"spans": 2, "machines": (machine(link=0.02), machine("spark-2", link=0.02)), "slow_link": SLOW_LINK},
        Is.NETWORK,
        SLOW_LINK.line,
    ),
    "ranks that draw too little to compute, before their link is judged": (
        Served(swing=16, fixed_s=0.004, per_token_s=0.008),
        {"spans": 2, "machines": (machine(power=22.0), machine("spark-2", power=21.0))},
        Is.UNKNOWN,
        "its GPUs wait (22 W each): whether for the link or each other is not clear yet",
    ),
    "the same steps of ranks that compute": (
        Served(swing=16, fixed_s=0.004, per_token_s=0.008),
        {"spans": 2, "machines": (machine(power=22.0), machine("spark-2", power=61.0))},
        Is.DECODE,
        "each request adds 8.0 ms to a step",
    ),
    "a router that leaves a server idle": (
        FULL,
        {**ROUTED, "split": UNEVEN, "peers": peer(running=1)},
        Is.ROUTER,
        "on average 25 requests here and 1 at server-2; even would be 13 each",
    ),
    "a router that fills one server, then the other": (
        Served(running=16, swing=-16),
        {**ROUTED, "split": UNEVEN, "peers": peer(running=0, swing=16)},
        Is.ROUTER,
        "two servers take turns, 16 requests at one and 0 at the other; even would be 8 each",
    ),
    "too few requests for a balance: no culprit": (
        Served(running=7),
        {**ROUTED, "split": replace(UNEVEN, word=BalanceWord.UNKNOWN), "peers": peer(running=1)},
        Is.UNKNOWN,
        "loads differ, on average 7 requests here and 1 at server-2",
    ),
    "servers whose requests are not known to pass the router: no culprit": (
        Served(running=7),
        {**ROUTED, "routed": None, "split": UNEVEN, "peers": peer(running=1)},
        Is.UNKNOWN,
        "loads differ, on average 7 requests here and 1 at server-2",
    ),
    "a balance that is judged: its verdict is the only one on the split": (
        Served(running=7, swing=-7),
        {**ROUTED, "split": BALANCED, "peers": peer(running=29)},
        Is.CLIENT_OR_ROUTER,
        "no request in 48 % of the time; none waits",
    ),
    "steps that ended while requests wait: what limited them says nothing of now": (
        Served(swing=16),
        {"slots": 48, "polls": (*Served(swing=16).polls()[:-1], STALLED)},
        Is.UNKNOWN,
        "6 wait now, and none runs",
    ),
    "a client that pauses": (
        Served(running=0, swing=3),
        {"machines": (machine(gpu=30.0),)},
        Is.CLIENT,
        "none waits",
    ),
    "flat steps, machine not watched: a CPU makes them too": (
        Served(swing=16),
        {"machines": ()},
        Is.UNKNOWN,
        "whether its GPU waits is not seen: watch its machine",
    ),
    "a single stream that reads less than the bandwidth gives: how much it reads": (
        Served(running=1, prompt_tokens=0.0),
        {"slots": 48, "read_percent": 53.0},
        Is.UNKNOWN,
        "every step had 1 request, other batches are needed; they read 53 % of the memory bandwidth",
    ),
    "full slots, machine not watched: a low clock fills them too": (
        FULL,
        {"slots": 16, "machines": ()},
        Is.UNKNOWN,
        "slots, or a low clock (watch its machine): 16 of 16 run, 9 wait on average; KV cache 30 %",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_each_server_has_its_limit(case: str) -> None:
    """The kind, and what the line says of it: only what is known of the server and its machine."""
    served, seen, kind, said = CASES[case]
    found = judged(served, **seen)
    assert found.kind is kind
    assert said in f"{found.line}; {found.hint}"


def preempting(at_second: int, kv_percent: float = 89.7) -> tuple[Poll, ...]:
    """Return polls of a vLLM server that preempts the last of 8 requests and has not counted it yet."""
    polls = Served(running=8, kv_percent=84.6, prompt_tokens=0.0).polls()
    return tuple(
        poll._replace(finished=0.0)
        if index < at_second
        else poll._replace(running=7.0, waiting=1.0, for_capacity=1.0, kv_percent=kv_percent, finished=0.0)
        for index, poll in enumerate(polls)
    )


@pytest.mark.parametrize(("share", "limits"), [(0.012, False), (0.6, True)])
def test_the_servers_own_time_of_prompts_replaces_an_estimate(share: float, limits: bool) -> None:  # noqa: FBT001 - a case
    """Whatever steps and tokens suggest, the seconds that the server counts for prompts decide."""
    counted = Served(prompt_tokens=3000.0, per_prompt_s=0.0002 if not limits else 0.0).polls()
    polls = tuple(poll._replace(prefilled_s=share * (poll.at - 100.0)) for poll in counted)
    found = limit(Evidence(polls, machines=(machine(),)))
    assert (found.kind is LimitKind.PREFILL) is limits
    if limits:
        assert found.value == pytest.approx(60.0)


def _noisy(served: tuple[Poll, ...], seed: int, by: float) -> tuple[Poll, ...]:
    """Return the polls with each second's steps and tokens up to the share `by` more or less."""
    draw = random.Random(seed)  # noqa: S311 - a seeded test
    polls = list(served[:1])
    for before, after in pairwise(served):
        factor, last = draw.uniform(1 - by, 1 + by), polls[-1]
        grown = {
            name: (getattr(last, name) or 0.0) + factor * (getattr(after, name) - getattr(before, name))
            for name in ("steps", "generated", "prompted")
        }
        polls.append(after._replace(**grown))
    return tuple(polls)


def test_steps_that_vary_more_than_their_batches_do_not_tell_memory_from_compute() -> None:
    """The sentence says what is missing, not what the regression lacks."""
    polls = _noisy(Served(running=80, swing=20, prompt_tokens=0.0).polls(), 0, 0.4)
    found = limit(Evidence(polls, machines=(machine(),)))
    assert found.reason == "batches varied too little to tell memory from compute"


@pytest.mark.parametrize(("per_token_s", "fixed_s"), [(0.0006, 0.04), (0.008, 0.004)])
def test_steps_that_vary_by_chance_give_no_limit_that_they_do_not_have(
    per_token_s: float, fixed_s: float
) -> None:
    """Of flat steps no noise makes decode compute, of steep ones none memory bandwidth: unknown instead."""
    wrong = LimitKind.DECODE if fixed_s > per_token_s * 10 else LimitKind.BANDWIDTH
    served = Served(running=14, swing=4, per_token_s=per_token_s, fixed_s=fixed_s).polls()
    kinds = [limit(Evidence(_noisy(served, seed, 0.2), machines=(machine(),))).kind for seed in range(100)]
    assert kinds.count(wrong) <= 1


@pytest.mark.parametrize(
    ("machines", "kind", "words"),
    [
        ((machine(gpu=97.0),), LimitKind.PREFILL, "; the GPU is 97 % busy"),
        ((machine(gpu=40.0),), LimitKind.CLIENT, "; the GPU is 40 % busy"),
        ((), LimitKind.UNKNOWN, ": only a GPU of its own shows whether it is full"),
    ],
)
def test_requests_too_short_to_be_seen_are_no_idle_server(
    machines: tuple[MachineEvidence, ...], kind: LimitKind, words: str
) -> None:
    """An engine of embeddings reports no running request at a step's end: its GPU says how full it is."""
    found = judged(Served(running=0, prompt_tokens=20_000, unseen=1.0), machines=machines)
    said = f"requests too short to be seen compute prompts at 20,000 tok/s{words}"
    assert (found.kind, found.reason) == (kind, said)


def long_prompt(idle_s: int, prefill_s: int) -> tuple[Poll, ...]:
    """Return polls of a server that is idle for `idle_s` seconds and then computes one prompt."""
    still = Poll(100.0, waiting=0.0, steps=0.0, generated=500.0, prompted=900.0, finished=3.0)
    kv_percent = [0.2 * max(0, second - idle_s) for second in range(idle_s + prefill_s + 1)]
    return tuple(
        still._replace(at=100.0 + second, running=float(second >= idle_s), kv_percent=used)
        for second, used in enumerate(kv_percent)
    )


@pytest.mark.parametrize(("idle_s", "prefill_s"), [(40, 5), (40, 20), (40, 60), (0, 12)])
def test_one_long_prompt_is_prefill_from_its_first_seconds_on(idle_s: int, prefill_s: int) -> None:
    """A growing KV cache without new tokens is prefill, however long the server was idle before."""
    polls = long_prompt(idle_s, prefill_s)
    said = f"no token in the last {prefill_s} s while the KV cache fills: prompts are computed"
    found = judged(Served(), polls=polls)
    assert (found.kind, found.reason) == (LimitKind.PREFILL, said)
    unseen = judged(Served(), polls=polls, machines=())
    assert unseen.kind is LimitKind.UNKNOWN
    assert unseen.reason.startswith(f"prefill compute, or a low clock (watch its machine): {said[:24]}")


@pytest.mark.parametrize(
    ("at_second", "reason"),
    [
        (50, "90 % used on average, 1 preemption in 30 s"),
        (20, "90 % used by 7 requests, 10 % free; 1 wait on average"),
    ],
)
def test_a_preemption_is_seen_before_it_is_reported(at_second: int, reason: str) -> None:
    """A request that goes from running to waiting counts as preempted, and later as one without room."""
    found = judged(Served(), polls=preempting(at_second), kv_capacity_tokens=5000.0)
    assert (found.kind, found.reason) == (LimitKind.KV, reason)


# Every clause of a sentence on a server's limit is a condition that held.

WINDOW_S = 30.0
TOO_LITTLE = {LimitKind.CLIENT, LimitKind.CLIENT_OR_ROUTER}

phases = st.lists(
    st.tuples(st.integers(1, 20), st.sampled_from([0, 0, 1, 2, 7, 8]), st.sampled_from([0, 0, 0, 1, 2, 6])),
    min_size=1,
    max_size=6,
)
"""(seconds, running, waiting) of successive phases of a server."""


def polls_of(parts: list[tuple[int, int, int]], kv: float = 30.0) -> tuple[Poll, ...]:
    """Return a poll each second of a server that goes through these phases, and is in the last one now."""
    counts = [(running, waiting) for seconds, running, waiting in parts for _ in range(seconds)]
    counts = ([counts[0]] * 60 + counts)[-60:]
    made, found = 0.0, []
    for second, (running, waiting) in enumerate(counts):
        made += 20.0 * running
        totals = {"generated": made, "prompted": made / 4, "steps": 20.0 * second, "finished": made / 100}
        found.append(
            Poll(100.0 + second, float(running), float(waiting), float(waiting), kv, preempted=0.0, **totals)
        )
    return tuple(found)


@st.composite
def evidences(draw: st.DrawFn) -> Evidence:
    """Draw everything that a limit is judged by."""
    polls = polls_of(draw(phases))
    word = draw(st.sampled_from([None, *BalanceWord]))
    split = None
    if word is not None:
        window_s = draw(st.sampled_from([10.0, 60.0]))
        split = Balance("proxy", ("a", "b"), word, word, router="proxy", window_s=window_s, needed_s=60.0)
    machine = MachineEvidence("spark-1", tuple(MachinePoll(poll.at) for poll in polls))
    if draw(st.booleans()):
        gpu, core = draw(st.sampled_from([20.0, 97.0])), draw(st.sampled_from([None, 30.0, 99.0]))
        machine = MachineEvidence("spark-1", tuple(MachinePoll(poll.at, gpu, 2400.0, core) for poll in polls))
    return Evidence(
        polls,
        slots=draw(st.sampled_from([None, 8])),
        machines=draw(st.sampled_from([(), (machine,)])),
        router=None if split is None else "proxy",
        routed=draw(st.sampled_from([None, False, True])),
        requests_in_router=draw(st.sampled_from([None, 0.0, 12.0])),
        slow_router=draw(st.sampled_from([None, "it answers in 406 ms, 60 ms before"])),
        split=split,
        peers=() if split is None else (Peer("b", polls_of(draw(phases)), 8),),
    )


def judged_window(evidence: Evidence) -> tuple[Limit, list[Poll]]:
    """Return the verdict and the polls that it is of; evidence without a verdict is no example."""
    found = limited_by(evidence)
    assume(found is not None)
    begin = evidence.polls[-1].at - WINDOW_S - 0.5
    return known(found), [poll for poll in evidence.polls if poll.at >= begin]


def test_a_small_level_of_an_own_sweep_is_the_sweeps_choice() -> None:
    """While a sweep of this program loads the group, neither its router nor another client is suspected."""
    calm = replace(UNEVEN, word=BalanceWord.BALANCED, word_now=BalanceWord.BALANCED, in_sweep=True)
    early = replace(calm, word=BalanceWord.UNKNOWN, window_s=9.0, needed_s=45.0)
    for split in (calm, early):
        found = judged(Served(running=0, swing=3), router="proxy", split=split)
        assert found.kind is LimitKind.CLIENT
        assert found.reason.endswith("; this level of the sweep sends no more")


@given(evidences())
def test_every_clause_of_a_limit_held(evidence: Evidence) -> None:
    """What a sentence says of requests, of the GPU, of cores and of the router is so."""
    found, window = judged_window(evidence)
    last, machine_polls = window[-1], [one for machine in evidence.machines for one in machine.polls]
    words = found.words
    if "none waits" in words:
        assert not any(poll.waiting for poll in window)
    if (now := re.search(r"(\d+) wait now", words)) is not None:
        assert last.waiting == float(now[1])
    if (share := re.search(r"idle (\d+) % of the time", words)) is not None:
        assert round(100 * sum(poll.running == 0 for poll in window) / len(window)) == int(share[1])
    if (run := re.search(r"(\d+) of (\d+) run, (\d+) wait", words)) is not None:
        assert max(poll.running or 0.0 for poll in window) == float(run[1])
        assert any(poll.waiting for poll in window)
    if "no CPU core is full" in words:
        assert machine_polls
        assert all(one.core_percent is not None for one in machine_polls)
    if "requests are still in proxy" in words or "requests are in proxy" in words:
        assert evidence.requests_in_router == 12.0
    if "is slow" in words:
        assert evidence.slow_router is not None


@given(evidences())
def test_no_limit_of_steps_is_named_while_requests_wait_and_none_runs(evidence: Evidence) -> None:
    """What limited earlier steps does not explain why there are none now; a share of the time is counted."""
    found, window = judged_window(evidence)
    last, words = window[-1], found.words
    if "none runs" in words or found.kind in {LimitKind.BANDWIDTH, LimitKind.DECODE}:
        assert ("none runs" in words) is bool(last.waiting and not last.running)
    if (queue := re.search(r"requests waited now and then \((\d+) %", words)) is not None:
        assert round(100 * sum(bool(poll.waiting) for poll in window) / len(window)) == int(queue[1])


@given(evidences())
def test_who_sends_too_little_does_so_now(evidence: Evidence) -> None:
    """No client is blamed at a server that queues or is full, nor for a pause that is over."""
    found, window = judged_window(evidence)
    last = window[-1]
    if found.kind in TOO_LITTLE:
        assert not last.waiting
        assert any(poll.running == 0 for poll in window[-11:]) or "requests are in proxy" in found.words
        assert evidence.slots is None or (last.running or 0.0) < evidence.slots
    if found.kind is LimitKind.CLIENT_OR_ROUTER:
        assert evidence.router is not None


@given(evidences())
def test_a_limit_never_contradicts_the_balance(evidence: Evidence) -> None:
    """A router is blamed for a split only by its own counts and with a bad verdict; else no one is."""
    found = limited_by(evidence)
    split = evidence.split
    if found is None or split is None:
        return
    said = found.reason
    if found.kind is LimitKind.ROUTER and "still in" not in said and "is slow" not in said:
        assert evidence.routed is True
        assert split.word.bad
    if split.word in {BalanceWord.OSCILLATING, BalanceWord.STARVED}:
        assert found.kind not in TOO_LITTLE


def test_the_router_says_where_its_requests_are() -> None:
    """Twelve requests inside the router, none at its servers: the router; without its counts, either."""
    polls = polls_of([(20, 1, 0), (3, 0, 0), (20, 1, 0), (5, 0, 0)])
    calm = Balance("proxy", ("a", "b"), BalanceWord.IDLE, BalanceWord.IDLE, router="proxy")
    evidence = Evidence(polls, slots=8, router="proxy", split=calm)
    assert limit(evidence).title == "limited by client or router"
    slow = "it answers in 406 ms, 60 ms before"
    found = limit(replace(evidence, requests_in_router=12.0, slow_router=slow))
    assert found.kind is LimitKind.ROUTER
    assert found.reason.endswith(f"12 requests are still in proxy; proxy is slow: {slow}")
    assert limit(replace(evidence, requests_in_router=0.0)).kind is LimitKind.CLIENT
    found = limit(replace(evidence, router=None, unmatched_router="front"))
    assert found.title == "limited by client or router"
    assert found.reason.endswith("; the servers behind front are not known")
    few = replace(evidence, polls=polls_of([(60, 1, 0)]), requests_in_router=9.0)
    found = limit(few)
    assert found.title == "limited by client or router"
    assert found.reason == "9 requests are in proxy and at no server; 1 of 8 slots run on average"
    for other in ({"routed": False}, {"requests_in_router": 1.0}, {"slots": 1}, {"slots": None}):
        assert limit(replace(few, **other)).kind is LimitKind.UNKNOWN
