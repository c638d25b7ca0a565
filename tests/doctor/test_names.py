"""Checks of host names, with a fake resolver."""

from __future__ import annotations

from typing import Any

import pytest

from sparktop.doctor.check import Check, Status
from sparktop.doctor.network import RealNetwork, Resolved, check_names, is_address, is_mdns

NAMES = {
    "spark-a": Resolved(("10.0.0.1",), 0.003),
    "slow": Resolved(("10.0.0.2",), 1.5),
    "spark.local": Resolved(("10.0.0.3", "fe80::3"), 0.02),
    "nothing": Resolved((), 0.1),
    "hostile": Resolved(("\x1b[31m1.2.3.4",), 0.1),
}


async def checked(fake: Any, *hosts: str) -> list[Check]:  # noqa: ANN401 - the class of the fixture
    return list((await check_names(hosts, fake(names=NAMES))).values())


async def test_a_name_that_resolves_is_fine(fake: Any) -> None:  # noqa: ANN401 - as above
    """A name that resolves is fine, with its addresses and the time."""
    (check,) = await checked(fake, "spark-a")
    assert check == Check("name spark-a", Status.OK, "resolves to 10.0.0.1 in 3 ms")


async def test_addresses_are_not_looked_up(fake: Any) -> None:  # noqa: ANN401 - as above
    """IP addresses need no check; each name is resolved once, whatever its spelling."""
    network = fake(names=NAMES)
    found = await check_names(["10.0.0.1", "::1", "fe80::1%eth0", "Spark-A", "spark-a", "spark-a."], network)
    assert list(found) == ["spark-a"]
    assert network.resolved == ["spark-a"]


async def test_mdns_names_are_warned_of(fake: Any) -> None:  # noqa: ANN401 - as above
    """A .local name is a warning with the address to use instead: it broke runs at concurrency 64."""
    (check,) = await checked(fake, "spark.local")
    assert check.status is Status.WARN
    assert "10.0.0.3" in check.message
    assert "crashed benchmark runs at concurrency 64" in check.advice
    assert check.advice.endswith("use 10.0.0.3")


@pytest.mark.parametrize(
    ("host", "status", "words"),
    [
        ("slow", Status.WARN, "use the IP address"),
        ("unknown", Status.FAIL, "use its IP address"),
        ("unknown.local", Status.FAIL, "mDNS names crashed"),
        ("nothing", Status.FAIL, "use its IP address"),
    ],
)
async def test_bad_names_say_what_to_do(fake: Any, host: str, status: Status, words: str) -> None:  # noqa: ANN401 - as above
    """A slow name is a warning, one without an address a failure."""
    (check,) = await checked(fake, host)
    assert check.status is status
    assert words in check.advice


async def test_a_resolvers_answer_is_data(fake: Any) -> None:  # noqa: ANN401 - as above
    """Control characters in a resolver's answer are removed."""
    (check,) = await checked(fake, "hostile")
    assert "\x1b" not in check.message


@pytest.mark.parametrize(
    ("host", "expected"),
    [("a.local", True), ("A.LOCAL.", True), ("local", False), ("a.local.example", False)],
)
def test_local_is_the_last_label(host: str, *, expected: bool) -> None:
    """Only names below .local are mDNS names."""
    assert is_mdns(host) is expected
    assert not is_address(host)


@pytest.mark.outside
async def test_the_system_resolver_knows_localhost(network: RealNetwork) -> None:
    """The real resolver finds a loopback address of localhost, and refuses a too long label."""
    assert {"127.0.0.1", "::1"} & set((await network.resolve("localhost")).addresses)
    with pytest.raises(OSError, match="label"):
        await network.resolve("x" * 80)
