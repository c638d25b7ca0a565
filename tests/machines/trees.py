"""Machines of one engine as trees of /proc and /sys, built from facts: those of `tests/data/machines`."""

from __future__ import annotations

import shutil
import struct
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sparktop.hardware.machine import Machine
from sparktop.model.node import NodeIdentity, NodeSample
from tests.hardware import gb10_root
from tests.hardware.conftest import stat_line
from tests.hardware.fake_driver import FakeDriver, gb10, process
from tests.hardware.gb10_root import FUNCTIONS, NETDEVS, RDMA_DEVICES, pci_folder, write

FACTS = Path(__file__).parents[1] / "data" / "machines" / "trees.toml"
PID, PIECE = 4242, "opt/venv/lib/python3.12/site-packages"
HEALTHY: Mapping[str, Any] = {
    "kernel": "6.14.0-1013-nvidia",
    "driver": "580.126.09",
    "bios": "5.36_0ACUM018",
    "vbios": "9A.0B.18.00.2D",
    "firmware": "28.45.4028",
    "kho": None,
    "cma_free_kib": 9_227_469,
    "mtu": 9000,
    "lanes": 4,
    "gid_index": 3,
    "nccl": "2.28.9",
    "build": "00112233",
    "variables": {"NCCL_IB_GID_INDEX": "3", "NCCL_IB_HCA": "rocep1s0f0,roceP2p1s0f0", "NCCL_DEBUG": "WARN"},
    "memlock": "unlimited",
    "rdma": True,
    "readable": True,
    "container": False,
    "subnets": ("10.0.1", "10.0.2"),
    "rank": 0,
}
SECRET = "hf_this_must_never_be_read"  # noqa: S105 - not a password: it is looked for in what is read


def elf(build: str) -> bytes:
    """Return the begin of a 64-bit library with a build ID, in hexadecimal digits."""
    note = struct.pack("<III", 4, len(build) // 2, 3) + b"GNU\0" + bytes.fromhex(build)
    head = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 3, 183, 1, 0, 64, 0, 0, 64, 56, 1, 0, 0, 0
    )
    return head + struct.pack("<IIQQQQQQ", 4, 4, 120, 0, 0, len(note), len(note), 4) + note


def build(root: Path, number: int, **facts: Any) -> Path:  # noqa: ANN401 - facts have as many types as files
    """Write machine `number` (1, 2, …) below `root`, with `facts` in place of healthy ones; return `root`."""
    known = {**HEALTHY, "rank": number - 1, **facts}
    gb10_root.build(root)
    write(root, "proc/sys/kernel/hostname", f"spark-{number}\n")
    write(root, "proc/sys/kernel/random/boot_id", f"0000000{number}-1f2e-4d3c-8b4a-9e6f5a4b3c2d\n")
    write(root, "proc/sys/kernel/osrelease", f"{known['kernel']}\n")
    write(root, "sys/devices/virtual/dmi/id/bios_version", f"{known['bios']}\n")
    kho = "" if known["kho"] is None else f" kho={known['kho']}"
    write(root, "proc/cmdline", f"BOOT_IMAGE=/vmlinuz root=UUID=12{number} ro quiet{kho}\n")
    write(root, "proc/meminfo", gb10_root.meminfo(CmaFree=known["cma_free_kib"]))
    write(root, "proc/sys/vm/nr_hugepages", "0\n")
    if known["rdma"]:
        _write_rails(root, number, known)
    else:
        shutil.rmtree(root / "sys/class/infiniband")
    _write_engine(root, known)
    return root


