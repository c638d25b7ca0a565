"""The summary of a minute in the head of a frame."""

from __future__ import annotations

import pytest

from sparktop.engines import read_page
from sparktop.model.targets import BackendTarget, Watch
from sparktop.recording.records import announcements
from sparktop.store import SourceKey, Store
from tests.recording.conftest import instant

RATE_TPS, RUNNING = 100, 4


def page_at(at: float) -> bytes:
    """Return the page of a server that generates `RATE_TPS` tokens a second."""
    return b"""
vllm:num_requests_running{engine="0",model_name="m"} %d
vllm:num_requests_waiting{engine="0",model_name="m"} 0
vllm:generation_tokens_total{engine="0",model_name="m"} %d
process_start_time_seconds 100
""" % (RUNNING, RATE_TPS * at)


@pytest.mark.parametrize(
    ("interval_s", "offsets_s"),
    [(0.25, (0.0,)), (0.5, (0.0,)), (1.0, (0.0,)), (2.0, (0.0, 1.0)), (5.0, (0.0, 1.5)), (90.0, (0.0,))],
)
def test_a_summary_has_the_sum_of_what_each_server_does(
    interval_s: float, offsets_s: tuple[float, ...]
) -> None:
    """It depends neither on how often servers are polled nor on which of them are polled together."""
    names = [f"server-{number}" for number in range(len(offsets_s))]
    targets = tuple(BackendTarget(name, "http://127.0.0.1:1") for name in names)
    now_s = 0.0
    store = Store(
        Watch(interval_s=interval_s, backends=targets), clock=lambda: now_s, now=lambda: instant(now_s).wall
    )
    polls = sorted(
        (1000.0 + offset + turn * interval_s, name)
        for turn in range(max(3, round(90 / interval_s)))
        for name, offset in zip(names, offsets_s, strict=True)
    )
    for now_s, name in polls:
        store.accept(SourceKey.backend(name), read_page(page_at(now_s), at=now_s, engine="vllm"))
        store.judge()
    summary = announcements(store.snapshot()).summary
    shown = {name: (shown.least, shown.mean, shown.most) for name, shown in summary.items()}
    assert shown["generation_tps"] == pytest.approx((RATE_TPS * len(names),) * 3)
    assert shown["requests"] == pytest.approx((RUNNING * len(names),) * 3)
