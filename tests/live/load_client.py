"""load_client.py [--alike WORDS,OUTPUT] URL=CONCURRENCY…: streaming load until standard input ends.

Keeps CONCURRENCY requests in flight at each OpenAI-compatible server, each with a prompt of random tokens
that is in no cache. With --alike they are chats, for proxies that accept no tokens, each with WORDS words and
OUTPUT output tokens. Prints one JSON line at the end: the numbers of successful and failed requests and of
received events with text.
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
    """The results of the load."""

    done: int = 0
    failed: int = 0
    chunks: int = 0
    """Streamed events that held text: about one a token."""


@dataclass(frozen=True, slots=True)
class Alike:
    """Chats of equal length."""

    words: int
    output_tokens: int


def asked(dice: random.Random, alike: Alike | None) -> tuple[str, dict[str, object]]:
    """Return (route, body) of one request."""
    body: dict[str, object] = {"model": MODEL, "ignore_eos": True, "stream": True}
    if alike is None:
        body["prompt"] = [dice.randint(*TOKEN_IDS) for _ in range(dice.randint(*PROMPT_TOKENS))]
        body["max_tokens"] = dice.randint(*OUTPUT_TOKENS)
        return "/v1/completions", body
    words = " ".join(str(dice.randint(100, 999)) for _ in range(alike.words))
    body["messages"] = [{"role": "user", "content": words}]
    body["max_tokens"] = alike.output_tokens
    return "/v1/chat/completions", body


async def one_request(
    session: aiohttp.ClientSession, url: str, dice: random.Random, totals: Totals, alike: Alike | None
) -> None:
    """Stream one completion to its end."""
    route, body = asked(dice, alike)
    try:
        async with session.post(f"{url}{route}", json=body) as response:
            response.raise_for_status()
            async for line in response.content:
                if line.startswith(b"data: {"):
                    totals.chunks += 1
    except aiohttp.ClientError as error:
        totals.failed += 1
        sys.stderr.write(f"{url}: {error}\n")
        return
    totals.done += 1


async def keep_busy(
    session: aiohttp.ClientSession, url: str, seed: str, totals: Totals, alike: Alike | None
) -> None:
    """Send one request after another until cancelled or until one fails."""
    dice = random.Random(seed)  # noqa: S311 - load, no secrets
    while not totals.failed:
        await one_request(session, url, dice, totals, alike)


async def main() -> int:
    """Run the load given by the arguments."""
    arguments, alike = sys.argv[1:], None
    if arguments and arguments[0] == "--alike":
        alike = Alike(*map(int, arguments[1].split(",")))
        del arguments[:2]
    totals = Totals()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), stop.set)
    timeout = aiohttp.ClientTimeout(total=None, sock_read=120)
    # The other end may close a kept-alive connection at the moment of its next use.
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        workers = [
            asyncio.create_task(keep_busy(session, url, f"{url} {number}", totals, alike))
            for url, count in (argument.split("=") for argument in arguments)
            for number in range(int(count))
        ]
        await stop.wait()
        # Repeatedly: a connection that is being opened may swallow the cancellation.
        while left := [worker for worker in workers if not worker.done()]:
            for worker in left:
                worker.cancel()
            await asyncio.wait(left, timeout=0.2)
    sys.stdout.write(json.dumps(asdict(totals)) + "\n")
    return 1 if totals.failed else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
