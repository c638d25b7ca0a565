"""What `sparktop sweep` shows of servers that behave in unusual ways: each against its known truth."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from tests.sweep.stream_server import StreamServer, page
from tests.sweep.test_sweep_command import Command
from tests.sweep.wire_behaviours import BEHAVIOURS

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]


@dataclass(frozen=True)
class Swept:
    """What a sweep of several behaviours left."""

    result: dict[str, Any]
    said: str
    """What the command wrote on standard error."""

    def target(self, name: str) -> dict[str, Any]:
        """Return the result of a target."""
        return next(one for one in self.result["targets"] if one["name"] == name)


def sweeps(home: Path, *commands: Sequence[str]) -> list[tuple[int, str, str]]:
    """Run commands beside one another on a server of all behaviours; return exit codes, outputs and errors.

    "{server}" in a word stands for the server's address.
    """

    async def served() -> list[tuple[int, str, str]]:
        server = StreamServer(behaviours=BEHAVIOURS)
        await server.start()
        words = [[word.replace("{server}", server.url) for word in command] for command in commands]
        try:
            return await asyncio.gather(*(Command(home).run(*command) for command in words))
        finally:
            await server.stop()

    return asyncio.run(served())


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, ...], Swept]:
    """Return a sweep for each set of options, of all behaviours that are measured with them."""
    commands: dict[tuple[str, ...], list[str]] = {}
    for name, behaviour in BEHAVIOURS.items():
        command = commands.setdefault(behaviour.options, [*behaviour.options, "--seed=7", "--format=json"])
        command.append(f"--target={name}={{server}}/{name}{behaviour.address}")
    told = sweeps(tmp_path_factory.mktemp("home"), *commands.values())
    return {
        options: Swept(json.loads(out), err) for options, (_, out, err) in zip(commands, told, strict=True)
    }


def value(part: Any, path: str) -> Any:  # noqa: ANN401 - JSON of any shape
    """Return what stands in JSON at a path like requests.ok; None below null."""
    return reduce(lambda one, key: None if one is None else one[key], path.split("."), part)


def test_a_cut_prompt_wins_nothing(tmp_path: Path) -> None:
    """A prompt cut below half fails the command, and is not laid beside one that was read: no winner."""
    targets = [f"--target={name}={{server}}/{name}" for name in ("cut-prompt", "no-done")]
    options = BEHAVIOURS["no-done"].options
    ((code, out, err),) = sweeps(tmp_path, [*targets, *options, "--runs", "3", "--format", "json"])
    told = json.loads(out)
    assert code == 1
    assert "counted 15 of 40 prompt tokens" in err
    assert not [row for row in told["comparison"]["rows"] if row["winner"] is not None]
    assert "wins" not in told["headline"]
    assert "prompt of 15 tokens, not 40" in told["headline"]


def test_the_wrong_scheme_is_named(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    """http:// to a server with TLS and https:// to one without each have a line that says so."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(page(400, {"detail": "Invalid HTTP request"}))
        writer.close()

    async def served() -> tuple[str, str]:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*certificate)
        locked = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0, ssl=context)
        plain = await asyncio.start_server(refuse, "127.0.0.1", 0)
        wrong = [
            f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            for scheme, server in (("http", locked), ("https", plain))
        ]
        said = [(await Command(tmp_path).run(url, *BEHAVIOURS["no-done"].options))[2] for url in wrong]
        locked.close()
        plain.close()
        return said[0], said[1]

    to_tls, to_plain = asyncio.run(served())
    assert "https://" in to_tls
    assert "write http://" in to_plain


@pytest.mark.parametrize("name", BEHAVIOURS)
def test_a_behaviour_shows_its_truth(swept: dict[tuple[str, ...], Swept], name: str) -> None:
    """The figures, warnings and words of each server are those of its entry."""
    behaviour = BEHAVIOURS[name]
    found = swept[behaviour.options]
    target = found.target(name)
    said = f"{target['error'] or ''}\n" + "\n".join(line for line in found.said.splitlines() if name in line)
    if not behaviour.shows:
        assert target["levels"] == [], behaviour.fact
        assert target["error"], behaviour.fact
    else:
        assert target["error"] is None, behaviour.fact
        level = target["levels"][-1]
        for path, right in behaviour.shows.items():
            shown = value(level, path)
            assert right(shown) if callable(right) else shown == right, (behaviour.fact, path, shown)
        assert behaviour.marks <= {one["code"] for one in level["validity"]}, behaviour.fact
    for words in behaviour.says:
        assert words in said, behaviour.fact
