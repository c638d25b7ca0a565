"""Everything that is watched is checked once, with one line for each check."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.doctor.check import Check, Status, failed, next_step, to_json, to_text
from sparktop.doctor.examination import check_node, examine_network
from sparktop.doctor.machine import check_machine
from sparktop.doctor.network import RealNetwork, Resolved
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import GpuReading, NodeIdentity, NodeSample
from sparktop.model.targets import BackendTarget, NodeTarget, RouterTarget, Watch
from sparktop.sources.replies import encode, make_reply
from sparktop.watch.discovery import Found

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


class Search:
    """A search with a given result."""

    def __init__(self, found: Found) -> None:
        self.found = found
        self.hosts: list[str] = []

    async def __call__(self, hosts: Iterable[str]) -> Found:
        """Record the hosts; return the result."""
        self.hosts += hosts
        return self.found


async def test_all_that_is_watched_is_checked(fake: Any) -> None:  # noqa: ANN401 - the class of the fixture
    """Names are checked first, then nodes, backends and routers in the configuration's order."""
    watch = Watch(
        nodes=(NodeTarget("here"), NodeTarget("n", "agent", "http://spark-a:9750")),
        backends=(BackendTarget("b", "http://spark-a:8000"), BackendTarget("c", "http://spark-b:8000")),
        routers=(RouterTarget("r", "http://10.0.0.9:4000"),),
    )
    network = fake(names={"spark-a": Resolved(("10.0.0.1",), 0.0)}, closed=(8000, 9750, 4000))
    checks = await examine_network(watch, network, wanted=False)
    assert [(check.name, check.status.value) for check in checks] == [
        ("name spark-a", "ok"),
        ("name spark-b", "fail"),
        ("n agent port", "fail"),
        ("b port", "fail"),
        ("c port", "fail"),
        ("r port", "fail"),
    ]


async def test_what_is_found_is_checked_too(fake: Any) -> None:  # noqa: ANN401 - as above
    """Found servers are checked unless they are configured; hosts that do not resolve are not searched."""
    found = Found(
        backends=(BackendTarget("new", "http://10.0.0.1:1"), BackendTarget("again", "http://10.0.0.1:2")),
        routers=(RouterTarget("r", "http://10.0.0.1:3"),),
        agents=("10.0.0.1:9750",),
    )
    search = Search(found)
    watch = Watch(backends=(BackendTarget("b", "http://10.0.0.1:2"),), discover=("10.0.0.1", "dead.local"))
    checks = await examine_network(watch, fake(closed=(1, 2, 3)), wanted=True, search=search)
    assert search.hosts == ["10.0.0.1"]
    assert [check.name for check in checks] == ["name dead.local", "search", "b port", "new port", "r port"]


def test_a_check_is_one_line() -> None:
    """A line has status, name, result and advice; FAIL is in capitals."""
    checks = [
        Check("port", Status.OK, "open"),
        Check("clock", Status.WARN, "5 s ahead", "set it"),
        Check("a\nb", Status.FAIL, "no\x1b[31m", "do\r\nthis"),
    ]
    assert to_text({"servers": checks}).splitlines()[1:4] == [
        "ok    port: open",
        "warn  clock: 5 s ahead — set it",
        "FAIL  a b: no [31m — do this",
    ]
    assert failed(checks)
    assert not failed(checks[:2])


ADVISED = Check("port", Status.FAIL, "nothing listens on 10.0.0.1:8000 (connection refused)", "start it")


def test_on_a_terminal_lines_are_wrapped_and_statuses_coloured() -> None:
    """Lines are wrapped to the terminal with an indent, and each colour is reset after its status."""
    text = to_text({"servers": [ADVISED]}, width=60, color=True)
    assert "\x1b[1;31mFAIL\x1b[0m  port: nothing listens" in text
    plain = re.sub(r"\x1b\[[\d;]*m", "", text).splitlines()
    assert max(map(len, plain)) <= 60
    assert plain[2].startswith("      ")
    assert " ".join(" ".join(plain[1:3]).split()).endswith("— start it")


@settings(max_examples=60)
@given(st.text(max_size=500), st.text(max_size=500), st.text(max_size=500))
def test_any_text_stays_on_its_line(name: str, message: str, advice: str) -> None:
    """A check with any text is one printable line, and JSON has the same text."""
    check = Check(name, Status.WARN, message, advice)
    text = to_text({"": [check]}).splitlines()[1]
    assert text.isprintable()
    (plain,) = json.loads(json.dumps(to_json([check], NOW)))["checks"]
    assert text.startswith(f"warn  {plain['name']}: {plain['message']}")


GOOD, BAD = Check("port", Status.OK, "open"), Check("port", Status.FAIL, "closed", "start it")


