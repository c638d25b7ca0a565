"""The set-up of a machine: BIOS, kernel options, RDMA rails, and what engine processes have loaded."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterable
from contextlib import suppress
from ipaddress import IPv4Network, IPv6Address
from pathlib import Path
from zlib import crc32

from sparktop.hardware.kernel_file import (
    entries,
    lane_speed_gt,
    open_regular,
    parse_int,
    read_bytes,
    read_int,
    read_small,
)
from sparktop.hardware.network import find_ports, place_of_port
from sparktop.hardware.processes import parse_stat, read_of_cgroup
from sparktop.hardware.ras import library_path, seen_from_here, version_by_names, version_in_name
from sparktop.model.node import UNLIMITED, EngineSetup, MachineSetup, Rail
from sparktop.model.text import clean

_READ_AGAIN_S = 60.0
"""Seconds between two readings."""
_MOST_RAILS = 16
_MOST_GIDS = 64
"""Indexes of a GID table that are read; cards have up to 256, of which the first few are used."""
_MOST_SUBNETS = 8
"""Networks of an interface."""
_MOST_ENGINES = 16
"""Processes of engines that are read."""
_ENVIRON_BYTES = 1 << 18
"""An environment beyond this is not searched."""
_ROUTES_BYTES = 1 << 18
"""Bytes of /proc/net/route that are read: thousands of routes."""
_IPC_LOCK = 1 << 14
"""CAP_IPC_LOCK of include/uapi/linux/capability.h."""
_ALL_USERS = [b"0", b"0", b"4294967295"]
"""The content of /proc/PID/uid_map in the machine's own user namespace."""
_LONGEST_VALUE, _LONGEST_WORD = 200, 64
"""Most characters of a path or of a variable's value, and of a file's only word."""
# " - overlay overlay rw,lowerdir=/var/lib/…": the image's layers in a line of mountinfo.
_LAYERS = re.compile(rb" - overlay \S+ (?:\S*,)?lowerdir=([^,\s]+)")
_ROCE2 = "RoCE v2"
_PODMAN = b"/storage/overlay/"
"""Part of the paths of Podman's layers."""
_NAMES = """
    ALGO BUFFSIZE CROSS_NIC CUMEM_ENABLE DEBUG IB_ADAPTIVE_ROUTING IB_ADDR_FAMILY IB_ADDR_RANGE IB_DISABLE
    IB_GID_INDEX IB_HCA IB_MERGE_NICS IB_PCI_RELAXED_ORDERING IB_QPS_PER_CONNECTION IB_RETRY_CNT
    IB_ROCE_VERSION_NUM IB_SL IB_SPLIT_DATA_ON_QPS IB_TC IB_TIMEOUT IGNORE_CPU_AFFINITY MAX_NCHANNELS
    MIN_NCHANNELS NET NET_GDR_LEVEL NET_PLUGIN NVLS_ENABLE P2P_DISABLE PROTO SHM_DISABLE SOCKET_FAMILY
    SOCKET_IFNAME SOCKET_NTHREADS TUNER_PLUGIN
"""
VARIABLES = frozenset(f"NCCL_{name}" for name in _NAMES.split())
"""The variables that are read of an environment; no other name or value is kept."""


