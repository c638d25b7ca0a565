"""Pages of servers around the engines: Ray Serve, NIM, Dynamo, LMCache, Triton, SGLang."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sparktop.engines import PageError, engine_of, read_page
from sparktop.engines.router_pages import read_router_page
from sparktop.model.engine import EngineSample, Histogram, LaneSample
from sparktop.model.failure import FailureKind

Read = Callable[[str], EngineSample]


@pytest.fixture
def read(page: Callable[[str], bytes]) -> Read:
    return lambda name: read_page(page(f"families/{name}.prom"), at=1.0)


def test_replicas_on_a_page_of_ray_are_lanes(read: Read) -> None:
    """On a page of Ray, replicas are lanes; a repeated counter counts once, and only after it increased."""
    sample = read("ray-two-replicas")
    assert (sample.engine, sample.models) == ("ray", ("m",))
    first, second = sample.lanes
    assert (first.lane, first.running, first.waiting, first.kv_cache_percent) == ("q3v8", 3.0, 1.0, 25.0)
    assert (first.generation_tokens, first.ttft) == (
        918233.0,
        Histogram((0.1, float("inf")), (6.0, 8.0), 1.5),
    )
    assert (second.lane, second.running, second.generation_tokens) == ("zz01", 5.0, None)


def test_replicas_without_an_id_are_lanes_by_their_process() -> None:
    """Before vLLM 0.11, Ray has no ReplicaId: one process with requests does not hide another."""
    gauge = 'ray_vllm_num_requests_running{WorkerId="%s",engine="0",model_name="m"} %d\n'
    lanes = read_page((gauge % ("4f1c", 3) + gauge % ("77aa", 5)).encode(), at=1.0).lanes
    assert [(lane.lane, lane.running) for lane in lanes] == [("4f1c", 3), ("77aa", 5)]


def test_older_names_of_ray_are_read_too(read: Read) -> None:
    """Older names of Ray are read; with one replica, its engine cores are the lanes."""
    lanes = read("ray-old").lanes
    assert [(lane.lane, lane.running, lane.generation_tokens) for lane in lanes] == [
        ("0", 2.0, 100.0),
        ("1", 1.0, None),
    ]


def test_nim_has_the_names_without_prefix(read: Read) -> None:
    """NIM's names without prefix are read; finished requests count by reason, and its limit is the slots."""
    sample = read("nim")
    (lane,) = sample.lanes
    assert (sample.engine, sample.slots) == ("nim", 2048)
    assert (lane.running, lane.waiting, lane.kv_cache_percent) == (3.0, 1.0, 25.0)
    assert (lane.prompt_tokens, lane.generation_tokens) == (63728.0, 9543.0)
    assert lane.finished == {"length": 10.0, "stop": 30.0}
    assert lane.ttft is not None
    assert lane.itl is not None
    assert lane.itl.sum == 180.0


def test_a_newer_nim_may_write_the_prefix(page: Callable[[str], bytes]) -> None:
    """A page with vLLM's names on the route of NIM is read as vLLM."""
    assert read_page(page("vllm-0.32/t010.prom"), at=1.0, engine="nim").engine == "vllm"


def test_a_worker_of_dynamo_is_its_engine_with_a_role(read: Read) -> None:
    """A worker of Dynamo is its engine with a role; only generate requests count as in flight."""
    sample = read("dynamo-worker")
    (lane,) = sample.lanes
    assert (sample.engine, sample.role, lane.running) == ("vllm", "prefill", 2.0)
    assert (lane.gauges, lane.counts) == ({"in_flight": 2.0}, {"worker_errors": 4.0})


def test_a_worker_of_dynamo_alone_has_no_running_requests(read: Read) -> None:
    """Without its engine's metrics, a Dynamo worker has requests in flight; how many run is unknown."""
    sample = read("dynamo-worker-alone")
    assert (sample.engine, sample.role, sample.models) == ("dynamo", "backend", ("openai/gpt-oss-120b",))
    assert sample.lanes == (
        LaneSample(
            "0",
            kv_cache_percent=40.0,
            finished={"unknown": 55.0},
            e2e=Histogram((1.0, float("inf")), (50.0, 55.0), 22.0),
            gauges={"in_flight": 7.0},
        ),
    )


def test_an_lmcache_server_runs_no_requests(read: Read) -> None:
    """An LMCache server has no running requests; older counter names are read, missing counts are unknown."""
    sample = read("lmcache-server")
    assert (sample.engine, sample.start_time) == ("lmcache", 1788750000.0)
    (lane,) = sample.lanes
    assert lane.running is None
    assert lane.counts == {"lmcache_hits": 28000.0, "lmcache_lookups": 30000.0, "lmcache_evicted": 12.0}
    assert lane.gauges == {"lmcache_used": 31.0, "lmcache_local_bytes": 3.4e10}


def test_triton_counts_each_request_once(read: Read) -> None:
    """Of a Triton ensemble only the engine's model is counted; times in microseconds become seconds."""
    sample = read("triton")
    (lane,) = sample.lanes
    assert (sample.engine, sample.models, sample.slots) == ("triton", ("tensorrt_llm",), 64)
    assert (lane.running, lane.waiting, lane.kv_cache_percent) == (5.0, 2.0, 25.0)
    assert (lane.kv_capacity_tokens, lane.finished) == (64000.0, {"success": 40.0, "failure": 2.0})
    assert lane.engine_work == 1234.0
    assert lane.e2e == Histogram((float("inf"),), (40.0,), 80.0)
    assert lane.queue == Histogram((float("inf"),), (40.0,), 0.4)


