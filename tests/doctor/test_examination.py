"""Everything that is watched is checked once, with one line for each check.

Checks of this machine: drivers, limits, libraries, terminal, recorder and hook.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktop.doctor.check import Check, Status, next_step, to_json, to_text
from sparktop.doctor.examination import check_node, examine_network
from sparktop.doctor.machine import (
    RESERVED_FILES,
    check_hook,
    check_machine,
    check_open_files,
    check_recorder,
    check_terminal,
)
from sparktop.doctor.network import Network
from sparktop.graphics.cells import cell_width
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import GpuReading, MemoryReading, NodeIdentity, NodeSample
from sparktop.model.targets import BackendTarget, NodeTarget, RouterTarget, Watch
from sparktop.sources.replies import encode, make_reply
from sparktop.watch.discovery import Found
from tests.doctor.conftest import FakeNetwork
from tests.sources.conftest import Serve, answer

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


async def test_all_that_is_watched_is_checked() -> None:
    """Names are checked first, then nodes, backends and routers in the configuration's order."""
    watch = Watch(
        nodes=(NodeTarget("here"), NodeTarget("n", "agent", "http://spark-a:9750")),
        backends=(BackendTarget("b", "http://spark-a:8000"), BackendTarget("c", "http://spark-b:8000")),
        routers=(RouterTarget("r", "http://10.0.0.9:4000"),),
    )
    network = FakeNetwork(names={"spark-a": (("10.0.0.1",), 0.0)}, closed=(8000, 9750, 4000))
    checks = await examine_network(watch, network, wanted=False)
    assert [(check.name, check.status.value) for check in checks] == [
        ("name spark-a", "ok"),
        ("name spark-b", "fail"),
        ("n agent port", "fail"),
        ("b port", "fail"),
        ("c port", "fail"),
        ("r port", "fail"),
    ]


async def test_what_is_found_is_checked_too() -> None:
    """Found servers are checked unless they are configured; hosts that do not resolve are not searched."""
    found = Found(
        backends=(BackendTarget("new", "http://10.0.0.1:1"), BackendTarget("again", "http://10.0.0.1:2")),
        routers=(RouterTarget("r", "http://10.0.0.1:3"),),
        agents=("10.0.0.1:9750",),
    )
    searched: list[str] = []

    async def search(hosts: Iterable[str]) -> Found:
        searched.extend(hosts)
        return found

    watch = Watch(backends=(BackendTarget("b", "http://10.0.0.1:2"),), discover=("10.0.0.1", "dead.local"))
    checks = await examine_network(watch, FakeNetwork(closed=(1, 2, 3)), wanted=True, search=search)
    assert searched == ["10.0.0.1"]
    assert [check.name for check in checks] == ["name dead.local", "search", "b port", "new port", "r port"]


ADVISED = Check("port", Status.FAIL, "nothing listens on 10.0.0.1:8000 (connection refused)", "start it")


@pytest.mark.parametrize(
    "name", ["模型" * 40, "a 模型 " * 15 + "b", "模" + "型b" * 39], ids=["wide", "words", "mixed"]
)
def test_lines_of_wide_characters_fit_the_terminal(name: str) -> None:
    """Each takes two cells; all of the text is there."""
    lines = to_text({"": [Check(name, Status.OK, "all is well")]}, width=60).splitlines()[1:-2]
    assert max(map(cell_width, lines)) <= 60
    assert name.replace(" ", "") in "".join("".join(lines).split())


def test_on_a_terminal_lines_are_wrapped_and_statuses_coloured() -> None:
    """Lines are wrapped to the terminal with an indent, and each colour is reset after its status."""
    text = to_text({"servers": [ADVISED]}, width=60, color=True)
    assert "\x1b[1;31mFAIL\x1b[0m  port: nothing listens" in text
    plain = re.sub(r"\x1b\[[\d;]*m", "", text).splitlines()
    assert max(map(len, plain)) <= 60
    assert plain[2].startswith("      ")
    assert " ".join(" ".join(plain[1:3]).split()).endswith("— start it")


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
    then = next_step(checks, targets=targets, has_file=known[0], results=known[1])
    assert then == line
    assert to_text({"": checks}, then).splitlines()[-1] == f"next: {line}"


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


async def test_an_agent_is_read(serve: Serve, network: Network) -> None:
    """An agent is read, with its port and operating system; one whose driver is not loaded fails."""
    identity = NodeIdentity("Ubuntu 24.04", "580.95", "NVIDIA DGX Spark")
    sample = NodeSample(at=4.0, gpu_note="the NVIDIA driver is not loaded")
    body = encode(make_reply(identity, (sample,), 5.0))
    server = await serve({"/v1/sample": answer(body, "200 OK", "Content-Type: application/json")})
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
    product: str, status: Status, network: Network
) -> None:
    """Here and elsewhere, a machine without an NVIDIA driver is skipped, unless it is a Spark."""
    note, identity = "no NVIDIA driver on this machine", NodeIdentity("Ubuntu 24.04", None, product)
    sample = NodeSample(at=1.0, gpu_note=note)
    source = OneReading(sample, identity)
    _, gpu = await check_node(NodeTarget("n", "ssh", ssh="u@h"), network, source=lambda _: source)
    assert (gpu.name, gpu.status, gpu.message) == ("n GPU", status, "no NVIDIA driver")
    here = {check.name: check for check in check_machine(sample, identity)}
    assert (here["driver"].status, here["driver"].message) == (status, note)
    assert (here["memory"].status is Status.WARN) is (status is Status.FAIL)