def _write_rails(root: Path, number: int, facts: Mapping[str, Any]) -> None:
    routes = ["Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT"]
    for place, (device, netdev, address) in enumerate(zip(RDMA_DEVICES, NETDEVS, FUNCTIONS, strict=True)):
        folder, port = pci_folder(address), f"sys/class/infiniband/{device}/ports/1"
        write(root, f"sys/class/infiniband/{device}/fw_ver", f"{facts['firmware']}\n")
        write(root, f"{folder}/current_link_width", f"{facts['lanes'] if place == 0 else 4}\n")
        write(root, f"{folder}/max_link_width", "4\n")
        write(root, f"sys/class/net/{netdev}/mtu", f"{facts['mtu']}\n")
        write(root, f"sys/class/net/{netdev}/carrier_changes", f"{2 + number}\n")
        if place not in {0, 2}:  # without a cable
            continue
        subnet = facts["subnets"][place // 2]
        raw = bytes([*map(int, subnet.split(".")), 0])
        routes.append(f"{netdev}\t{raw[::-1].hex().upper()}\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0")
        mapped = f"0000:0000:0000:0000:0000:ffff:{raw[:2].hex()}:{raw[2:3].hex()}{number:02x}"
        local = f"fe80:0000:0000:0000:3e6d:66ff:fe01:02{number:02x}"
        table = {0: (local, "IB/RoCE v1"), 1: (local, "RoCE v2"), 2: (mapped, "IB/RoCE v1")}
        table[facts["gid_index"]] = (mapped, "RoCE v2")
        for index in range(8):
            gid, kind = table.get(index, (":".join(["0000"] * 8), None))
            write(root, f"{port}/gids/{index}", f"{gid}\n")
            if kind is not None:
                write(root, f"{port}/gid_attrs/types/{index}", f"{kind}\n")
                write(root, f"{port}/gid_attrs/ndevs/{index}", f"{netdev}\n")
    write(root, "proc/net/route", "\n".join(routes) + "\n")


def _write_engine(root: Path, facts: Mapping[str, Any]) -> None:
    title = f"VLLM::Worker_TP{facts['rank']}"
    process = f"proc/{PID}"
    write(root, f"{process}/stat", stat_line(PID, title[:15]))
    write(root, f"{process}/cmdline", title + "\0")
    scope = f"/docker/{'ab' * 32}" if facts["container"] else "/user.slice"
    write(root, f"{process}/cgroup", f"0::{scope}\n")
    write(root, f"sys/fs/cgroup{scope}/memory.max", "max\n")
    write(root, f"{process}/limits", f"Max locked memory         {facts['memlock']:<20} unlimited  bytes\n")
    if not facts["readable"]:
        return
    library = f"/{PIECE}/nvidia/nccl/lib/libnccl.so.2"
    write(root, f"{process}/root{library}", elf(facts["build"]))
    write(root, f"{process}/root/{PIECE}/nvidia_nccl_cu13-{facts['nccl']}.dist-info/METADATA", "")
    write(root, f"{process}/maps", f"f0000-f1000 r-xp 00000000 00:30 77                 {library}\n" * 3)
    variables = {"HF_TOKEN": SECRET, "NCCL_API_KEY": SECRET, **facts["variables"]}
    write(root, f"{process}/environ", "\0".join(f"{name}={value}" for name, value in variables.items()))


def driver(rank: int, facts: Mapping[str, Any]) -> FakeDriver:
    """Return the NVIDIA driver of a machine: in a container it lists no processes."""
    known = {**HEALTHY, **facts}
    listed = [] if known["container"] else [process(PID, 102_625 * 1024**2)]
    answers = gb10(
        nvmlDeviceGetComputeRunningProcesses=listed,
        nvmlDeviceGetGraphicsRunningProcesses=[],
        nvmlDeviceGetVbiosVersion=known["vbios"],
    )
    made = FakeDriver(answers, driver=known["driver"])
    made.names = {PID: f"VLLM::Worker_TP{rank}"}
    return made


def read_machine(root: Path, number: int = 1, **facts: Any) -> tuple[NodeIdentity, NodeSample]:  # noqa: ANN401 - as build
    """Build a machine and read it with the real reader; return its identity and a sample."""
    build(root, number, **facts)
    machine = Machine(root, nvml=driver(number - 1, facts), clock=lambda: 100.0)
    sample = machine.read()
    assert machine.identity is not None
    return machine.identity, sample


def cases() -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
    """Return the facts of the stored cases: by case and machine."""
    return tomllib.loads(FACTS.read_text("utf-8"))


def read_case(folder: Path, name: str) -> dict[str, tuple[NodeIdentity, NodeSample]]:
    """Build and read all machines of a stored case below `folder`."""
    return {
        machine: read_machine(folder / machine, number, **facts)
        for number, (machine, facts) in enumerate(cases()[name].items(), 1)
    }
