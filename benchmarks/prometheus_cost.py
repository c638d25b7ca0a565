"""Measure the viewer's cost of watching 500, 2,000 and 10,000 servers through a Prometheus.

Each server has its own machine with dcgm-exporter and node_exporter. The Prometheus is simulated: it has the
same API and answers every query with data of the shape and size of a real answer, for servers whose figures
change, so that its memory does not limit their number. One server in a hundred is down, and so are twice as
many other targets; with --none-down none is, and nothing is asked of their past. With --url, a real one is
measured instead. The cost is the difference in CPU time of the whole program between a long and a short run,
which leaves out the start.

usage: prometheus_cost.py [--none-down] [COUNT ...]    (500 2000 10000)
       prometheus_cost.py --url http://127.0.0.1:9090
       prometheus_cost.py [--none-down] --serve COUNT  prints its port, serves until standard input ends
"""

from __future__ import annotations

import asyncio
import json
import math
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from aiohttp import web

from sparktop.engines.exposition import Reader
from sparktop.engines.tables import NAMES, RUNNING
from sparktop.sources.prometheus.down import MOST_DOWN
from sparktop.sources.prometheus.machines.exporters import MARKS

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "tests" / "data" / "vllm-0.32" / "t010.prom"
SCRAPE_S = 15
LENGTHS_S = (20, 80)
MACHINE = {
    "DCGM_FI_DEV_GPU_UTIL": "96",
    "DCGM_FI_DEV_GPU_TEMP": "61",
    "DCGM_FI_DEV_POWER_USAGE": "41",
    "DCGM_FI_DEV_SM_CLOCK": "2411",
    "node_uname_info": "1",
    "node_memory_MemTotal_bytes": "128000000000",
    "node_memory_MemAvailable_bytes": "60000000000",
    "node_memory_CmaFree_bytes": "2000000000",
    "node_load1": "3.5",
}
"""Metrics of a machine's exporters, each with its value."""
GROUP = 8
DOWN_EACH = 100
"""One server in so many is down, and two other targets."""
NONE_DOWN = "--none-down"


