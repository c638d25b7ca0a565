"""--api-key-env: the key of a server goes to that server alone, and nowhere into what is kept or printed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sparktop.commands.arguments import target_keys
from sparktop.errors import UsageError
from tests.sweep.stream_server import Asked, StreamServer, page
from tests.sweep.test_sweep_command import Command

KEY = "sk-spark-7041-secret"
SMALL = ["-c", "1", "--pp", "24", "--tg", "9", "--runs", "1", "--no-warm-up", "--format", "json"]


@dataclass
class Locked:
    """A vLLM with --api-key: its /v1 wants the key, its metrics are open. Keeps what it was sent."""

    key: str | None = KEY
    sent: list[tuple[str, str | None]] = field(default_factory=list)
    """(path, Authorization) of each request."""
    idle_s: float | None = None

    def _refusal(self, path: str, headers: dict[str, str]) -> bytes | None:
        said = headers.get("authorization")
        self.sent.append((path, said))
        locked = self.key is not None and "/v1/" in path and said != f"Bearer {self.key}"
        return page(401, {"error": f"Unauthorized: {said}"}) if locked else None

    async def answer(self, asked: Asked) -> None:
        """Answer a completion, with the key."""
        refused = self._refusal(asked.path, asked.headers)
        if refused is None:
            await asked.stream()
        else:
            asked.write(refused)

    def small(self, path: str, headers: dict[str, str], _body: dict[str, Any]) -> bytes | None:
        """Refuse what is below /v1 without the key."""
        return self._refusal(path, headers)


@dataclass
class Two:
    """A server that wants a key and one that wants none, at two addresses of one process."""

    locked: Locked
    free: Locked
    url: str
    home: Path

    async def command(self, *words: str, **variables: str) -> tuple[int, str, str]:
        """Run a command with environment variables; return exit code, output and errors."""
        return await Command(self.home).run(*words[1:], name=words[0], **variables)

    def kept(self) -> str:
        """Return the text of every file that was written at home."""
        files = (one for one in self.home.rglob("*") if one.is_file())
        return "".join(one.read_bytes().decode("latin-1") for one in files)


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[Two]:
    locked, free = Locked(), Locked(None)
    server = StreamServer(behaviours={"locked": locked, "free": free})
    await server.start()
    yield Two(locked, free, server.url, tmp_path)
    await server.stop()


@pytest.mark.process
@pytest.mark.timeout(120)
async def test_a_server_that_wants_a_key_says_so_and_takes_it(two: Two) -> None:
    """Without a key 401 with the option's name; with it a result, and the key in no file and no line."""
    code, _, err = await two.command("sweep", f"{two.url}/locked", *SMALL, KEY_OF_A=KEY, VLLM_API_KEY=KEY)
    assert code != 0
    assert "401" in err
    assert "--api-key-env" in err
    assert not [said for _, said in two.locked.sent if said is not None]  # never guessed from the environment
    code, out, err = await two.command(
        *("sweep", f"{two.url}/locked", f"--target=b={two.url}/free", "--api-key-env"),
        *(f"{two.url}/locked=KEY_OF_A", *SMALL),
        KEY_OF_A=KEY,
    )
    assert code == 0, err
    levels = [level for one in json.loads(out)["targets"] for level in one["levels"]]
    assert [level["requests"]["ok"] for level in levels] == [1, 1]
    assert ("/locked/v1/chat/completions", f"Bearer {KEY}") in two.locked.sent
    assert {said for _, said in two.free.sent} == {None}
    assert KEY not in out + err + two.kept()


@pytest.mark.process
@pytest.mark.timeout(120)
async def test_every_command_with_a_target_takes_its_key(two: Two) -> None:
    """Snapshot and record send it to the server that it was named for."""
    target, option = f"{two.url}/locked", ("--api-key-env", "KEY_OF_A")
    recording = two.home / "r.sprec"
    for words in (
        ("snapshot", target, "--format", "json"),
        ("record", target, "-o", str(recording), "--seconds", "1"),
    ):
        two.locked.sent.clear()
        _, out, err = await two.command(*words, *option, KEY_OF_A=KEY)
        assert f"Bearer {KEY}" in {said for _, said in two.locked.sent}, (words, out, err)
        assert KEY not in out + err + two.kept(), words


@pytest.mark.parametrize(
    ("options", "texts", "words"),
    [
        (["KEY_OF_A"], ["a:1", "b:2"], "TARGET=NAME"),
        (["c:3=KEY_OF_A"], ["a:1"], "none of the TARGETs"),
        (["sk-secret-value"], ["a:1"], "name of an environment variable"),
        (["BROKEN"], ["a:1"], "no HTTP header"),
    ],
)
def test_what_names_no_key_is_refused(options: list[str], texts: list[str], words: str) -> None:
    """Each mistake has one line, which never quotes what may be the key itself."""
    with pytest.raises(UsageError) as caught:
        target_keys(options, texts, {"KEY_OF_A": KEY, "BROKEN": "a\nb"})
    assert words in str(caught.value)
    assert "sk-" not in str(caught.value)


def test_each_target_has_its_own_key() -> None:
    """With several targets each key names its own."""
    found = target_keys(["a:1=ONE", "b:2=TWO"], ["a:1", "b:2"], {"ONE": "1", "TWO": "2"})
    assert found == {"a:1": "1", "b:2": "2"}