@pytest.mark.parametrize(
    ("checks", "targets", "known", "line"),
    [
        (
            [GOOD, BAD],
            ["a"],
            (True, True),
            "correct what says FAIL, from the top, then run sparktop doctor a again",
        ),
        (
            [GOOD],
            ["a:8000", "b\x1b[2J"],
            (False, True),
            "sparktop a:8000 'b [2J' shows them; with --write-config it writes a configuration file of them",
        ),
    ],
)
def test_the_next_step_follows_from_what_was_found(
    checks: list[Check], targets: list[str], known: tuple[bool, bool], line: str
) -> None:
    """The last line names a suitable next command that can be run as printed."""
    then = next_step(checks, targets=targets, has_file=known[0], found=known[1])
    assert then == line
    assert to_text({"": checks}, then).splitlines()[-1] == f"next: {line}"


Serve = Callable[[Mapping[str, bytes] | bytes], Awaitable[Any]]


class OneReading:
    """A source with one fixed reading, which counts its calls."""

    def __init__(self, reading: NodeSample | Failure, identity: NodeIdentity | None = None) -> None:
        self.name = "n"
        self.identity = identity
        self.closed = 0
        self._reading = reading

    async def poll(self, deadline_s: float) -> NodeSample | Failure:
        """Return the reading; check that the deadline leaves time to connect."""
        assert deadline_s > 1
        return self._reading

    async def close(self) -> None:
        """Count the call."""
        self.closed += 1


def answer(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
        len(body),
        body,
    )


async def test_an_agent_is_read(serve: Serve, network: RealNetwork) -> None:
    """An agent is read, with its port and operating system; one whose driver is not loaded fails."""
    identity = NodeIdentity("Ubuntu 24.04", "580.95", "NVIDIA DGX Spark")
    sample = NodeSample(at=4.0, gpu_note="the NVIDIA driver is not loaded")
    server = await serve({"/v1/sample": answer(encode(make_reply(identity, (sample,), 5.0)))})
    port, node, gpu = await check_node(NodeTarget("n", "agent", server.url), network)
    assert (port.name, port.status) == ("n agent port", Status.OK)
    assert (node.status, node.message) == (
        Status.OK,
        "read through agent: NVIDIA DGX Spark, Ubuntu 24.04, driver 580.95",
    )
    assert (gpu.status, gpu.message) == (Status.FAIL, "the NVIDIA driver is not loaded")


@pytest.mark.parametrize(
    ("product", "status"), [("Notebook", Status.SKIP), ("NVIDIA DGX Spark", Status.FAIL)]
)
async def test_a_machine_without_a_driver_is_judged_as_this_one(
    product: str, status: Status, network: RealNetwork
) -> None:
    """Here and elsewhere, a machine without an NVIDIA driver is skipped, unless it is a Spark."""
    note, identity = "no NVIDIA driver on this machine", NodeIdentity("Ubuntu 24.04", None, product)
    sample = NodeSample(at=1.0, gpu_note=note)
    source = OneReading(sample, identity)
    _, gpu = await check_node(NodeTarget("n", "ssh", ssh="u@h"), network, source=lambda _: source)
    assert (gpu.name, gpu.status, gpu.message) == ("n GPU", status, "no NVIDIA driver")
    here = next(check for check in check_machine(sample, identity) if check.name == "driver")
    assert (here.status, here.message) == (status, note)


async def test_what_ssh_says_is_told(network: RealNetwork) -> None:
    """A failure over ssh is one line without the time of the next attempt; the source is closed."""
    message = "u@h has no sparktop: install it there · reconnecting in 1 s"
    source = OneReading(Failure(FailureKind.COMMAND_NOT_FOUND, message, 1.0))
    (node,) = await check_node(NodeTarget("n", "ssh", ssh="u@h"), network, source=lambda _: source)
    assert (node.status, node.message) == (Status.FAIL, "u@h has no sparktop: install it there")
    assert source.closed == 1


async def test_a_token_in_clear_text_is_warned_of() -> None:
    """A token over http to another machine is a warning; over https, or to this machine, it is not."""
    source = OneReading(NodeSample(at=1.0, gpus=(GpuReading(0),)))

    class Open:
        """A network in which every port is open."""

        async def connect(self, place: object) -> None:
            """Accept any port."""

    async def names(url: str, token: str | None) -> list[str]:
        target = NodeTarget("n", "agent", url, token=token)
        checks = await check_node(target, Open(), source=lambda _: source)  # type: ignore[arg-type]  # connect only
        return [check.name for check in checks if check.status is Status.WARN]

    assert await names("http://192.0.2.1:9750", "secret") == ["n token"]
    assert await names("https://192.0.2.1:9750", "secret") == []
    assert await names("http://127.0.0.1:9750", "secret") == []
    assert await names("http://192.0.2.1:9750", None) == []
