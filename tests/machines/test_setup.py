"""The set-up of a machine as its reader sees it, in captured trees and in hostile ones."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sparktop.hardware.setup import SetupReader, image_of, read_engine, read_variables
from sparktop.model.instant import Instant
from sparktop.model.node import UNLIMITED, EngineSetup, MachineSetup, NodeIdentity
from sparktop.recording.frames import Record, RecordKind
from sparktop.recording.records import call_of
from sparktop.sources.agent import NodeReplies
from sparktop.sources.decode import decode
from sparktop.sources.replies import Reply, encode, json_line, make_reply
from sparktop.store import SourceKey
from sparktop.store.store import Call, Change
from tests.hardware.gb10_root import write
from tests.known import known
from tests.machines.trees import PID, PIECE, SECRET, build, cases, read_case, read_machine


def setup_of(folder: Path, case: str, machine: str = "spark-1") -> MachineSetup:
    return known(read_case(folder, case)[machine][0].setup)


def test_a_healthy_machine_is_read_whole(tmp_path: Path) -> None:
    """BIOS, firmware, kernel option, rails with tables and subnets, and the engine's process are read."""
    setup = setup_of(tmp_path, "healthy-pair")
    assert (setup.bios, setup.gpu_firmware, setup.kho, setup.huge_pages) == (
        "5.36_0ACUM018",
        "9A.0B.18.00.2D",
        "",
        0,
    )
    first = next(rail for rail in known(setup.rails) if rail.name == "rocep1s0f0")
    assert (first.netdev, first.link_layer, first.firmware, first.mtu) == (
        "enp1s0f0np0",
        "Ethernet",
        "28.45.4028",
        9000,
    )
    assert (first.lanes, first.lanes_max, first.lane_gt_per_s, first.carrier_changes) == (4, 4, 32.0, 3)
    assert first.subnets == ("10.0.1.0/24",)
    assert known(first.gids)["3"] == "RoCE v2 over IPv4"
    assert [rail.subnets for rail in known(setup.rails) if rail.name == "rocep1s0f1"] == [()]
    (engine,) = setup.engines
    assert engine == EngineSetup(
        PID,
        f"/{PIECE}/nvidia/nccl/lib/libnccl.so.2",
        "2.28.9",
        "build 00112233",
        {"NCCL_DEBUG": "WARN", "NCCL_IB_GID_INDEX": "3", "NCCL_IB_HCA": "rocep1s0f0,roceP2p1s0f0"},
        UNLIMITED,
        UNLIMITED,
    )


@pytest.mark.parametrize("case", list(cases()))
def test_every_stored_case_is_read_and_travels(tmp_path: Path, case: str) -> None:
    """The set-up of each stored machine arrives at a viewer as it was read; a secret is nowhere in it."""
    for identity, sample in read_case(tmp_path, case).values():
        line = encode(make_reply(identity, (sample,), 100.0, wall_s=1.0))
        reply = decode(line)
        assert reply.identity == identity
        assert SECRET.encode() not in line
        assert identity.setup is not None


def test_what_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    """Another user's process, a kernel without RDMA and an empty tree give None, and no exception."""
    (engine,) = setup_of(tmp_path / "a", "no-permission").engines
    assert engine == EngineSetup(PID, memlock_bytes=UNLIMITED, memory_max_bytes=UNLIMITED)
    assert setup_of(tmp_path / "b", "no-rdma").rails is None
    assert SetupReader(tmp_path / "nothing").read(0.0, [1, 2]) == MachineSetup()


def test_a_process_in_a_container_is_read_through_its_own_root(tmp_path: Path) -> None:
    """The driver lists no process, so the title finds it; the library's file is that of the container."""
    (engine,) = setup_of(tmp_path, "container").engines
    assert (engine.nccl_version, engine.nccl_mark) == ("2.28.9", "build 00112233")


@pytest.mark.parametrize(
    ("rights", "users", "limit"),
    [
        ("000001ffffffffff", "0 0 4294967295", UNLIMITED),
        ("000001ffffffffff", "0 100000 65536", 65536),
        ("00000000a80425fb", "0 0 4294967295", 65536),
        ("\x1b[2J", "0 0 4294967295", 65536),
    ],
)
def test_a_privileged_process_has_no_limit_of_locked_memory(
    tmp_path: Path, rights: str, users: str, limit: int
) -> None:
    """The kernel ignores it for CAP_IPC_LOCK, but not for that of a user namespace; Docker's own lacks it."""
    build(tmp_path, 1, memlock="65536")
    write(tmp_path, f"proc/{PID}/status", f"Name:\tpython\nCapPrm:\t0\nCapEff:\t{rights}\n")
    write(tmp_path, f"proc/{PID}/uid_map", f"         {users}\n")
    assert read_engine(tmp_path / "proc" / str(PID), tmp_path).memlock_bytes == limit


def test_a_recording_keeps_it(tmp_path: Path) -> None:
    """An identity is read from a recording as it was; one of an earlier version has no set-up."""
    identity, _ = read_machine(tmp_path)
    key, when = SourceKey.node("spark-1"), Instant(1.0, datetime(2026, 9, 1, tzinfo=UTC))
    record = Record(RecordKind.IDENTITY, when, key.label, body=json_line(identity))
    assert call_of(record) == Call(Change.IDENTIFY, (key, identity))
    old = Record(RecordKind.IDENTITY, when, key.label, body=b'{"os":"Linux 6.14"}')
    assert call_of(old) == Call(Change.IDENTIFY, (key, NodeIdentity(os="Linux 6.14")))


