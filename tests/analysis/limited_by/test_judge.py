"""The limit of servers with known figures, and the reason where no limit can be named."""

from __future__ import annotations

from itertools import cycle

import pytest
from msgspec.structs import replace

from sparktop.analysis.evidence import Evidence, Look, Peer, prefill_s
from sparktop.analysis.limited_by import limited_by
from sparktop.model.balance import Balance, BalanceWord
from sparktop.model.snapshot import Limit, LimitKind, SpeedState
from tests.analysis.limited_by.looks import Served, machine

UNEVEN = Balance("proxy", ("server-1", "server-2"), BalanceWord.UNEVEN, BalanceWord.UNEVEN, router="proxy")


def judged(served: Served, **known: object) -> Limit:
    """Return the verdict on a server on one busy GPU, with further evidence from `known`."""
    evidence = replace(Evidence(served.looks(), machines=(machine(),)), **known)  # type: ignore[arg-type]  # the tests name the fields
    found = limited_by(evidence)
    assert found is not None
    return found


def test_full_slots_with_room_in_the_kv_cache() -> None:
    """With full slots, the hint states how many more requests the KV cache holds (16 requests take 41 %)."""
    found = judged(Served(running=16, waiting=9, kv_percent=41.0), slots=16)
    assert found.kind is LimitKind.SLOTS
    assert found.title == "limited by slots"
    assert found.words == "16 of 16 run, 9 wait; KV cache 41 %; room for about 21 more of this length"


def full_slots(running: str, waiting: float = 5) -> tuple[Look, ...]:
    """Return a minute of polls of a full server; `running` has a digit for each poll, and is repeated."""
    looks = Served(running=3, waiting=waiting, kv_percent=1.0).looks()
    return tuple(
        look._replace(running=float(count)) for look, count in zip(looks, cycle(running), strict=False)
    )


# A vLLM server with --max-num-seqs 3 under 8 requests, a poll each second: where a request ended in the last
# step, its slot seems free until the next step, which computes the prompt of another request, has ended.
OF_A_REAL_SERVER = "233323332233333332332333233322333223333233333"


@pytest.mark.parametrize("slots", [3, None])
def test_slots_that_seem_free_while_a_prompt_is_computed(slots: int | None) -> None:
    """Slots seem free for a moment between the end of a request and the start of the next."""
    evidence = Evidence(full_slots(OF_A_REAL_SERVER), slots=slots, machines=(machine(),))
    found = limited_by(evidence)
    assert found is not None
    assert found.kind is LimitKind.SLOTS
    assert f"{3 if slots else 'than 3'}" in found.reason


def test_known_slots_that_seem_free_most_of_the_time() -> None:
    """Slots count as full though two thirds of the polls show a free one, as prompts are as long as steps."""
    full = Evidence(full_slots("232"), slots=3, machines=(machine(),))
    found = limited_by(full)
    assert found is not None
    assert found.kind is LimitKind.SLOTS
    unsure = limited_by(replace(full, slots=None))
    assert unsure is not None
    assert unsure.kind is LimitKind.UNKNOWN


def test_a_kv_cache_without_room_for_the_next_request() -> None:
    """The KV cache is the limit if it has no room for the next request: 4 % are free, 12 % are needed."""
    found = judged(Served(running=8, waiting=5, kv_percent=96.0), slots=64)
    assert found.kind is LimitKind.KV
    assert found.hint == "12.0 % each: about 8 of this length fit"


def preempting(at_second: int, kv_percent: float = 89.7) -> tuple[Look, ...]:
    """Return polls of a vLLM server that preempts the last of 8 requests and has not counted it yet."""
    looks = Served(running=8, kv_percent=84.6, prompt_tokens=0.0).looks()
    return tuple(
        look._replace(finished=0.0)
        if index < at_second
        else look._replace(running=7.0, waiting=1.0, for_capacity=1.0, kv_percent=kv_percent, finished=0.0)
        for index, look in enumerate(looks)
    )


