"""A fake network that answers as the test says, and the raw servers of the tests of sources."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from sparktop.doctor.network import Network, shown_address
from sparktop.model.failure import FailureKind
from sparktop.net.failure import AnswerError
from tests.sources import conftest as sources

VLLM_PAGE = b"""\
vllm:num_requests_running{engine="0",model_name="tiny"} 3.0
vllm:num_requests_waiting{engine="0",model_name="tiny"} 2.0
"""
serve = sources.serve
"""The fixture that starts a server which answers raw bytes."""
VLLM: dict[str, bytes] = {
    "/metrics": sources.answer(VLLM_PAGE),
    "/version": sources.answer(b'{"version": "0.32.0"}'),
    "/v1/models": sources.answer(b'{"data": [{"id": "tiny", "max_model_len": 4096}]}'),
}


class FakeNetwork(Network):
    """A network whose names and ports come from tables; other names do not exist."""

    def __init__(
        self,
        *,
        names: Mapping[str, tuple[tuple[str, ...], float]] | None = None,
        closed: tuple[int, ...] = (),
    ) -> None:
        super().__init__()
        self.names = names or {}
        self.closed = closed
        self.resolved: list[str] = []

    async def resolve(self, host: str) -> tuple[tuple[str, ...], float]:
        """Return the addresses of a name from the table; raise OSError if it has none."""
        self.resolved.append(host)
        if host not in self.names:
            raise OSError(host)
        return self.names[host]

    async def connect(self, host: str, port: int) -> None:
        """Raise if the port is one of the closed ones."""
        if port in self.closed:
            where = shown_address(host, port)
            raise AnswerError(FailureKind.REFUSED, f"nothing listens on {where} (connection refused)")


@pytest.fixture
def network() -> Network:
    """Return the real network, with a deadline that a busy machine keeps."""
    return Network(poll_timeout_s=100.0)
