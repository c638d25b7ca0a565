"""load_client.py URL=CONCURRENCY…: streaming load on OpenAI-compatible servers until standard input ends.

Keeps so many requests in flight at each server, each with a prompt of random tokens that no cache knows.
Prints one JSON line at the end: requests that ended well, those that failed, tokens received.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from dataclasses import asdict, dataclass

import aiohttp

MODEL = "openai/gpt-oss-120b"
TOKEN_IDS = (10, 2000)
"""The live servers' models know some 2,000 tokens."""
PROMPT_TOKENS = (250, 450)
OUTPUT_TOKENS = (150, 250)


@dataclass(slots=True)
class Totals:
    """What came of the load."""

    done: int = 0
    failed: int = 0
    chunks: int = 0
    """Streamed events that held text: about one a token."""


async def one_request(session: aiohttp.ClientSession, url: str, dice: random.Random, totals: Totals) -> None:
    """Stream one completion to its end."""
    body = {
        "model": MODEL,
        "prompt": [dice.randint(*TOKEN_IDS) for _ in range(dice.randint(*PROMPT_TOKENS))],
        "max_tokens": dice.randint(*OUTPUT_TOKENS),
        "ignore_eos": True,
        "stream": True,
    }
    try:
        async with session.post(f"{url}/v1/completions", json=body) as response:
            response.raise_for_status()
            async for line in response.content:
                if line.startswith(b"data: {"):
                    totals.chunks += 1
    except aiohttp.ClientError as error:
        totals.failed += 1
        sys.stderr.write(f"{url}: {error}\n")
        return
    totals.done += 1


async def keep_busy(session: aiohttp.ClientSession, url: str, seed: str, totals: Totals) -> None:
    """Send one request after the other, until cancelled or one fails."""
    dice = random.Random(seed)  # noqa: S311 - load, no secrets
    while not totals.failed:
        await one_request(session, url, dice, totals)


async def main() -> int:
    """Run the load that the arguments name."""
    totals = Totals()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), stop.set)
    timeout = aiohttp.ClientTimeout(total=None, sock_read=120)
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as session:
        workers = [
            asyncio.create_task(keep_busy(session, url, f"{url} {number}", totals))
            for url, count in (argument.split("=") for argument in sys.argv[1:])
            for number in range(int(count))
        ]
        await stop.wait()
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    sys.stdout.write(json.dumps(asdict(totals)) + "\n")
    return 1 if totals.failed else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
