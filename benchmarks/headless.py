"""Compare the verdicts of `sparktop snapshot --seconds` with those of the screen, on recorded loads.

Each recorded trace is served over real HTTP as the pages of two vLLM servers, at the recorded pace, beside a
router that the configuration names. `sparktop snapshot --seconds N --format json` watches them as a separate
process. The polling rate of a loaded group depends on the duration of an answer: answers of 0, 6 and 13 ms
lead to 4, 2 and 1 polls per second. All traces run at once in real time, which takes 4 minutes on a machine
with spare capacity (late answers lower the rate, which the table shows).

usage: headless.py [--only NAME …] [--virtual] [--write]

The table also has the verdicts of the command's own code in virtual time, where the rate is exact, and of the
store that the screen draws, fed with the same rows. With --virtual, nothing runs in real time. With --write,
the table is written to benchmarks/README.md. Exit code 1 if a verdict is wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from aiohttp import web
from families import write_between
from trace_pages import RIGHT, trace

from sparktop.engines import read_page
from tests.commands.test_headless_balance import watched
from tests.store.fed_traces import Pair

MARKS = ("<!-- headless.py: begin -->", "<!-- headless.py: end -->")
ANSWERS_S = {4: 0.0, 2: 0.006, 1: 0.013}
"""Seconds that a server takes to answer, by the polls per second that this leads to."""
LONGEST_S, SPARE_S = 180.0, 2.0
"""Most seconds of a trace that are watched, and seconds before its end at which watching stops."""
STAGGER_S = 0.4
CONFIG = """\
interval_s = 1.0
[[backends]]
name = "spark-a"
url = "{url}/a"
engine = "vllm"
[[backends]]
name = "spark-b"
url = "{url}/b"
engine = "vllm"
[[routers]]
name = "proxy"
url = "{url}/proxy"
strategy = "{strategy}"
backends = ["spark-a", "spark-b"]
"""


@dataclass(frozen=True, slots=True)
class Said:
    """The verdicts, alerts and events in the output of one run of the command."""

    word: str
    now: str
    alerts: int
    events: int
    hz: float | None

    @property
    def cell(self) -> str:
        """Return a cell of the table."""
        words = self.word if self.word == self.now else f"{self.word} (window: {self.now})"
        return f"{words}, {self.hz or 0:.1f} Hz, {self.alerts} alert{'s' * (self.alerts != 1)}"


class Servers:
    """Serves every trace at every polling rate; each starts at its first request."""

    def __init__(self) -> None:
        """Start without requests."""
        self._began: dict[tuple[str, str], float] = {}

    async def page(self, request: web.Request) -> web.Response:
        """Answer with the page that a server of a trace has at this moment."""
        name, hz, side = (request.match_info[key] for key in ("name", "hz", "side"))
        began = self._began.setdefault((name, hz), time.monotonic())
        if ANSWERS_S[int(hz)]:
            await asyncio.sleep(ANSWERS_S[int(hz)])
        return web.Response(body=trace(name).page(side, time.monotonic() - began), content_type="text/plain")

    def routes(self) -> list[web.RouteDef]:
        """Return the routes: metrics of two servers, and the liveness check of a proxy."""
        return [
            web.get("/{name}/{hz}/{side:[ab]}/metrics", self.page),
            web.get("/{name}/{hz}/proxy/health/liveliness", lambda _: _alive()),
        ]


async def _alive() -> web.Response:
    return web.json_response("I'm alive!")


async def command(name: str, hz: int, base: str, folder: Path, delay_s: float) -> Said:
    """Run the command on one trace, after `delay_s` seconds."""
    await asyncio.sleep(delay_s)
    config = folder / f"{name}-{hz}.toml"
    strategy = "least-busy" if name.startswith(("leastbusy", "cooldown")) else "simple-shuffle"
    config.write_text(CONFIG.format(url=f"{base}/{name}/{hz}", strategy=strategy), encoding="utf-8")
    seconds = min(LONGEST_S, trace(name).seconds - SPARE_S)
    words = ("snapshot", "--config", str(config), "--seconds", f"{seconds:.1f}", "--format", "json")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sparktop", *words),
        env={**os.environ, "HOME": str(folder), "XDG_CONFIG_HOME": str(folder)},
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    return said_in(json.loads(out))


def said_in(data: dict[str, Any]) -> Said:
    """Return the verdicts on the only group in a snapshot's JSON."""
    (found,) = data["balance"]
    return Said(
        found["verdict"],
        found["verdict_now"],
        sum(one["id"].startswith("balance:") for one in data["alerts"]),
        sum(one["values"].get("verdict") == "oscillating" for one in data["events"]),
        found["sample_hz"],
    )