def test_a_preemption_is_seen_before_it_is_reported() -> None:
    """A request that goes from running to waiting is taken as preempted, before vLLM counts it."""
    found = limited_by(Evidence(preempting(50), kv_capacity_tokens=5000.0, machines=(machine(),)))
    assert found is not None
    assert found.kind is LimitKind.KV
    assert found.reason == "90 % used, 1 preemption in 30 s"


def test_a_preempted_request_that_does_not_fit_is_no_full_slot() -> None:
    """Half a minute after a preemption, the request that waits for room is still put down to the KV cache."""
    found = limited_by(Evidence(preempting(20), kv_capacity_tokens=5000.0, machines=(machine(),)))
    assert found is not None
    assert found.kind is LimitKind.KV
    assert found.reason == "90 % used by 7 requests, 10 % free; 1 wait"


def test_flat_steps_are_limited_by_the_memory_bandwidth() -> None:
    """Steps of equal length for 8 and 24 requests are limited by the memory bandwidth."""
    found = judged(Served(swing=16), slots=48)
    assert found.kind is LimitKind.BANDWIDTH
    assert "100 % of it fixed" in found.reason
    assert found.hint == "32 of 48 slots are free: twice the requests give about 2.0 × the tok/s"


def test_prompts_that_take_most_of_the_time() -> None:
    """Prompts that take 60 % of the time (3,000 tokens a second at 0.2 ms) are the limit."""
    found = judged(Served(prompt_tokens=3000.0, per_prompt_s=0.0002))
    assert found.kind is LimitKind.PREFILL
    assert found.value is not None
    assert 55 < found.value < 65


@pytest.mark.parametrize(("share", "limits"), [(0.012, False), (0.6, True)])
def test_the_servers_own_time_of_prompts_replaces_an_estimate(share: float, limits: bool) -> None:  # noqa: FBT001 - a case
    """Whatever steps and tokens suggest, the seconds that the server counts for prompts decide."""
    counted = Served(prompt_tokens=3000.0, per_prompt_s=0.0002 if not limits else 0.0).looks()
    looks = tuple(look._replace(prefilled_s=share * (look.at - 100.0)) for look in counted)
    found = limited_by(Evidence(looks, machines=(machine(),)))
    assert found is not None
    assert (found.kind is LimitKind.PREFILL) is limits
    if limits:
        assert found.value == pytest.approx(60.0)


def test_tokens_that_are_counted_at_the_end_of_a_request_say_nothing_of_steps() -> None:
    """A server that counts so has no step times: neither prompts nor bandwidth are named by an estimate."""
    found = judged(Served(prompt_tokens=3000.0, per_prompt_s=0.0002), counts_at_end=True)
    assert found.kind is LimitKind.UNKNOWN


def test_an_idle_gpu_and_a_full_core() -> None:
    """If the GPU is busy for only 40 % and one core is full while requests run, the CPU is the limit."""
    found = judged(Served(), machines=(machine(gpu=40.0, core=99.0),))
    assert found.kind is LimitKind.CPU
    assert found.reason == "one is 99 % used, the GPU is busy only 40 % of the time"


def test_a_pinned_clock_comes_before_all_that_it_slows() -> None:
    """A pinned clock is named before full slots, which it causes."""
    slow = machine(clock=712.0, speed=SpeedState("slow clock", "712 of 3003 MHz at 96 % load, 16 W"))
    found = judged(Served(running=16, waiting=9), slots=16, machines=(slow,))
    assert found.kind is LimitKind.POWER
    assert (found.value, found.limit, found.unit) == (712.0, 2400.0, "MHz")


def test_a_busy_link_between_the_ranks() -> None:
    """For an engine on two machines, a link that carries 60 % of its rate on average is the limit."""
    machines = (machine(link=0.6), machine("spark-2", link=0.6))
    found = judged(Served(), machines=machines, spans=2)
    assert found.kind is LimitKind.NETWORK
    assert found.reason == "rocep1s0f0 of spark-1 carries 7.5 of 12.5 GB/s on average"