async def test_what_ssh_says_is_told(network: Network) -> None:
    """A failure over ssh is one line without the time of the next attempt; the source is closed."""
    message = "u@h has no sparktop: install it there · reconnecting in 1 s"
    source = OneReading(Failure(FailureKind.COMMAND_NOT_FOUND, message, 1.0))
    (node,) = await check_node(NodeTarget("n", "ssh", ssh="u@h"), network, source=lambda _: source)
    assert (node.status, node.message) == (Status.FAIL, "u@h has no sparktop: install it there")
    assert source.closed == 1


async def test_a_token_in_clear_text_is_warned_of() -> None:
    """A token over http to another machine is a warning; over https, or to this machine, it is not."""
    source = OneReading(NodeSample(at=1.0, gpus=(GpuReading(0),)))

    async def names(url: str, token: str | None) -> list[str]:
        target = NodeTarget("n", "agent", url, token=token)
        checks = await check_node(target, FakeNetwork(), source=lambda _: source)
        return [check.name for check in checks if check.status is Status.WARN]

    assert await names("http://192.0.2.1:9750", "secret") == ["n token"]
    assert await names("https://192.0.2.1:9750", "secret") == []
    assert await names("http://127.0.0.1:9750", "secret") == []
    assert await names("http://192.0.2.1:9750", None) == []


GIB = 1024**3
SPARK = NodeIdentity(driver="580.95", product="NVIDIA DGX Spark")
GB10 = GpuReading(
    index=0,
    name="NVIDIA GB10",
    utilization_percent=5.0,
    temperature_c=40.0,
    power_w=12.0,
    sm_clock_mhz=2400,
    throttle_reasons=(),
    processes=(),
)
UNIFIED = MemoryReading(unified=True, total_bytes=122 * GIB, headroom_bytes=90 * GIB)


def test_a_spark_with_all_of_it_passes() -> None:
    """GPU, driver and shared memory are recognised; values that the driver does not report are listed."""
    gpu, memory = check_machine(NodeSample(1.0, memory=UNIFIED, gpus=(GB10,)), SPARK)
    assert (gpu.status, memory.status) == (Status.OK, Status.OK)
    assert gpu.message == "NVIDIA GB10, driver 580.95; not reported: power limit, memory"
    assert memory.message == "122.0 GiB shared with the GPU (unified), 90.0 GiB left"


@given(st.integers(0, 1 << 20), st.one_of(st.none(), st.integers(0, 1 << 20)), st.integers(0, 4096))
def test_open_files_say_what_a_sweep_reaches(soft: int, hard: int | None, wanted: int) -> None:
    """The stated concurrency fits into the limit, and is fine exactly if it reaches the requested one."""
    check = check_open_files(soft, hard, wanted)
    reach = int(re.findall(r"\d+", check.message)[1])
    assert 0 <= reach <= max(0, soft - RESERVED_FILES)
    assert (check.status is Status.OK) is (reach >= max(wanted, 256))
    assert bool(check.advice) is (check.status is Status.WARN)


@pytest.mark.outside
def test_what_records_nothing_is_said_with_its_remedy(tmp_path: Path) -> None:
    """A recorder that is off, or whose folder is a file, is reported with its remedy."""
    (check,) = check_recorder(Watch(flight=False), {})
    assert check.status is Status.SKIP
    (tmp_path / "sparktop").write_text("")
    (check,) = check_recorder(Watch(), {"XDG_STATE_HOME": str(tmp_path)})
    assert (check.status, "Not a directory" in check.message) == (Status.WARN, True)
    assert "XDG_STATE_HOME" in check.advice


def test_what_cannot_be_run_is_said_with_its_remedy(tmp_path: Path) -> None:
    """A program that cannot be run is reported with the remedy for each reason."""
    path = tmp_path / "on-event"
    missing = check_hook([str(path)], {})
    assert (missing.status, missing.message) == (Status.FAIL, f"{path} does not exist")
    path.write_text("", encoding="utf-8")
    path.chmod(0o644)
    plain = check_hook([str(path)], {})
    assert (plain.status, plain.advice) == (Status.FAIL, f"chmod +x {path}")
    assert check_hook([f"{tmp_path}/"], {}).status is Status.FAIL
    assert check_hook(["on-event"], {"PATH": "/nonexistent"}).status is Status.FAIL


GOOD_TERMINAL = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8"}


@pytest.mark.parametrize(
    ("env", "size", "encoding", "name", "status"),
    [
        ({"TERM": "dumb"}, (120, 36), "utf-8", "terminal", Status.FAIL),
        ({"COLORTERM": ""}, (120, 36), "utf-8", "colours", Status.WARN),
        ({"COLORTERM": "", "NO_COLOR": "1"}, (120, 36), "utf-8", "colours", Status.OK),
        ({}, (59, 36), "utf-8", "size", Status.FAIL),
        ({}, (60, 15), "utf-8", "size", Status.FAIL),
        ({}, (0, 0), "utf-8", "size", Status.SKIP),
        ({"LC_ALL": "C"}, (120, 36), "ANSI_X3.4-1968", "encoding", Status.WARN),
        ({}, None, "utf-8", "terminal", Status.SKIP),
    ],
)
def test_each_lack_has_its_line(
    env: dict[str, str], size: tuple[int, int] | None, encoding: str, name: str, status: Status
) -> None:
    """Each property has its own line, with advice exactly for warnings and failures."""
    (check,) = (one for one in check_terminal({**GOOD_TERMINAL, **env}, size, encoding) if one.name == name)
    assert check.status is status
    assert bool(check.advice) is (status in {Status.WARN, Status.FAIL})
