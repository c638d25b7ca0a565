"""Raw samples as pages, and what is found among series: labels, names, groups, routers."""

from __future__ import annotations

from pathlib import Path

from sparktop.engines import read_page
from sparktop.engines.exposition import Reader
from sparktop.engines.tables import RUNNING, buckets_for, names_beside, names_for
from sparktop.sources.prometheus.client import TimeSeries, any_of, quote_text, selector
from sparktop.sources.prometheus.figures import pages, times_by_target
from sparktop.sources.prometheus.found import (
    ActiveTarget,
    ScrapeKey,
    active_targets,
    found_routers,
    found_servers,
    is_federated,
    servers_query,
)

PAGE = Path(__file__).resolve().parents[2] / "data" / "vllm-0.32" / "t010.prom"
ADDED = {"job": "vllm", "instance": "10.0.0.1:8000", "namespace": "llm"}
KEY = ScrapeKey("vllm", "10.0.0.1:8000")
RUNNING_NAME = next(iter(RUNNING))


def series_of(body: bytes, at: float) -> list[TimeSeries]:
    """Return the samples of a page as a Prometheus would store them."""
    found = []
    for name, family in Reader(names_beside(RUNNING_NAME)).read(body).items():
        for labels, value in family.items():
            own = {f"exported_{label}" if label in ADDED else label: text for label, text in labels}
            found.append(TimeSeries({"__name__": name, **own, **ADDED}, [(at, repr(value))]))
    return found


def test_a_page_made_from_raw_samples_reads_as_the_page_that_was_scraped() -> None:
    """Every figure of a real page of vLLM is equal; labels that Prometheus added are gone."""
    body = PAGE.read_bytes()
    made, _ = pages(series_of(body, 100.0), {KEY: ADDED})
    assert list(made) == [KEY]
    assert list(made[KEY]) == [100.0]
    assert b"namespace" not in made[KEY][100.0]
    truth, found = (read_page(page, at=5.0) for page in (body, made[KEY][100.0]))
    assert found.lanes == truth.lanes
    assert (found.models, found.start_time, found.engine) == (truth.models, truth.start_time, "vllm")


def test_labels_of_the_page_get_their_names_back_and_no_line_can_be_forged() -> None:
    """A renamed label, quotes, line feeds and names that no page has; duplicates count once."""
    labels = {"__name__": RUNNING_NAME, **ADDED, "exported_namespace": "own", "model_name": 'a"b\\c\nd 1'}
    bad = {"__name__": "x 1\ny", **ADDED}
    found, mixed = pages(
        [
            TimeSeries(labels, [(2.0, "2"), (1.0, "1")]),
            TimeSeries(bad, [(1.0, "1")]),
            TimeSeries(labels, [(1.0, "3\n4")]),
        ],
        {KEY: ADDED},
    )
    made = found[KEY]
    assert not mixed
    assert list(made) == [1.0, 2.0]
    line = f'{RUNNING_NAME}{{namespace="own",model_name="a\\"b\\\\c\\nd 1"}} 1\n'
    assert made[1.0].decode() == line
    assert read_page(made[2.0], at=1.0).lanes[0].running == 2


def test_servers_have_names_addresses_and_groups() -> None:
    """Servers are named by pod, else by address; jobs distinguish equal addresses; labels name groups."""

    def one(job: str, instance: str, **more: str) -> TimeSeries:
        return TimeSeries({"__name__": RUNNING_NAME, "job": job, "instance": instance, **more}, [(1.0, "1")])

    found = found_servers(
        [
            one("a", "h:1", model_name="m", namespace="x"),
            one("b", "h:1", model_name="m", namespace="x"),
            one("a", "h:2", model_name="n", pod="pod-\x1b2"),
            one("a", "h:2", model_name="o", pod="pod-\x1b2"),
            TimeSeries({"__name__": "up", "job": "a", "instance": "h:9"}, [(1.0, "1")]),
        ],
        {ScrapeKey("a", "h:1"): ActiveTarget("https://h:1/x", 15.0, "")},
        (),
    )
    assert [(one.name, one.url, one.group, one.model) for one in found] == [
        ("a/h:1", "https://h:1/x", "m x a", "m"),
        ("b/h:1", "http://h:1", "m x b", "m"),
        ("pod- 2", "http://h:2", "n", "n"),
    ]
    labelled = [one("a", "h:1", team="red"), one("a", "h:2", team="blue")]
    by_label = found_servers(labelled, {}, ("team",))
    assert [one.group for one in by_label] == ["red", "blue"]


