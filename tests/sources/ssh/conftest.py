"""A real sshd for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.sources.ssh.sshd import Sshd, sshd


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """Yield a running sshd."""
    with sshd(tmp_path_factory.mktemp("sshd")) as running:
        yield running