def test_triton_without_a_language_model_counts_nothing() -> None:
    """Triton with several models that are not language models has no counts, but a note."""
    body = b'nv_inference_request_success{model="a"} 4\nnv_inference_request_success{model="b"} 4\n'
    sample = read_page(body, at=1.0)
    assert (sample.lanes[0].finished, sample.lanes[0].running) == ({}, None)
    assert sample.note is not None


def test_sglang_in_a_role_has_queues_of_its_own(read: Read) -> None:
    """Queues of an SGLang worker with a role are read in base units; priorities and ranks count once."""
    sample = read("sglang-decode")
    (lane,) = sample.lanes
    assert (sample.role, lane.running, lane.waiting) == ("decode", 6.0, 0.0)
    assert lane.gauges == {"pd_prealloc": 2.0, "pd_transfer": 3.0, "offload_cache": 25.0}
    assert lane.counts == {
        "kv_failures": 3.0,
        "kv_transfer_s": pytest.approx(0.4),
        "kv_transfers": 20.0,
        "kv_transfer_bytes": pytest.approx(5e8),
    }


def test_a_unified_sglang_has_no_role(page: Callable[[str], bytes]) -> None:
    """SGLang in mode "unified" has no role."""
    body = page("families/sglang-decode.prom").replace(b'"decode"', b'"unified"')
    assert read_page(body, at=1.0).role is None


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("router-dynamo", "Dynamo's frontend"),
        ("router-dynamo-stages", "Dynamo's frontend"),
        ("router-stack", "production-stack's router"),
        ("router-epp", "llm-d's endpoint picker"),
    ],
)
def test_the_page_of_a_router_is_not_one_of_an_engine(
    name: str, title: str, page: Callable[[str], bytes]
) -> None:
    """A router's page is not that of an engine, as its prefix or label shows, whatever is configured."""
    body = page(f"families/{name}.prom")
    for engine in ("auto", "vllm"):
        with pytest.raises(PageError, match=title) as caught:
            read_page(body, at=1.0, engine=engine)
        assert caught.value.kind is FailureKind.ROUTER
    with pytest.raises(PageError):
        engine_of(body)


def test_the_queue_of_dynamo_is_before_its_workers(page: Callable[[str], bytes]) -> None:
    """Dynamo's queue is read; older versions count requests in prefill as queued, as a note says."""
    old = read_router_page(page("families/router-dynamo.prom"))
    new = read_router_page(page("families/router-dynamo-stages.prom"))
    assert old is not None
    assert new is not None
    assert (old.queued, old.in_flight, old.deployments) == (4.0, 11.0, None)
    assert old.note is not None
    assert "prefill" in old.note
    assert (new.queued, new.in_flight, new.note) == (3.0, 12.0, None)


def test_the_servers_of_production_stack_are_its_deployments(page: Callable[[str], bytes]) -> None:
    """Servers of production-stack are its deployments, healthy or not; the queue is unknown."""
    found = read_router_page(page("families/router-stack.prom"))
    assert found is not None
    assert found.deployments is not None
    assert [one.address for one in found.deployments] == [f"http://10.0.0.{n}:8000" for n in (7, 8, 9)]
    assert found.sent == {"http://10.0.0.7:8000": 5.0, "http://10.0.0.8:8000": 2.0}
    assert (found.in_flight, found.queued) == (7.0, None)


def test_one_prefix_of_the_endpoint_picker_is_read(page: Callable[[str], bytes]) -> None:
    """Of the endpoint picker's duplicate prefixes one is read; an id need not be an address."""
    found = read_router_page(page("families/router-epp.prom"))
    assert found is not None
    assert found.deployments is not None
    assert [(one.id, one.address) for one in found.deployments] == [
        ("10.0.0.7:8000", "http://10.0.0.7:8000"),
        ("sim-0", None),
    ]
    assert (found.queued, found.in_flight) == (3.0, None)


def test_a_page_of_an_engine_is_no_router(page: Callable[[str], bytes]) -> None:
    """A page of an engine is not a router's, also with a label `server`."""
    assert read_router_page(page("vllm-0.32/t010.prom")) is None
    body = b'vllm:num_requests_running{engine="0",model_name="m",server="x"} 1\n'
    assert read_page(body, at=1.0).engine == "vllm"


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1"])
def test_a_router_with_an_invalid_gauge_does_not_count(value: str) -> None:
    """Of a router with an invalid gauge the deployments are kept and the numbers are unknown."""
    server = '{server="http://a:1"}'
    stack = f"vllm:num_requests_running{server} {value}\nvllm:healthy_pods_total{server} 1\n"
    found = read_router_page(stack.encode())
    assert found is not None
    assert (found.sent, found.in_flight, len(found.deployments or ())) == (None, None, 1)
    found = read_router_page(f"dynamo_frontend_queued_requests {value}\n".encode())
    assert found is not None
    assert (found.queued, found.note) == (None, None)