class Answers:
    """The answers of a Prometheus that scrapes `count` servers every 15 s."""

    def __init__(self, count: int, *, none_down: bool = False) -> None:
        self.count = count
        self.labels = [
            {"job": "vllm", "instance": f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}:8000"}
            for number in range(count)
        ]
        self.down = [] if none_down else self.labels[DOWN_EACH - 1 :: DOWN_EACH]
        self.others_down = [
            {"job": "other", "instance": f"10.200.{number >> 8}.{number & 255}:9256"}
            for number in range(2 * len(self.down))
        ]
        self.live = [
            (number, labels)
            for number, labels in enumerate(self.labels)
            if none_down or number % DOWN_EACH != DOWN_EACH - 1
        ]
        families = Reader(NAMES["vllm"]).read(PAGE.read_bytes())
        self.page = [
            ({"__name__": name, **dict(labels)}, value)
            for name, family in families.items()
            for labels, value in family.items()
        ]

    def answer(self, query: str) -> object:  # noqa: PLR0911 - one for each kind of query
        """Return the data of the answer to a query."""
        now = time.time()
        if query == "time()":
            return {"resultType": "scalar", "result": [now, str(now)]}
        if (known := self.of_down(query, now)) is not None:
            return known
        if any(word in query for word in ("DCGM", "node_")):
            return self.machines(query, now)
        if 'server!=""' in query or "prometheus_replica" in query:
            return {"resultType": "vector", "result": []}
        if query.startswith("count("):
            return self.vector(lambda _: {}, lambda _: "1")
        if query.startswith("count by"):
            mark = {"__name__": next(iter(RUNNING))}
            return self.vector(
                lambda number: {**mark, "model_name": f"model-{number // GROUP:04d}"}, lambda _: "1"
            )
        if '__name__=~"up"' in query:
            return self.vector(lambda _: {"__name__": "up"}, lambda _: "1")
        if query.endswith("s]"):
            return self.raw(query, now)
        if "timestamp" in query:
            return self.vector(lambda _: {}, lambda number: str(self.newest(number, now)))
        return self.vector(lambda _: {}, lambda number: str(round(8 + 8 * math.sin(now / 60 + number))))

    def of_down(self, query: str, now: float) -> object | None:
        """Return the data of a query about targets that are down; None for another query."""
        if query.endswith("== 0"):
            return values(self.down, now, "0")
        if query.startswith("topk("):
            return values([*self.down, *self.others_down][:MOST_DOWN], now, "1")
        if "last_over_time" not in query:
            return None
        plain = query.replace("\\\\", "")
        mark = {"__name__": next(iter(RUNNING)), "model_name": "model-down"}
        return values([labels | mark for labels in self.down if labels["instance"] in plain], now, "1")

    def newest(self, number: int, now: float) -> float:
        """Return the time of a server's newest scrape."""
        offset = number * 7919 % (SCRAPE_S * 1000) / 1000
        return round(offset + (now - offset) // SCRAPE_S * SCRAPE_S, 3)

    def machines(self, query: str, now: float) -> object:
        """Return the data of a query about machines: of each machine, the metrics that the query names."""
        found: list[object] = []
        plain = query.replace("\\\\", "")
        is_raw, is_found = query.endswith("s]"), query.startswith("count by")
        names = [name for name in MACHINE if name in query and (not is_found or name in MARKS)]
        for number, labels in enumerate(self.labels):
            host = labels["instance"].partition(":")[0]
            if is_raw and f"{host}:9400" not in plain:
                continue
            for name in ["up"] if "timestamp" in query else names:
                port = "9100" if name.startswith("node_") else "9400"
                own = {"job": "machines", "instance": f"{host}:{port}"}
                own |= {} if "timestamp" in query else {"__name__": name}
                own |= {} if port == "9100" else {"Hostname": host}
                own |= {"nodename": host} if is_found and port == "9100" else {}
                value = str(now - 5) if "timestamp" in query else MACHINE[name]
                key = "values" if is_raw else "value"
                sample = [round(self.newest(number, now), 3), value]
                found.append({"metric": own, key: [sample] if is_raw else sample})
        return {"resultType": "matrix" if is_raw else "vector", "result": found}

    def vector(self, more: Callable[[int], dict[str, str]], value: Callable[[int], str]) -> object:
        """Return an instant vector with one value per server, which has the labels `more` besides its own."""
        now = round(time.time(), 3)
        found = [
            {"metric": labels | more(number), "value": [now, value(number)]} for number, labels in self.live
        ]
        return {"resultType": "vector", "result": found}

    def raw(self, query: str, now: float) -> object:
        """Return the samples within a query's window of the servers that it names."""
        window_s = float(query.rpartition("[")[2].removesuffix("s]"))
        plain = query.replace("\\\\", "")
        found = []
        page = [(own, value) for own, value in self.page if own["__name__"] in plain]
        for number, labels in self.live:
            if labels["instance"] not in plain:
                continue
            last = self.newest(number, now)
            times = [last - SCRAPE_S * back for back in range(int(window_s / SCRAPE_S) + 1)]
            times = sorted(at for at in times if at > now - window_s)
            for own, value in page:
                samples = [[at, repr(value * (1 + at % 1e6 * 1e-6))] for at in times]
                found.append({"metric": own | labels | {"model_name": model(number)}, "values": samples})
        return {"resultType": "matrix", "result": found}


def model(number: int) -> str:
    """Return the model name of a server."""
    return f"model-{number // GROUP:04d}"


def values(some: Sequence[dict[str, str]], now: float, value: str) -> object:
    """Return an instant vector of these series, all with the same value."""
    return {
        "resultType": "vector",
        "result": [{"metric": labels, "value": [round(now, 3), value]} for labels in some],
    }


async def serve(count: int, *, none_down: bool) -> None:
    """Print the port and answer queries until standard input ends."""
    answers = Answers(count, none_down=none_down)

    async def query(request: web.Request) -> web.Response:
        form = await request.post()
        body = {"status": "success", "data": answers.answer(str(form["query"]))}
        response = web.Response(text=json.dumps(body, separators=(",", ":")), content_type="application/json")
        response.enable_compression()
        return response

    app = web.Application()
    app.router.add_post("/api/v1/query", query)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, ended.set)
    await ended.wait()


def measured(url: str) -> str:
    """Measure the viewer on a Prometheus; return a row: servers, CPU, memory, time of the aggregates."""
    spent: list[float] = []
    body: dict[str, Any] = {}
    for seconds in LENGTHS_S:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [
            sys.executable,
            "-m",
            "sparktop",
            "snapshot",
            "--seconds",
            str(seconds),
            f"prometheus+{url}",
        ]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, timeout=seconds + 120)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        body = json.loads(done.stdout)
    seen, own = body["prometheus"][0], body["self"]
    percent = 100 * (spent[1] - spent[0]) / (LENGTHS_S[1] - LENGTHS_S[0])
    cells = (
        f"{len(seen['servers']):,}",
        len(body["backends"]),
        f"{percent:.1f} %",
        f"{own['rss_bytes'] / 2**20:.0f} MiB",
        f"{seen['answer_ms']:.0f} ms",
    )
    return f"| {' | '.join(map(str, cells))} |"


def main(words: list[str]) -> None:
    """Serve a simulated Prometheus, or measure the viewer and print the table."""
    none_down = words[:1] == [NONE_DOWN]
    words = words[none_down:]
    if words[:1] == ["--serve"]:
        asyncio.run(serve(int(words[1]), none_down=none_down))
        return
    print("| servers on the wall | of them sample by sample | CPU of a core | memory | aggregates took |")
    print("|---:|---:|---:|---:|---:|")
    if words[:1] == ["--url"]:
        print(measured(words[1]))
        return
    for count in [int(word) for word in words] or [500, 2000, 10_000]:
        command = [sys.executable, __file__, *([NONE_DOWN] if none_down else []), "--serve", str(count)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None  # noqa: S101 - a pipe
            print(measured(f"http://127.0.0.1:{server.stdout.readline().strip()}"), flush=True)
            server.communicate()


if __name__ == "__main__":
    main(sys.argv[1:])
