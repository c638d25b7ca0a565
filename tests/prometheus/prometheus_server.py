"""A real Prometheus of our own, and what it answers."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from tests.programs import free_port, logged

HOST = "127.0.0.1"
READY_S = 60.0


def prometheus(targets: Mapping[str, str], folder: Path) -> AbstractContextManager[str]:
    """Yield the URL of a Prometheus that scrapes `targets` (URLs by name) every second, until the block ends.

    All it writes is in `folder`. Every series has the target's name as its label `server`.
    """
    return configured_prometheus(_config(targets), folder)


@contextmanager
def configured_prometheus(content: str, folder: Path, *options: str) -> Iterator[str]:
    """Yield the URL of a Prometheus with this configuration, until the block ends; it writes to `folder`.

    `options` are further ones of its command line. With those of TLS, the URL is still that of http.
    """
    listen = f"{HOST}:{free_port()}"
    config = folder / "prometheus.yml"
    config.write_text(content)
    command = ["prometheus", f"--config.file={config}", f"--web.listen-address={listen}"]
    command += [f"--storage.tsdb.path={folder / 'data'}", "--storage.tsdb.retention.time=1h"]
    with running([*command, "--log.level=warn", *options], listen, folder):
        yield f"http://{listen}"


@contextmanager
def victoria_metrics(content: str, folder: Path) -> Iterator[str]:
    """Yield the URL of a VictoriaMetrics that scrapes by this configuration of Prometheus."""
    listen = f"{HOST}:{free_port()}"
    config = folder / "prometheus.yml"
    config.write_text(content)
    command = ["victoria-metrics", f"-httpListenAddr={listen}", f"-storageDataPath={folder / 'data'}"]
    # Its instant queries are 30 s behind by default.
    command += [f"-promscrape.config={config}", "-search.latencyOffset=2s", "-loggerLevel=WARN"]
    with running(command, listen, folder):
        yield f"http://{listen}"


@contextmanager
def running(command: Sequence[str], listen: str, folder: Path) -> Iterator[None]:
    """Run a server that listens at `listen` until the block ends; its log is in `folder`."""
    log_file = folder / f"{command[0]}.log"
    with logged(command, log_file) as process:
        _wait_until_ready(listen, process, log_file)
        yield


def _config(targets: Mapping[str, str]) -> str:
    """Write the configuration: JSON is YAML."""
    named = [
        {"targets": [url.removeprefix("http://")], "labels": {"server": name}}
        for name, url in targets.items()
    ]
    job = {"job_name": "vllm", "static_configs": named}
    every_second = {"scrape_interval": "1s", "scrape_timeout": "1s"}
    return json.dumps({"global": every_second, "scrape_configs": [job]}, indent=1)


def _wait_until_ready(listen: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end, url = time.monotonic() + READY_S, f"http://{listen}/-/ready"
    while time.monotonic() < end:
        try:
            urllib.request.urlopen(url, timeout=5).close()
        except urllib.error.HTTPError as error:
            if error.code == 400:  # it wants https
                return
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            pass
        else:
            return
        # Waiting for its end is the pause between two requests.
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.2)
            break
    raise RuntimeError(f"{log.stem} did not start:\n{log.read_text(errors='replace')[-2000:]}")


@dataclass(frozen=True)
class RawSeries:
    """The samples of one series inside a window."""

    labels: Mapping[str, str]
    times_ms: tuple[int, ...]
    """Unix time of the scrapes."""
    values: tuple[float, ...]


class Prometheus:
    """Client of a Prometheus."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        """Send queries to the Prometheus at `url`."""
        self._url = url
        self._session = session

    async def value(self, query: str, at_ms: int) -> float | None:
        """Return the single value of an instant query; NaN as it is, None if there is no series."""
        found = await self._query(query, at_ms)
        assert len(found) <= 1, f"{len(found)} series for {query}"
        return float(found[0]["value"][1]) if found else None

    async def raw(self, selector: str, window_s: float, at_ms: int) -> list[RawSeries]:
        """Return all samples in the window that ends at `at_ms`, as `rate()` sees them."""
        found = await self._query(f"{selector}[{window_s:g}s]", at_ms)
        return [
            RawSeries(
                one["metric"],
                tuple(round(float(at) * 1000) for at, _ in one["values"]),
                tuple(float(value) for _, value in one["values"]),
            )
            for one in found
        ]

    async def _query(self, query: str, at_ms: int) -> list[Any]:
        asked = {"query": query, "time": f"{at_ms / 1000:.3f}"}
        async with self._session.get(f"{self._url}/api/v1/query", params=asked) as response:
            answer = await response.json()
        assert answer["status"] == "success", answer
        found: list[Any] = answer["data"]["result"]
        return found