class SetupReader:
    """Reads the set-up once a minute, but of a process only until the library that it has loaded is known."""

    def __init__(self, root: Path = Path("/")) -> None:
        """Read /proc and /sys below `root`."""
        self._root = root
        self._read_at: float | None = None
        self._setup: MachineSetup | None = None
        self._engines: dict[tuple[int, int], EngineSetup] = {}
        """By (pid, start)."""

    def read(self, now: float, pids: Iterable[int] = (), *, gpu_firmware: str | None = None) -> MachineSetup:
        """Return the set-up at `now` (seconds); `pids` are the processes of engines on GPUs."""
        if self._setup is not None and self._read_at is not None and 0 <= now - self._read_at < _READ_AGAIN_S:
            return self._setup
        self._read_at = now
        self._setup = MachineSetup(
            _word(f"{self._root}/sys/devices/virtual/dmi/id/bios_version"),
            gpu_firmware or (self._setup.gpu_firmware if self._setup is not None else None),
            self._kho(),
            read_int(f"{self._root}/proc/sys/vm/nr_hugepages"),
            self._rails(),
            self._read_engines(sorted(set(pids))[:_MOST_ENGINES]),
        )
        return self._setup

    def _kho(self) -> str | None:
        """Return the value of `kho=` on the kernel's command line, "" without it; None: unreadable."""
        line = read_bytes(f"{self._root}/proc/cmdline")
        if not line:
            return None
        values = [word[4:] for word in line.split() if word.startswith(b"kho=")]
        return clean(values[-1].decode("utf-8", "replace"), 16) if values else ""

    def _rails(self) -> tuple[Rail, ...] | None:
        folder = self._root / "sys/class/infiniband"
        subnets = _subnets((read_bytes(f"{self._root}/proc/net/route") or b"")[:_ROUTES_BYTES])
        rails = (self._rail(*port, subnets) for port in find_ports(folder)[:_MOST_RAILS])
        return tuple(rails) if folder.is_dir() else None

    def _rail(self, name: str, device: str, number: str, subnets: dict[str, list[str]]) -> Rail:
        port = f"{device}/ports/{number}"
        _, netdev = place_of_port(device, number)
        # A name from the card's table must not lead out of the folder of interfaces.
        interface = None if not netdev or "/" in netdev else f"{self._root}/sys/class/net/{netdev}"
        return Rail(
            clean(name, 64),
            netdev,
            _word(f"{port}/link_layer"),
            _word(f"{device}/fw_ver"),
            None if interface is None else read_int(f"{interface}/mtu"),
            None if interface is None else read_int(f"{interface}/carrier_changes"),
            read_int(f"{device}/device/current_link_width"),
            read_int(f"{device}/device/max_link_width"),
            lane_speed_gt(f"{device}/device"),
            tuple(subnets.get(netdev or "", ())[:_MOST_SUBNETS]),
            _gids(port),
        )

    def _read_engines(self, pids: list[int]) -> tuple[EngineSetup, ...]:
        """Return what processes have loaded; one that has loaded the library is not read again."""
        before, self._engines = self._engines, {}
        for pid in pids:
            process = parse_stat(pid, read_small(f"{self._root}/proc/{pid}/stat") or b"")
            if process is None:
                continue
            setup = before.get((pid, process.start))
            if setup is None or setup.nccl is None:
                setup = read_engine(self._root / "proc" / str(pid), self._root)
            self._engines[pid, process.start] = setup
        return tuple(self._engines.values())


def read_engine(process: Path, root: Path = Path("/")) -> EngineSetup:
    """Read library, variables and limits of the process with the folder `process` in /proc."""
    path, is_replaced = library_path(read_bytes(f"{process}/maps") or b"") or (None, False)
    version = mark = None
    if path is not None:
        file = seen_from_here(process, path)
        numbers = version_in_name(path) if is_replaced else version_by_names(file)
        version = None if numbers is None else ".".join(map(str, numbers))
        if not is_replaced:
            # A pipe or device that stands at the path is not opened for reading.
            with suppress(OSError), open_regular(file) as opened:
                mark = _mark_of(opened.fileno())
    memory_max = read_of_cgroup(root, int(process.name), "memory.max")
    if _may_lock_all(read_small(f"{process}/status") or b"", read_small(f"{process}/uid_map") or b""):
        lockable_bytes: int | None = UNLIMITED
    else:
        lockable_bytes = _memlock_limit(read_small(f"{process}/limits") or b"")
    return EngineSetup(
        int(process.name),
        None if path is None else clean(path, _LONGEST_VALUE),
        version,
        mark,
        read_variables(f"{process}/environ"),
        lockable_bytes,
        None if memory_max is None else _parse_limit(memory_max.strip()),
        image_of(read_bytes(f"{process}/mountinfo") or b""),
    )


def image_of(mounts: bytes) -> str | None:
    """Return a digest of the layers of a container's image by /proc/PID/mountinfo; None outside containers.

    A user who may not ask the container engine can read these. Docker puts a layer of the container's own
    before those of its image; whether containerd does depends on who uses it. So the first layer is left out,
    but for Podman, which has all layers of the image there.
    """
    roots = [line for line in mounts.splitlines() if line.split()[4:5] == [b"/"]]
    match = _LAYERS.search(roots[-1]) if roots else None
    if match is None:
        return None
    layers = match[1].split(b":")
    return f"{crc32(b':'.join(layers if _PODMAN in layers[0] else layers[1:])):08x}"


def read_variables(path: str) -> dict[str, str] | None:
    """Return the variables in `VARIABLES` of an environment, cleaned; None where it cannot be read."""
    content = read_bytes(path)
    if content is None:
        return None
    variables: dict[str, str] = {}
    for line in content[:_ENVIRON_BYTES].split(b"\0"):
        name, equals, value = line[: _LONGEST_VALUE * 8].partition(b"=")
        if equals and name.startswith(b"NCCL_"):
            word = name.decode("ascii", "replace")
            if word in VARIABLES:
                variables.setdefault(word, clean(value.decode("utf-8", "replace"), _LONGEST_VALUE))
    return dict(sorted(variables.items()))