def test_flat_steps_over_two_machines_need_the_servers_own_estimate() -> None:
    """On two machines, flat steps may be due to memory or to the network: the limit is unknown."""
    found = judged(Served(swing=16), machines=(machine(), machine("spark-2")), spans=2)
    assert found.kind is LimitKind.UNKNOWN
    assert found.reason.startswith("memory or network")


def test_a_router_that_leaves_a_server_idle() -> None:
    """If 9 requests wait here while another server has one, the router that they pass is the limit."""
    peer = Peer("server-2", Served(running=1).looks(), 16)
    found = judged(
        Served(running=16, waiting=9), slots=16, router="proxy", routed=True, split=UNEVEN, peers=(peer,)
    )
    assert found.kind is LimitKind.ROUTER
    assert found.words == "25 requests here while server-2 has 1; even would be 13 each"


def test_the_overlooked_server_is_limited_by_the_router_too() -> None:
    """The idle server of such a group is limited by the router too."""
    peer = Peer("server-2", Served(running=16, waiting=9).looks(), 16)
    found = judged(Served(running=1), slots=16, router="proxy", routed=True, split=UNEVEN, peers=(peer,))
    assert found.kind is LimitKind.ROUTER
    assert found.reason == "1 request here while server-2 has 25"


@pytest.mark.parametrize("routed", [None, False])
@pytest.mark.parametrize("word", [BalanceWord.UNEVEN, BalanceWord.UNKNOWN, BalanceWord.IDLE])
def test_no_router_is_blamed_without_evidence_that_the_requests_pass_it(
    word: BalanceWord, *, routed: bool | None
) -> None:
    """What is not known to pass the router is stated as uneven, whatever the verdict on the balance."""
    peer = Peer("server-2", Served(running=1).looks(), 16)
    known = {"split": replace(UNEVEN, word=word, word_now=word), "peers": (peer,), "router": "proxy"}
    found = judged(Served(running=7), slots=16, routed=routed, **known)
    assert (found.kind, found.words) == (LimitKind.UNKNOWN, "uneven: 7 requests here while server-2 has 1")


def test_no_router_is_blamed_where_the_balance_cannot_be_judged() -> None:
    """With too few requests for a verdict, a difference between two servers has no culprit."""
    peer = Peer("server-2", Served(running=1).looks(), 16)
    few = Balance("proxy", ("server-1", "server-2"), router="proxy")
    found = judged(Served(running=7), slots=16, router="proxy", routed=True, split=few, peers=(peer,))
    assert (found.kind, found.words) == (LimitKind.UNKNOWN, "uneven: 7 requests here while server-2 has 1")


def test_servers_that_take_turns_are_no_verdict_on_balance() -> None:
    """The reason is what was seen in seconds; *oscillating* needs more evidence and a period."""
    looks = Served(running=16).looks()
    idle = Served(running=0).looks()
    turns = tuple(
        one if number % 8 < 4 else other for number, (one, other) in enumerate(zip(looks, idle, strict=True))
    )
    others = tuple(
        other if number % 8 < 4 else one for number, (one, other) in enumerate(zip(looks, idle, strict=True))
    )
    peers = (Peer("server-2", others, 16),)
    found = limited_by(Evidence(turns, slots=16, router="proxy", routed=True, split=UNEVEN, peers=peers))
    assert found is not None
    assert found.kind is LimitKind.ROUTER
    assert found.reason == "server-2 and this server take turns: 16 requests at one, 0 at the other"


def test_a_client_that_pauses() -> None:
    """If no request runs half of the time and none waits, the client is the limit."""
    found = judged(Served(running=0, swing=3), machines=(machine(gpu=30.0),))
    assert found.kind is LimitKind.CLIENT
    assert "none waits" in found.reason


