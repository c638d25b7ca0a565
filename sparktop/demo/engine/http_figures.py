"""Metrics of a simulated HTTP server, with the names that vLLM's own instrumentation uses."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from sparktop.demo.engine.ledger import Buckets

_FINE_S = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 7.5, 10.0),
    *(30.0, 60.0),
)
_COARSE_S = (0.1, 0.5, 1.0)
_LENGTH = "Only value of header is respected. Otherwise ignored. No percentile calculated. "


class HttpFigures(Collector):
    """Prometheus collector that counts HTTP responses by handler, method and status."""

    def __init__(self, started_unix_s: float) -> None:
        """Start at zero; `started_unix_s` is the creation time of the counters."""
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self)
        self._created = started_unix_s
        self._answers: dict[tuple[str, str, str], int] = {}
        self._sent: dict[str, tuple[int, int]] = {}
        """By handler: (number of requests, sum of the bytes of their bodies)."""
        self._fine = Buckets(_FINE_S)
        self._coarse: dict[tuple[str, str], Buckets] = {}

    def count(self, method: str, handler: str, status: int, took_s: float, body_bytes: int) -> None:
        """Count a response that took `took_s` seconds, to a request with a body of `body_bytes` bytes."""
        key = (handler, method, f"{status // 100}xx")
        self._answers[key] = self._answers.get(key, 0) + 1
        requests, size = self._sent.get(handler, (0, 0))
        self._sent[handler] = (requests + 1, size + body_bytes)
        self._fine.observe(took_s)
        self._coarse.setdefault((handler, method), Buckets(_COARSE_S)).observe(took_s)

    def describe(self) -> Iterable[Metric]:
        """Return nothing: the families need not be described when the collector is registered."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Yield all metric families with their current values."""
        total = Metric("http_requests", "Total number of requests by method, status and handler.", "counter")
        for (handler, method, status), number in self._answers.items():
            labels = {"handler": handler, "method": method, "status": status}
            self._add(total, labels, {"_total": number})
        yield total
        about = f"Content length of incoming requests by handler. {_LENGTH}"
        incoming = Metric("http_request_size_bytes", about, "summary")
        about = f"Content length of outgoing responses by handler. {_LENGTH}"
        outgoing = Metric("http_response_size_bytes", about, "summary")
        for handler, (requests, size) in self._sent.items():
            self._add(incoming, {"handler": handler}, {"_count": requests, "_sum": size})
            # Streams have no length in their header.
            self._add(outgoing, {"handler": handler}, {"_count": requests, "_sum": 0})
        yield from (incoming, outgoing)
        about = "Latency with many buckets but no API specific labels. Made for more accurate percentile "
        fine = Metric("http_request_duration_highr_seconds", f"{about}calculations. ", "histogram")
        self._observed(fine, {}, self._fine)
        yield fine
        about = "Latency with only few buckets by handler. Made to be only used if aggregation by handler is "
        coarse = Metric("http_request_duration_seconds", f"{about}important. ", "histogram")
        for (handler, method), buckets in self._coarse.items():
            self._observed(coarse, {"handler": handler, "method": method}, buckets)
        yield coarse

    def _observed(self, metric: Metric, labels: dict[str, str], buckets: Buckets) -> None:
        counts = buckets.cumulative
        for bound, number in zip((*map(repr, buckets.bounds), "+Inf"), counts, strict=True):
            metric.add_sample(f"{metric.name}_bucket", {**labels, "le": bound}, number)
        self._add(metric, labels, {"_count": counts[-1], "_sum": buckets.sum})

    def _add(self, metric: Metric, labels: dict[str, str], values: dict[str, float]) -> None:
        for suffix, value in values.items():
            metric.add_sample(metric.name + suffix, labels, value)
        metric.add_sample(f"{metric.name}_created", labels, self._created)
