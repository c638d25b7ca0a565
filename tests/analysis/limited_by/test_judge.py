"""The limit that is named for servers whose figures were made by hand, and what is missing where none is."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle

import pytest

from sparktop.analysis.limited_by.evidence import Evidence, Look, Peer, prefill_s
from sparktop.analysis.limited_by.judge import limited_by
from sparktop.model.limit import Limit, LimitKind
from sparktop.model.snapshot import SpeedState
from tests.analysis.limited_by.looks import Served, machine


def judged(served: Served, **known: object) -> Limit:
    """Return the verdict on a server on one busy GPU, with what else is known."""
    evidence = replace(Evidence(served.looks(), machines=(machine(),)), **known)  # type: ignore[arg-type]  # the tests name the fields
    found = limited_by(evidence)
    assert found is not None
    return found


def test_full_slots_with_room_in_the_kv_cache() -> None:
    """The hint computes how many more requests the KV cache holds: 41 % for 16 is 2.6 % each."""
    found = judged(Served(running=16, waiting=9, kv_percent=41.0), slots=16)
    assert found.kind is LimitKind.SLOTS
    assert found.title == "limited by slots"
    assert found.words == "16 of 16 run, 9 wait; KV cache 41 %; room for about 21 more of this length"


def test_slots_that_are_not_reported_are_inferred_from_the_plateau() -> None:
    """Running stays at its maximum while others wait and the next prompt would fit."""
    found = judged(Served(running=16, waiting=9, kv_percent=41.0))
    assert found.kind is LimitKind.SLOTS
    assert found.reason.startswith("never more than 16 run, while 9 wait")


def full_slots(running: str, waiting: float = 5) -> tuple[Look, ...]:
    """Return a minute of polls of a full server; each digit of `running` is the load of one poll, in turn."""
    looks = Served(running=3, waiting=waiting, kv_percent=1.0).looks()
    return tuple(
        look._replace(running=float(count)) for look, count in zip(looks, cycle(running), strict=False)
    )


# A vLLM server with --max-num-seqs 3 under 8 requests, a poll each second: where a request ended in the last
# step, its slot seems free until the next step, which computes the prompt of another request, has ended.
OF_A_REAL_SERVER = "233323332233333332332333233322333223333233333"


@pytest.mark.parametrize("slots", [3, None])
def test_slots_that_seem_free_while_a_prompt_is_computed(slots: int | None) -> None:
    """A request that ended has left its slot, and the next one has not entered it yet."""
    evidence = Evidence(full_slots(OF_A_REAL_SERVER), slots=slots, machines=(machine(),))
    found = limited_by(evidence)
    assert found is not None
    assert found.kind is LimitKind.SLOTS
    assert f"{3 if slots else 'than 3'}" in found.reason


def test_slots_that_are_all_free_at_once_when_equal_requests_end_together() -> None:
    """Requests of one length that began together end in the same step."""
    found = limited_by(Evidence(full_slots("3333303333"), machines=(machine(),)))
    assert found is not None
    assert found.kind is LimitKind.SLOTS


def test_known_slots_that_seem_free_most_of_the_time() -> None:
    """All are in use in a third of the polls, and one less in the others: prompts take as long as steps."""
    full = Evidence(full_slots("232"), slots=3, machines=(machine(),))
    found = limited_by(full)
    assert found is not None
    assert found.kind is LimitKind.SLOTS
    unsure = limited_by(replace(full, slots=None))
    assert unsure is not None
    assert unsure.kind is LimitKind.UNKNOWN


def test_running_requests_that_are_seldom_at_their_maximum_are_no_full_slots() -> None:
    """They are at 3 in a third of the polls only: something else holds the waiting ones back."""
    found = limited_by(Evidence(full_slots("213"), machines=(machine(),)))
    assert found is not None
    assert found.kind is LimitKind.UNKNOWN


def test_each_engine_core_may_seem_to_have_a_free_slot() -> None:
    """Of four cores with two slots each, one or two are between requests at most moments."""
    evidence = Evidence(full_slots("7678676577"), cores=4, machines=(machine(),))
    found = limited_by(evidence)
    assert found is not None
    assert found.reason.startswith("never more than 8 run")
    of_one_core = limited_by(replace(evidence, cores=1))
    assert of_one_core is not None
    assert of_one_core.kind is LimitKind.UNKNOWN


def test_a_kv_cache_without_room_for_the_next_request() -> None:
    """Of eight requests each holds 12 %: the ninth does not fit into the last 4 %."""
    found = judged(Served(running=8, waiting=5, kv_percent=96.0), slots=64)
    assert found.kind is LimitKind.KV
    assert found.hint == "12.0 % each: about 8 of this length fit"


def test_preemptions_name_the_kv_cache() -> None:
    """Requests are evicted: whatever the slots, the KV cache is too small."""
    found = judged(Served(running=8, waiting=5, kv_percent=88.0, preempted_per_s=0.5), slots=64)
    assert found.kind is LimitKind.KV
    assert "15 preemptions in 30 s" in found.reason


def preempting(at_second: int, kv_percent: float = 89.7) -> tuple[Look, ...]:
    """Return polls of a vLLM server that preempts the last of 8 requests; its counter will follow later."""
    looks = Served(running=8, kv_percent=84.6, prompt_tokens=0.0).looks()
    return tuple(
        look._replace(finished=0.0)
        if index < at_second
        else look._replace(running=7.0, waiting=1.0, for_capacity=1.0, kv_percent=kv_percent, finished=0.0)
        for index, look in enumerate(looks)
    )


def test_a_preemption_is_seen_before_it_is_reported() -> None:
    """A request went from running to waiting without an end: vLLM counts that when the request runs again."""
    found = limited_by(Evidence(preempting(50), kv_capacity_tokens=5000.0, machines=(machine(),)))
    assert found is not None
    assert found.kind is LimitKind.KV
    assert found.reason == "90 % used, 1 preemption in 30 s"


def test_a_preempted_request_that_does_not_fit_is_no_full_slot() -> None:
    """Half a minute later: 7 run all the time and 1 waits, and a tenth of the KV cache is free."""
    found = limited_by(Evidence(preempting(20), kv_capacity_tokens=5000.0, machines=(machine(),)))
    assert found is not None
    assert found.kind is LimitKind.KV
    assert found.reason == "90 % used by 7 requests, the next of 1 does not fit"


def test_a_request_that_leaves_an_empty_kv_cache_was_cancelled() -> None:
    """Another one that waits has come at the same time."""
    found = limited_by(Evidence(preempting(50, kv_percent=20.0), machines=(machine(),)))
    assert found is not None
    assert found.kind is LimitKind.UNKNOWN


def test_flat_steps_are_limited_by_the_memory_bandwidth() -> None:
    """A step takes 50 ms with 8 and with 24 requests."""
    found = judged(Served(swing=16), slots=48)
    assert found.kind is LimitKind.BANDWIDTH
    assert "100 % of it however many run" in found.reason
    assert found.hint == "32 of 48 slots are free: twice the requests give about 2.0 × the tok/s"


def test_steps_in_proportion_to_the_batch_are_limited_by_computing() -> None:
    """Nothing of a step is fixed: each request adds 5 ms."""
    found = judged(Served(swing=16, fixed_s=0.002, per_token_s=0.005))
    assert found.kind is LimitKind.DECODE
    assert found.reason.startswith("each request adds 5.0 ms")


def test_steps_of_one_size_name_nothing_where_reads_contradict() -> None:
    """All steps had 200 requests: whether they would be longer with more is not known."""
    found = judged(Served(running=200))
    assert found.kind is LimitKind.UNKNOWN
    assert found.reason == "needs steps of other sizes: all had 200 requests"


def test_prompts_that_take_most_of_the_time() -> None:
    """3,000 prompt tokens a second at 0.2 ms each take 60 % of the time."""
    found = judged(Served(prompt_tokens=3000.0, per_prompt_s=0.0002))
    assert found.kind is LimitKind.PREFILL
    assert found.value is not None
    assert 55 < found.value < 65


def test_an_idle_gpu_and_a_full_core() -> None:
    """Requests run all the time, the GPU is busy for 40 % of it, and one core is full."""
    found = judged(Served(), machines=(machine(gpu=40.0, core=99.0),))
    assert found.kind is LimitKind.CPU
    assert found.reason == "one is 99 % used, the GPU is busy only 40 % of the time"


def test_a_full_core_beside_a_busy_gpu_means_nothing() -> None:
    """An engine waits for its GPU by polling, with a full core."""
    assert judged(Served(swing=16), machines=(machine(core=100.0),)).kind is LimitKind.BANDWIDTH


def test_an_idle_gpu_without_a_full_core_is_not_explained() -> None:
    """The engine waits for something that no figure shows."""
    found = judged(Served(), machines=(machine(gpu=40.0, core=50.0),))
    assert found.kind is LimitKind.UNKNOWN
    assert "no CPU core is full" in found.reason


def test_a_pinned_clock_comes_before_all_that_it_slows() -> None:
    """Slots are full too, but because everything takes three times as long."""
    slow = machine(clock=712.0, speed=SpeedState("slow clock", "712 of 3003 MHz at 96 % load, 16 W"))
    found = judged(Served(running=16, waiting=9), slots=16, machines=(slow,))
    assert found.kind is LimitKind.POWER
    assert (found.value, found.limit, found.unit) == (712.0, 2400.0, "MHz")


def test_a_busy_link_between_the_ranks() -> None:
    """The engine spans two machines, and its link carries 60 % of what it can, on average."""
    machines = (machine(link=0.6), machine("spark-2", link=0.6))
    found = judged(Served(), machines=machines, spans=2)
    assert found.kind is LimitKind.NETWORK
    assert found.reason == "rocep1s0f0 of spark-1 carries 7.5 of 12.5 GB/s on average"


def test_flat_steps_over_two_machines_need_the_servers_own_estimate() -> None:
    """What is fixed in a step may be reading or the latency of the network."""
    found = judged(Served(swing=16), machines=(machine(), machine("spark-2")), spans=2)
    assert found.kind is LimitKind.UNKNOWN
    assert found.reason.startswith("memory or network")


def test_a_router_that_leaves_a_server_idle() -> None:
    """16 run and 9 wait here, while the other server has one request."""
    peer = Peer("server-2", Served(running=1).looks(), 16)
    found = judged(Served(running=16, waiting=9), slots=16, router="proxy", peers=(peer,))
    assert found.kind is LimitKind.ROUTER
    assert found.words == "25 requests here while server-2 has 1; even would be 13 each"


def test_the_overlooked_server_is_limited_by_the_router_too() -> None:
    """Seen from the idle server, it is the same fault."""
    peer = Peer("server-2", Served(running=16, waiting=9).looks(), 16)
    assert judged(Served(running=1), slots=16, router="proxy", peers=(peer,)).kind is LimitKind.ROUTER


def test_uneven_servers_without_a_router_blame_none() -> None:
    """Servers with users of their own may well differ."""
    peer = Peer("server-2", Served(running=1).looks(), 16)
    assert judged(Served(running=16, waiting=9), slots=16, peers=(peer,)).kind is LimitKind.SLOTS


def test_a_client_that_pauses() -> None:
    """No request ran in half of the time, and none waited."""
    found = judged(Served(running=0, swing=3), machines=(machine(gpu=30.0),))
    assert found.kind is LimitKind.CLIENT
    assert "none waits" in found.reason


def test_a_server_without_requests_waits_for_its_clients() -> None:
    """Nothing else can be said about an idle server."""
    found = judged(Served(running=0), machines=())
    assert (found.kind, found.reason) == (LimitKind.CLIENT, "no request in the last 30 s")


@pytest.mark.parametrize(
    ("neighbours", "user"),
    [((), "another program"), (("server-2",), "server-2"), (("server-2", "server-3"), "other servers")],
)
def test_a_gpu_that_is_busy_without_its_server_works_for_others(
    neighbours: tuple[str, ...], user: str
) -> None:
    """An idle server on a busy GPU is no contradiction: the reason says whose work it is."""
    found = judged(Served(running=0), machines=(machine(gpu=97.0),), neighbours=neighbours)
    assert found.kind is LimitKind.CLIENT
    assert found.reason == f"no request in the last 30 s, the GPU is 97 % busy with {user}"


def test_a_gpu_that_rests_with_its_server_has_no_other_user() -> None:
    """Neither a quiet GPU nor one whose server has work says anything about others."""
    assert "busy" not in judged(Served(running=0), machines=(machine(gpu=20.0),)).reason
    made = [look._replace(running=0.0 if second % 3 else 2.0) for second, look in enumerate(Served().looks())]
    found = limited_by(Evidence(tuple(made), machines=(machine(gpu=97.0),)))
    assert found is not None
    assert found.kind is LimitKind.CLIENT
    assert found.reason.endswith("none waits")


def test_without_a_view_of_the_machine_flat_steps_name_nothing() -> None:
    """A CPU-bound server has flat steps, too."""
    found = judged(Served(swing=16), machines=())
    assert found.kind is LimitKind.UNKNOWN
    assert found.reason == "needs a view of its machine: whether the GPU waits"


def test_full_slots_without_a_view_of_the_machine_name_nothing() -> None:
    """With a low clock, requests stay longer, and the slots are full, too."""
    found = judged(Served(running=16, waiting=9), slots=16, machines=())
    assert found.line == (
        "limit unknown, last 30 s: looks like slots: 16 of 16 run, 9 wait; KV cache 30 %; "
        "needs a view of its machine, a low clock looks the same"
    )


def test_prompts_without_a_view_of_all_machines_name_nothing() -> None:
    """One of two machines is watched: the clock of the other one, or the link, may slow the prompts down."""
    served = Served(prompt_tokens=3000.0, per_prompt_s=0.0002)
    found = judged(served, spans=2)
    assert found.kind is LimitKind.UNKNOWN
    assert found.reason.startswith("looks like prefill compute: prompts take ")
    assert found.reason.endswith("needs a view of its machines, a low clock or a full link looks the same")


def test_a_full_kv_cache_needs_no_view_of_the_machine() -> None:
    """At any clock, what is preempted has to be computed again."""
    served = Served(running=8, waiting=5, kv_percent=96.0, preempted_per_s=0.5)
    assert judged(served, slots=64, machines=()).kind is LimitKind.KV


def test_too_few_polls_name_nothing_at_all() -> None:
    """The first seconds after a start have no verdict."""
    assert limited_by(Evidence(Served().looks()[:5])) is None


def test_a_server_that_does_not_report_its_load() -> None:
    """The reason says what is missing."""
    looks = tuple(look._replace(running=None) for look in Served().looks())
    found = limited_by(Evidence(looks))
    assert found is not None
    assert found.line == "limit unknown: the server does not report how many requests run"


def test_deferred_requests_do_not_wait_for_room() -> None:
    """Requests that wait for a KV transfer would not run if there were more slots."""
    looks = tuple(look._replace(for_capacity=0.0) for look in Served(running=16, waiting=9).looks())
    found = limited_by(Evidence(looks, slots=16, machines=(machine(),)))
    assert found is not None
    assert found.kind is LimitKind.UNKNOWN
    assert "wait for other than room" in found.reason


def long_prompt(idle_s: int, prefill_s: int, *, kv_per_s: float = 0.2) -> tuple[Look, ...]:
    """Return polls of a server that rests for `idle_s` seconds, then computes one prompt."""
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
    """No token yet, but the KV cache grows: neither the client nor unknown, however long it rested before."""
    found = judged(Served(), looks=long_prompt(idle_s, prefill_s))
    assert found.kind is LimitKind.PREFILL
    assert found.reason == (
        f"no token in the last {prefill_s} s while the KV cache fills: prompts are computed"
    )
    unseen = judged(Served(), looks=long_prompt(idle_s, prefill_s), machines=())
    assert unseen.kind is LimitKind.UNKNOWN
    assert unseen.reason.startswith("looks like prefill compute: no token in the last")


def test_without_growth_or_with_tokens_it_is_no_long_prompt() -> None:
    """A KV cache that stays as it is, a token in the last second, and a first second of a request."""
    still = long_prompt(40, 20, kv_per_s=0.0)
    assert prefill_s(still) is None
    grown = long_prompt(40, 20)
    assert prefill_s((*grown, grown[-1]._replace(at=161.0, generated=501.0))) is None
    assert prefill_s(long_prompt(40, 2)) is None
    assert prefill_s(long_prompt(40, 3)) == 3.0
    stopped = (grown[-1]._replace(at=grown[-1].at + second) for second in range(1, 17))
    assert prefill_s((*grown, *stopped)) is None
    assert prefill_s(()) is None