def test_an_old_identity_has_no_setup(tmp_path: Path) -> None:
    """A reply of an older agent decodes, without a set-up and without a clock."""
    identity, sample = read_machine(tmp_path)
    line = encode(make_reply(replace(identity, setup=None), (sample,), 100.0))
    reply = decode(line.replace(b'"setup":null', b'"unknown":1').replace(b'"wall_s":null,', b""))
    assert reply.identity.setup is None
    assert reply.wall_s is None
    assert NodeIdentity().setup is None


async def test_the_gap_of_clocks_is_known_to_half_of_the_way(tmp_path: Path) -> None:
    """The answer's wall clock is compared with the middle of the request; a clock set back gives no gap."""
    _, sample = read_machine(tmp_path)
    times = iter((1000.0, 1000.4, 1001.0, 1000.0))
    replies = NodeReplies(wall=lambda: next(times))
    moments = iter((sample.at, sample.at + 1))

    async def ask() -> tuple[Reply, float]:
        at = next(moments)
        return make_reply(NodeIdentity(), (replace(sample, at=at),), at, wall_s=1002.2), at

    first = await replies.poll(ask, 1e9, asyncio.sleep, (False, None))
    assert known(first.clock).ahead_s == pytest.approx(2.0)
    assert known(first.clock).error_s == pytest.approx(0.2)
    assert (await replies.poll(ask, 1e9, asyncio.sleep, (True, None))).clock is None


def test_maps_of_a_million_lines_and_a_pipe_for_a_library_end(tmp_path: Path) -> None:
    """A huge map is read up to a limit, and a pipe that stands where the library was does not block."""
    build(tmp_path, 1)
    line = "7f0000000000-7f0000001000 rw-p 00000000 00:00 0 \n"
    write(tmp_path, f"proc/{PID}/maps", line * 1_000_000)
    engine = read_engine(tmp_path / "proc" / str(PID), tmp_path)
    assert engine.nccl is None
    library = f"/{PIECE}/nvidia/nccl/lib/libnccl.so.2"
    write(tmp_path, f"proc/{PID}/maps", f"f0-f1 r-xp 00000000 00:30 77   {library}\n")
    place = tmp_path / f"proc/{PID}/root{library}"
    place.unlink()
    os.mkfifo(place)
    engine = read_engine(tmp_path / "proc" / str(PID), tmp_path)
    assert (engine.nccl, engine.nccl_mark) == (library, None)


@given(content=st.binary(max_size=4000))
def test_no_environment_gives_another_name(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    """Whatever an environment holds, only listed names are returned, with values of a bounded length."""
    path = tmp_path_factory.mktemp("environ") / "environ"
    path.write_bytes(
        b"NCCL_ALGO=" + content + b"\0NCCL_TOKEN=" + SECRET.encode() + b"\0NCCL_NET=" + b"x" * 9000
    )
    found = known(read_variables(str(path)))
    assert SECRET not in str(found)
    assert all(name.startswith("NCCL_") and len(value) <= 200 for name, value in found.items())


@given(content=st.binary(max_size=600), name=st.sampled_from(("gid", "route", "library", "cgroup", "limits")))
def test_damaged_files_are_no_exception(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, name: str
) -> None:
    """A file of any bytes in place of a table, a library or a limit gives a set-up that can be sent."""
    root = build(tmp_path_factory.mktemp("damaged"), 1)
    library = f"proc/{PID}/root/{PIECE}/nvidia/nccl/lib/libnccl.so.2"
    path = {
        "gid": "sys/class/infiniband/rocep1s0f0/ports/1/gids/3",
        "route": "proc/net/route",
        "library": library,
        "cgroup": f"proc/{PID}/cgroup",
        "limits": f"proc/{PID}/limits",
    }[name]
    if name == "library":
        content = (root / library).read_bytes()[:70] + content
    write(root, path, b"Iface\n" + content if name == "route" else content)
    setup = SetupReader(root).read(0.0, [PID])
    reply = decode(encode(make_reply(NodeIdentity(setup=setup), (), 1.0)))
    assert reply.identity.setup == setup


_ROOT = b"900 800 0:60 / / rw,relatime - overlay overlay rw,lowerdir=%s,upperdir=/u,workdir=/w\n"


def _layers(*names: str, folder: str = "/var/lib/docker/overlay2/l") -> bytes:
    return (
        b"22 900 0:21 / /proc rw - proc proc rw\n"
        + _ROOT % ":".join(f"{folder}/{one}" for one in names).encode()
    )


def test_an_image_is_known_by_its_layers() -> None:
    """Another container of the same image has the same digest, although its first layer is its own."""
    first = known(image_of(_layers("INIT1", "A", "B")))
    assert first == image_of(_layers("INIT2", "A", "B")) != image_of(_layers("INIT2", "C", "B"))
    podman = "/home/u/.local/share/containers/storage/overlay/l"
    assert image_of(_layers("A", "B", folder=podman)) != image_of(_layers("C", "B", folder=podman))


@pytest.mark.parametrize(
    "mounts",
    [
        b"",
        b"\xff\x00 /\n" * 1000,
        b"27 1 8:2 / / rw - ext4 /dev/sda rw\n",
        b"1 2 3 / / rw - overlay o lowerdir=\n",
    ],
)
def test_what_is_no_container_has_no_image(mounts: bytes) -> None:
    """A root that is no overlay, and what is no list of mounts."""
    assert image_of(mounts) is None