def test_routers_federation_and_the_list_of_targets() -> None:
    """Who is behind a router, whether an instance holds several others, and what targets report."""
    routed = [
        TimeSeries({"job": "r", "instance": "r:1", "server": f"http://h:{n}"}, [(1.0, "1")]) for n in (1, 2)
    ]
    assert found_routers(routed) == {ScrapeKey("r", "r:1"): ("http://h:1", "http://h:2")}
    assert is_federated([ScrapeKey("f", "p:9090", "a", "h:1"), ScrapeKey("f", "p:9090", "a", "h:2")])
    assert not is_federated([KEY, ScrapeKey("vllm", "10.0.0.2:8000")])
    listed = {
        "activeTargets": [
            {
                "labels": {"job": "vllm", "instance": "10.0.0.1:8000"},
                "scrapeUrl": "http://me:pw@10.0.0.1:8000/metrics",
                "scrapeInterval": "1m30s",
                "lastError": "connection\x1b refused",
            },
            {"labels": {"job": 3}},
            "no",
        ]
    }
    assert active_targets(listed) == {KEY: ActiveTarget("http://10.0.0.1:8000", 90.0, "connection refused")}
    assert active_targets(["no"]) == {}


def test_queries_quote_what_came_from_outside() -> None:
    """A quote, a backslash or a line feed in a label never ends a matcher."""
    assert quote_text('a"b\\\n') == '"a\\"b\\\\\\n"'
    assert any_of(["a.b", "c|d"]) == '"a\\\\.b|c\\\\|d"'
    assert selector(["up"], 'job="x"', "") == '{__name__=~"up",job="x"}'
    query = servers_query('namespace="llm"', ("team",))
    assert query.startswith(
        "count by (__name__, job, instance, exported_job, exported_instance, ReplicaId, WorkerId, namespace"
    )
    assert 'server="",namespace="llm"}' in query
    assert "vllm:generation_tokens_total" in names_for("generation_tokens")
    assert "sglang:time_to_first_token_seconds_bucket" in buckets_for("ttft")


# Targets with the same job and instance, whose pages have times of their own.

GAUGE = next(iter(RUNNING))
HERE = {"job": "vllm", "instance": "h:8000"}
APART_KEY = ScrapeKey("vllm", "h:8000")


def gauge(model: str, *samples: tuple[float, str]) -> TimeSeries:
    """Return the gauge of running requests of a model."""
    return TimeSeries({"__name__": GAUGE, **HERE, "model_name": model}, list(samples))


def test_two_targets_with_one_instance_are_one_page() -> None:
    """Each page has the newest line of both models; the first time, of one alone, is none."""
    both = [
        gauge("a", (15.0, "1"), (30.0, "2"), (45.0, "3")),
        gauge("b", (19.0, "10"), (34.0, "20")),
        TimeSeries(
            {"__name__": "process_cpu_seconds_total", **HERE}, [(15.0, "1"), (19.0, "7"), (30.0, "2")]
        ),
    ]
    found, mixed = pages(both, {})
    assert mixed == {APART_KEY}
    values = {
        at: [line.rpartition(" ")[2] for line in page.decode().splitlines() if line.startswith(GAUGE)]
        for at, page in found[APART_KEY].items()
    }
    assert values == {19.0: ["1", "10"], 30.0: ["2", "10"], 34.0: ["2", "20"], 45.0: ["3", "20"]}


def test_a_restart_with_another_model_is_one_target() -> None:
    """One gauge ends before the other begins, and a label that comes later has the times of the others."""
    assert len(times_by_target([frozenset({0.0, 15.0}), frozenset({45.0, 60.0})])) == 1
    assert len(times_by_target([frozenset({0.0, 15.0, 30.0}), frozenset({30.0, 45.0})])) == 1
    found, mixed = pages([gauge("a", (0.0, "1"), (15.0, "2")), gauge("b", (45.0, "3"))], {})
    assert not mixed
    assert list(found[APART_KEY]) == [0.0, 15.0, 45.0]