@pytest.mark.parametrize(
    ("neighbours", "user"),
    [((), "another program"), (("server-2",), "server-2"), (("server-2", "server-3"), "other servers")],
)
def test_a_gpu_that_is_busy_without_its_server_works_for_others(
    neighbours: tuple[str, ...], user: str
) -> None:
    """If the GPU of an idle server is busy, the reason states that it works for others."""
    found = judged(Served(running=0), machines=(machine(gpu=97.0),), neighbours=neighbours)
    assert found.kind is LimitKind.CLIENT
    assert found.reason == f"no request in the last 30 s, the GPU is 97 % busy with {user}"


def test_without_a_view_of_the_machine_flat_steps_name_nothing() -> None:
    """Without a view of the machine, flat steps name no limit: those of a CPU-bound server are flat too."""
    found = judged(Served(swing=16), machines=())
    assert found.kind is LimitKind.UNKNOWN
    assert found.reason == "not known whether its GPU waits: watch its machine"


def test_full_slots_without_a_view_of_the_machine_name_nothing() -> None:
    """Without a view of the machine, full slots name no limit: a low clock fills them too."""
    found = judged(Served(running=16, waiting=9), slots=16, machines=())
    assert found.line == (
        "limit unknown, last 30 s: slots, or a low clock (watch its machine): "
        "16 of 16 run, 9 wait; KV cache 30 %"
    )


def test_a_server_that_does_not_report_its_load() -> None:
    """If a server does not report its load, the reason states what is missing."""
    looks = tuple(look._replace(running=None) for look in Served().looks())
    found = limited_by(Evidence(looks))
    assert found is not None
    assert found.line == "limit unknown: the server does not report how many requests run"


def test_deferred_requests_do_not_wait_for_room() -> None:
    """Requests that wait for a KV transfer do not count as waiting for slots."""
    looks = tuple(look._replace(for_capacity=0.0) for look in Served(running=16, waiting=9).looks())
    found = limited_by(Evidence(looks, slots=16, machines=(machine(),)))
    assert found is not None
    assert found.kind is LimitKind.UNKNOWN
    assert "wait for other than room" in found.reason


def long_prompt(idle_s: int, prefill_s: int, *, kv_per_s: float = 0.2) -> tuple[Look, ...]:
    """Return polls of a server that is idle for `idle_s` seconds and then computes one prompt."""
    return tuple(
        Look(
            100.0 + second,
            running=float(second >= idle_s),
            waiting=0.0,
            kv_percent=max(0, second - idle_s) * kv_per_s,
            steps=0.0,
            generated=500.0,
            prompted=900.0,
            finished=3.0,
        )
        for second in range(idle_s + prefill_s + 1)
    )


@pytest.mark.parametrize(("idle_s", "prefill_s"), [(40, 5), (40, 20), (40, 60), (0, 12)])
def test_one_long_prompt_is_prefill_from_its_first_seconds_on(idle_s: int, prefill_s: int) -> None:
    """A growing KV cache without new tokens is prefill, however long the server was idle before."""
    found = judged(Served(), looks=long_prompt(idle_s, prefill_s))
    assert found.kind is LimitKind.PREFILL
    assert found.reason == (
        f"no token in the last {prefill_s} s while the KV cache fills: prompts are computed"
    )
    unseen = judged(Served(), looks=long_prompt(idle_s, prefill_s), machines=())
    assert unseen.kind is LimitKind.UNKNOWN
    assert unseen.reason.startswith(
        "prefill compute, or a low clock (watch its machine): no token in the last"
    )


def test_without_growth_or_with_tokens_it_is_no_long_prompt() -> None:
    """It is not prefill without growth, after a new token, or in the first two seconds of a request."""
    still = long_prompt(40, 20, kv_per_s=0.0)
    assert prefill_s(still) is None
    grown = long_prompt(40, 20)
    assert prefill_s((*grown, grown[-1]._replace(at=161.0, generated=501.0))) is None
    assert prefill_s(long_prompt(40, 2)) is None
    assert prefill_s(long_prompt(40, 3)) == 3.0
    stopped = (grown[-1]._replace(at=grown[-1].at + second) for second in range(1, 17))
    assert prefill_s((*grown, *stopped)) is None
    assert prefill_s(()) is None
