"""Serve many simulated GB10 machines from one process, each with the agent's own HTTP server.

usage: fleet_machines.py COUNT    prints the ports as JSON, serves until standard input ends
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import time
from pathlib import Path

from sparktop.agent.gate import Limits
from sparktop.agent.reader import Sampler
from sparktop.agent.server import AgentServer
from sparktop.demo.machine import MachineReader
from sparktop.demo.scenario import DEFAULT_SCENARIO, SCENARIOS
from sparktop.hardware.ras import RasReader

_MANY = Limits(requests_per_s=10_000.0, request_burst=10_000.0)
"""Rate limits high enough for all requests, which come from one address."""


async def serve(count: int) -> None:
    """Print the ports of `count` agents and serve until standard input ends."""
    scenario, began, ports, agents = SCENARIOS[DEFAULT_SCENARIO], time.monotonic(), [], []
    for place in range(count):
        heat = scenario.thermal_of(place, start_s=began)
        machine = scenario.machine_of(place, start_s=began)
        reader = MachineReader(heat, machine, name=f"n{place:03d}")
        ranks = RasReader(root=Path(os.devnull), addresses=[])
        agent = AgentServer(Sampler(reader), simulated=True, limits=_MANY, ranks=ranks)
        listener = socket.create_server(("127.0.0.1", 0))
        agent.start([listener])
        agents.append(agent)
        ports.append(int(listener.getsockname()[1]))
    print(json.dumps(ports), flush=True)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, ended.set)
    await ended.wait()
    for agent in agents:
        await agent.close()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
