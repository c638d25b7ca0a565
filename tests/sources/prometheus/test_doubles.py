"""A server that two jobs have as a target stands there once; two that look alike do not become one."""

from __future__ import annotations

import pytest

from sparktop.sources.prometheus.client import in_steps
from sparktop.sources.prometheus.found import ActiveTarget, FoundServer, Key, doubles, to_leave_out

OLD, NEW = Key("a", "h:8000"), Key("b", "h:8000")
SHORT = Key("a", "spark-1"), Key("b", "spark-1")


def server(key: Key, model: str = "m", pod: tuple[str, str] | None = None) -> FoundServer:
    """Return a server at this target."""
    return FoundServer(key, key.job, "vllm", "http://h", model, "g", pod)


def target(url: str) -> ActiveTarget:
    """Return a target that is scraped at this URL."""
    return ActiveTarget(url, 15.0, "")


async def test_the_same_instance_with_another_model_or_pod_is_another_server() -> None:
    """Only servers that agree in all three are candidates."""
    alike = [server(OLD), server(NEW), server(Key("c", "h:8000"), "other")]
    assert await in_steps(doubles(alike)) == [[OLD, NEW]]
    pods = [server(OLD, pod=("llm", "a")), server(NEW, pod=("llm", "b"))]
    assert await in_steps(doubles(pods)) == []


@pytest.mark.parametrize(
    ("keys", "ages", "targets", "left_out"),
    [
        ((OLD, NEW), (60.0, 1.0), {}, OLD),
        ((OLD, NEW), (8.0, 1.0), {}, NEW),
        ((OLD, NEW), (8.0, 1.0), {NEW: target("http://h:8000")}, OLD),
        ((OLD, NEW), (8.0, 1.0), dict.fromkeys((OLD, NEW), target("http://h:8000")), NEW),
        (SHORT, (8.0, 1.0), {SHORT[0]: target("http://h:1"), SHORT[1]: target("http://h:2")}, None),
        (SHORT, (8.0, 1.0), {}, None),
        (SHORT, (60.0, 1.0), {}, SHORT[0]),
    ],
    ids=["old samples", "both: the known", "no target", "both listed", "two URLs", "two names", "old name"],
)
def test_the_newer_samples_win(
    keys: tuple[Key, Key],
    ages: tuple[float, float],
    targets: dict[Key, ActiveTarget],
    left_out: Key | None,
) -> None:
    """Of two that are scraped at present, the one that is known stays; with two addresses, both do."""
    times = {key: 1000.0 - age for key, age in zip(keys, ages, strict=True)}
    found = to_leave_out([keys], times, targets, {keys[0]}, 15.0)
    assert found == (frozenset() if left_out is None else {left_out})
