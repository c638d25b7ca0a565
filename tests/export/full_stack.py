"""Simulated servers and agents, `sparktop export` that watches them, and a Prometheus with our rules."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import tomllib
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any

from tests.agent.agent_process import END_S, ROOT, environment, listening
from tests.export.snapshots import snapshot, text
from tests.export.test_page import level
from tests.prometheus.prometheus_server import configured_prometheus

RULES = ROOT / "docs" / "prometheus" / "sparktop.rules.yml"


@contextmanager
def demo_servers(home: Path) -> Iterator[Path]:
    """Run `sparktop demo --serve`; yield the path of its configuration."""
    config = home / "sparktop.toml"
    command = [sys.executable, "-m", "sparktop", "demo", "--serve", "--load", "8"]
    with config.open("wb") as out:
        process = subprocess.Popen(  # noqa: S603 - our own program
            command,
            env=environment(home),
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
        )
    with process:
        try:
            assert process.stderr is not None
            assert "ready" in process.stderr.readline()
            yield config
        finally:
            process.terminate()
            process.wait(END_S)


@contextmanager
def full_page() -> Iterator[str]:
    """Yield the URL of an export page with every metric, also those of verdicts that take minutes."""
    from sparktop.export.metrics import named_level

    fetches = count(1)

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = text(snapshot(), (named_level("spark-a", level(8), 512),), stuck=next(fetches)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def configuration(jobs: Mapping[str, list[str]], rules: Path) -> str:
    """Return a configuration of Prometheus as JSON, a subset of YAML: URLs by job, scraped every second."""
    scrapes = [
        {"job_name": job, "static_configs": [{"targets": [url.removeprefix("http://") for url in urls]}]}
        for job, urls in jobs.items()
    ]
    every = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
    return json.dumps({"global": every, "rule_files": [str(rules)], "scrape_configs": scrapes})


@contextmanager
def full_stack(home: Path) -> Iterator[str]:
    """Yield the URL of a Prometheus that scrapes two simulated servers, two agents and two exports."""
    with ExitStack() as stack:
        config = stack.enter_context(demo_servers(home))
        watched = tomllib.loads(config.read_text(encoding="utf-8"))
        export = stack.enter_context(listening("export", home, "--config", str(config)))
        jobs = {
            "vllm": [one["url"] for one in watched["backends"]],
            "sparktop-agent": [one["url"] for one in watched["nodes"]],
            "sparktop-export": [export.url, stack.enter_context(full_page())],
        }
        yield stack.enter_context(configured_prometheus(configuration(jobs, RULES), home))


def asked(url: str, path: str, **query: str) -> dict[str, Any]:
    """Query Prometheus; return the data of its answer."""
    whole = f"{url}/api/v1/{path}?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(whole, timeout=END_S) as answer:  # noqa: S310 - a Prometheus of this test
        found = json.loads(answer.read())
    assert found["status"] == "success", found
    assert not found.get("warnings"), found
    data: dict[str, Any] = found["data"]
    return data