async def run_all(names: list[str]) -> dict[tuple[str, int], Said]:
    """Run the command on all traces at all polling rates at once; return its results by (trace, rate)."""
    app = web.Application()
    app.add_routes(Servers().routes())
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    keys = [(name, hz) for name in names for hz in ANSWERS_S]
    with tempfile.TemporaryDirectory() as folder:
        tasks = [
            command(name, hz, f"http://127.0.0.1:{port}", Path(folder), STAGGER_S * index)
            for index, (name, hz) in enumerate(keys)
        ]
        said = await asyncio.gather(*tasks)
    await runner.cleanup()
    return dict(zip(keys, said, strict=True))


def screen_word(name: str, hz: int) -> str:
    """Return the verdict of the store that the screen draws, fed with the same pages at a constant rate."""
    pair, recorded = Pair(), trace(name)
    begin, seconds = pair.at, min(LONGEST_S, recorded.seconds - SPARE_S)
    for look in range(int(seconds * hz) + 1):
        pair.at = begin + look / hz
        for backend in pair.backends:
            page = recorded.page(backend[-1], look / hz)
            pair.give(backend, read_page(page, at=pair.at, engine="vllm", answer_ms=2.0))
        if look % hz == 0:
            pair.store.judge()
    return pair.store.snapshot().balance[0].word.value


def row(name: str, real: Sequence[Said]) -> tuple[str, bool]:
    """Return (the table's row of a trace, whether the command's verdicts and alerts are all right)."""
    screen = [screen_word(name, hz) for hz in ANSWERS_S]
    exact = [said_in(json.loads(watched(name, hz))) for hz in ANSWERS_S]
    said = [*exact, *real]
    good = all(one.word in RIGHT[name] for one in said)
    good &= all(bool(one.alerts) == bool(one.events) == (one.word == "oscillating") for one in said)
    same = [one.word for one in exact] == screen
    mark = ("✓" if same else "right, not the same") if good else "**✗**"
    words = (" / ".join(screen), " / ".join(one.word for one in exact))
    cells = (name, " or ".join(RIGHT[name]), *words, *(one.cell for one in real), mark)
    return f"| {' | '.join(cells)} |", good


def main() -> int:
    """Run the command and print the table; return 1 if a verdict is wrong, else 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=sorted(RIGHT), default=list(RIGHT), metavar="NAME")
    parser.add_argument("--virtual", action="store_true", help="in virtual time only")
    parser.add_argument("--write", action="store_true", help="put the table into benchmarks/README.md")
    options = parser.parse_args()
    found = {} if options.virtual else asyncio.run(run_all(options.only))
    heads = ["trace", "right", "screen, 4 / 2 / 1 Hz", "command, 4 / 2 / 1 Hz"]
    heads += (
        [] if options.virtual else [f"real time, answers of {1000 * s:.0f} ms" for s in ANSWERS_S.values()]
    )
    lines = [f"| {' | '.join(heads)} | |", f"|{'---|' * (len(heads) + 1)}"]
    right = True
    for name in options.only:
        line, good = row(name, [found[name, hz] for hz in ANSWERS_S if (name, hz) in found])
        right &= good
        lines.append(line)
        print(line, flush=True)
    if options.write:
        write_between(MARKS, "\n".join(lines))
    return int(not right)


if __name__ == "__main__":
    sys.exit(main())
