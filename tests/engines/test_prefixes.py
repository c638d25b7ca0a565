"""One list of prefixes for pages and for a Prometheus; a page with the names of several engines."""

from __future__ import annotations

import pytest

from sparktop.engines import read_page
from sparktop.engines.tables import RUNNING, buckets_for, names_beside, names_for
from sparktop.engines.vllm import PREFIXES

SPELLINGS = [(gauge, engine) for gauge, engine in RUNNING.items()]


@pytest.mark.parametrize(("gauge", "engine"), SPELLINGS)
def test_a_page_is_read_under_every_name_that_marks_a_server(gauge: str, engine: str) -> None:
    """The gauge by which a server is found in a Prometheus makes its page readable."""
    sample = read_page(f'{gauge}{{model_name="m"}} 3\n'.encode(), at=0)
    assert (sample.engine, sample.lanes[0].running) == (engine, 3.0)
    assert gauge in names_beside(gauge)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "aphrodite", "lmdeploy", "llamacpp", "trtllm"])
def test_all_prefixes_of_an_engine_are_asked_of_a_prometheus(engine: str) -> None:
    """Running requests are asked for under every prefix; the names beside a gauge have its own only."""
    for prefix in PREFIXES[engine]:
        (gauge,) = (
            name for name in names_for("running") if name.startswith(prefix) and RUNNING[name] == engine
        )
        others = tuple(one for one in PREFIXES[engine] if one != prefix and not prefix.startswith(one))
        assert not [name for name in names_beside(gauge) if name.startswith(others)]
    assert "kserve_vllm:time_to_first_token_seconds_bucket" in buckets_for("ttft")


def test_the_engine_wins_over_its_front() -> None:
    """A figure that both report is the engine's; what only the front reports is kept."""
    body = (
        b"tgi_queue_size 7\ntgi_batch_inference_count 40\n"
        b'vllm:num_requests_running{model_name="m"} 3\nvllm:num_requests_waiting{model_name="m"} 1\n'
    )
    (lane,) = read_page(body, at=0).lanes
    assert (lane.running, lane.waiting, lane.engine_work) == (3.0, 1.0, 40.0)


def test_a_front_without_waiting_requests_says_so() -> None:
    """A figure that only the front reports is known while it is 0, too."""
    body = b'tgi_queue_size 0\nvllm:num_requests_running{model_name="m"} 3\n'
    (lane,) = read_page(body, at=0).lanes
    assert (lane.running, lane.waiting) == (3.0, 0.0)


def test_a_word_in_front_of_a_name_of_no_engine_is_not_an_engine() -> None:
    """Only names that are read make a page one of an engine under another prefix."""
    sample = read_page(b"acme_vllm:generation_tokens_total 5\nacme_vllm:other 1\n", at=0)
    assert sample.lanes[0].generation_tokens == 5.0
    with pytest.raises(Exception, match="metrics of another program"):
        read_page(b"acme_vllm_router_requests_total 5\n", at=0)
