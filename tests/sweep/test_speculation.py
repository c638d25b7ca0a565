"""Speculative acceptance stands beside the rates of a level."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparktop.cli import main
from sparktop.sweep.result.store import stored
from tests.sweep.stream_server import Asked, StreamServer
from tests.sweep.test_sweep_command import SMALL, Command

_PAGE = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="0",model_name="tiny"}} {running}
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{{engine="0",model_name="tiny"}} 0
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{{engine="0",model_name="tiny"}} {prompt}
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{{engine="0",model_name="tiny"}} {generated}
"""
_SPECULATION = """\
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{{engine="0",model_name="tiny"}} {drafts}
# TYPE vllm:spec_decode_num_draft_tokens_total counter
vllm:spec_decode_num_draft_tokens_total{{engine="0",model_name="tiny"}} {drafted}
# TYPE vllm:spec_decode_num_accepted_tokens_total counter
vllm:spec_decode_num_accepted_tokens_total{{engine="0",model_name="tiny"}} {accepted}
"""


class Vllm:
    """A server whose counters grow with each answer: 10 drafts of 3 tokens, of which 21 are accepted."""

    idle_s = None

    def __init__(self, *, speculates: bool) -> None:
        self._text = _PAGE + (_SPECULATION if speculates else "")
        self._done = 5
        self._running = 0

    async def answer(self, asked: Asked) -> None:
        """Stream what is asked for."""
        self._running += 1
        await asked.stream()
        self._running -= 1
        self._done += 1

    @property
    def small(self) -> Callable[[str, dict[str, str], dict[str, Any]], bytes | None]:
        """The metrics page; other requests have their usual responses."""
        return lambda path, _headers, _body: self._page() if path.startswith("/metrics") else None

    def _page(self) -> bytes:
        done = self._done
        counts = {"prompt": 45 * done, "generated": 9 * done, "drafts": 10 * done}
        text = self._text.format(running=self._running, drafted=30 * done, accepted=21 * done, **counts)
        head = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {len(text)}\r\n\r\n"
        return f"{head}{text}".encode()


@pytest.mark.process
@pytest.mark.timeout(90)
@pytest.mark.parametrize("speculates", [True, False])
async def test_acceptance_is_that_of_the_measured_runs(tmp_path: Path, *, speculates: bool) -> None:
    """21 of 30 drafted tokens are 70 %; a server without such decoding has neither figure nor column."""
    server = StreamServer(behaviours={"vllm": Vllm(speculates=speculates)})
    await server.start()
    command = Command(tmp_path)
    code, _, err = await command.run("--target", f"a={server.url}/vllm", "-c", "1", *SMALL, "--no-warm-up")
    await server.stop()
    assert code == 0, err
    (kept,) = stored(command.folder)
    assert kept.result is not None
    (level,) = kept.result.targets[0].levels
    assert level.server is not None
    expected = (70.0, 2.1) if speculates else (None, None)
    assert (level.server.spec_accept_percent, level.server.spec_accepted_per_draft) == expected
    texts = {}
    for form in ("md", "csv"):
        assert main(["report", str(kept.path), "--format", form, "-o", str(tmp_path / f"r.{form}")]) == 0
        texts[form] = (tmp_path / f"r.{form}").read_text(encoding="utf-8")
    assert ("Accepted" in texts["md"]) is speculates
    assert ("70 %" in texts["md"]) is speculates
    assert "spec_accept_percent" in texts["csv"]