def _word(path: str) -> str | None:
    """Return the text of a small file, cleaned and cut; None if it is missing or empty."""
    text = read_small(path)
    return None if text is None else clean(text.decode("utf-8", "replace"), _LONGEST_WORD) or None


def _subnets(routes: bytes) -> dict[str, list[str]]:
    """Return the IPv4 networks of each interface in /proc/net/route: its routes without a gateway.

    Addresses are hexadecimal numbers in the processor's order, which is little-endian on all Sparks.
    """
    subnets: dict[str, list[str]] = {}
    for line in routes.splitlines()[1:]:
        fields = line.split()
        try:
            name = fields[0]
            goal, gateway, mask = (int(fields[column], 16) for column in (1, 2, 7))
            width = mask.bit_count()
            if gateway or not width:
                continue
            network = IPv4Network((struct.pack("<I", goal), width), strict=False)
        except (ValueError, IndexError, struct.error):
            continue
        if not network.is_multicast and len(subnets) < _MOST_SUBNETS * _MOST_RAILS:
            of_interface = subnets.setdefault(name.decode("utf-8", "replace"), [])
            if str(network) not in of_interface:
                of_interface.append(str(network))
    return subnets


def _gids(port: str) -> dict[str, str] | None:
    """Return the type of each entry in use of a port's GID table, by index; None where one cannot be read."""
    numbers = sorted(int(name) for name in entries(Path(port) / "gids") if name.isdecimal())[:_MOST_GIDS]
    table: dict[str, str] = {}
    is_readable = False
    for index in numbers:
        text = read_small(f"{port}/gids/{index}")
        is_readable |= text is not None
        try:
            address = IPv6Address((text or b"").decode("ascii").strip())
        except ValueError:
            continue
        has_no_host = not int(address) & 0xFFFF_FFFF_FFFF_FFFF
        if has_no_host and (not int(address) or address.is_link_local):
            continue  # an entry that is not in use
        kind = _word(f"{port}/gid_attrs/types/{index}")
        if kind is None:
            return None
        if kind == _ROCE2:
            kind += " over IPv4" if address.ipv4_mapped else " over IPv6"
        table[str(index)] = kind
    return table if is_readable else None


def _behind(begin: bytes, content: bytes) -> bytes:
    """Return what follows `begin` in the first line that begins so; b"" without such a line."""
    return next((line[len(begin) :] for line in content.splitlines() if line.startswith(begin)), b"")


def _memlock_limit(limits: bytes) -> int | None:
    """Return the soft limit of locked memory in /proc/PID/limits, in bytes; None where it cannot be read."""
    words = _behind(b"Max locked memory", limits).split()
    return _parse_limit(words[0]) if words else None


def _may_lock_all(status: bytes, users: bytes) -> bool:
    """Return whether a process has CAP_IPC_LOCK on its machine, with which it may lock any memory.

    A container has it by --privileged or --cap-add IPC_LOCK, unless its user IDs are mapped to others
    (`capable` in `ib_umem_get` of the kernel's drivers/infiniband/core/umem.c).
    """
    try:
        rights = int(_behind(b"CapEff:", status), 16)
    except ValueError:
        return False
    return bool(rights & _IPC_LOCK) and users.split() == _ALL_USERS


def _parse_limit(word: bytes) -> int | None:
    """Return a limit in bytes as the kernel writes it, `UNLIMITED` at most; None for any other text."""
    if word in {b"unlimited", b"max"}:
        return UNLIMITED
    number = parse_int(word)
    return None if number is None or number < 0 else min(number, UNLIMITED)


_SEARCHED_BYTES = 1 << 16
"""Bytes at both ends of a library in which its notes are searched: linkers write them first, and tools that
change a library move them to its end."""
_BUILD_NOTE = re.compile(rb"\x04\0\0\0(.)\0\0\0\x03\0\0\0GNU\0", re.DOTALL)
"""Head of the note with the build ID in a little-endian ELF file (man 5 elf): sizes of name and value, type,
name."""


def _mark_of(handle: int) -> str:
    """Return the build ID in the notes of an ELF file in hexadecimal digits, else the file's size."""
    size = os.fstat(handle).st_size
    content = os.pread(handle, _SEARCHED_BYTES, 0)
    content += os.pread(handle, _SEARCHED_BYTES, max(0, size - _SEARCHED_BYTES))
    note = _BUILD_NOTE.search(content) if content.startswith(b"\x7fELF\x02\x01") else None
    build = "" if note is None else content[note.end() : note.end() + note[1][0]].hex()
    return f"build {build}" if build else f"size {size}"
