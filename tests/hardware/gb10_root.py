"""A DGX Spark as a tree of /proc and /sys: what its kernel shows while it serves a large model.

`build` writes the tree below a folder, which is then the root for the readers; `advance` increases its
counters as if time had passed. The layout is the kernel's: devices lie below /sys/devices, classes link to
them.
"""

from __future__ import annotations

import os
from pathlib import Path

from sparktop.hardware.network import CONGESTION_COUNTERS

TOTAL_KIB = 127_535_412
"""MemTotal: 121.6 GiB."""
GPU_PROCESS_BYTES = 102_625 * 1024**2
"""What the driver says that the engine holds; with it, the tree's memory adds up."""
LITTLE_CORES = (0, 1, 2, 3, 4, 10, 11, 12, 13, 14)
BIG_CORES = (5, 6, 7, 8, 9, 15, 16, 17, 18, 19)
BIG_BUSY, LITTLE_BUSY = 50, 10
"""Ticks of a hundred that a core is busy: percent, since a second has 100 ticks."""
RDMA_DEVICES = ("rocep1s0f0", "rocep1s0f1", "roceP2p1s0f0", "roceP2p1s0f1")
NETDEVS = ("enp1s0f0np0", "enp1s0f1np1", "enP2p1s0f0np0", "enP2p1s0f1np1")
"""The network interface on the same function as the RDMA device at that place."""
FUNCTIONS = ("0000:01:00.0", "0000:01:00.1", "0002:01:00.0", "0002:01:00.1")
"""Their PCI addresses."""
RDMA_TX_WORDS_PER_S, RDMA_RX_WORDS_PER_S = 1_500_000_000, 1_250_000_000
"""Words of 4 bytes a second through the first device: 6 and 5 GB/s; the others stand still."""
RDMA_TX_PACKETS_PER_S, RDMA_RX_PACKETS_PER_S = 1_500_000, 1_250_000
ETHERNET_RX_BYTES_PER_S, ETHERNET_TX_BYTES_PER_S = 1_000_000, 500_000
"""Through the 10 GbE interface."""

MEMINFO_KIB = {
    "MemTotal": TOTAL_KIB,
    "MemFree": 9_871_204,
    "MemAvailable": 10_905_190,
    "Buffers": 262_144,
    "Cached": 3_145_728,
    "SwapTotal": 16_777_212,
    "SwapFree": 15_728_636,
    "AnonPages": 5_242_880,
    "Shmem": 409_600,
    "Slab": 1_468_006,
    "KernelStack": 31_744,
    "PageTables": 92_160,
    "SecPageTables": 4_096,
    "VmallocUsed": 163_840,
    "Percpu": 45_056,
    "CmaTotal": 10_485_760,
    "CmaFree": 9_227_469,
}

_FILES = {
    "proc/loadavg": "11.42 9.80 7.31 3/1402 88123\n",
    "proc/uptime": "93120.55 1209334.10\n",
    "proc/pressure/memory": (
        "some avg10=2.10 avg60=0.80 avg300=0.20 total=914\nfull avg10=1.25 avg60=0.40 avg300=0.10 total=9\n"
    ),
    "proc/pressure/cpu": (
        "some avg10=4.00 avg60=3.10 avg300=2.00 total=8811\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
    ),
    "proc/sys/kernel/osrelease": "6.14.0-1013-nvidia\n",
    "proc/sys/kernel/hostname": "spark-1\n",
    "proc/sys/kernel/random/boot_id": "5d7c3a10-1f2e-4d3c-8b4a-9e6f5a4b3c2d\n",
    "proc/net/if_inet6": (
        "00000000000000000000000000000001 01 80 10 80       lo\n"
        "fe800000000000003e6d66fffe010203 02 40 20 80   enP7s7\n"
        "fd000000000000000000000000000011 02 40 00 80   enP7s7\n"
        "20010db8000000000000000000000011 02 40 00 00   enP7s7\n"
    ),
    "etc/os-release": 'NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 24.04.3 LTS"\nVERSION_ID="24.04"\nID=ubuntu\n',
    "sys/devices/virtual/dmi/id/product_family": "DGX Spark\n",
    "sys/devices/virtual/dmi/id/product_name": "NVIDIA_DGX_Spark\n",
    "sys/devices/virtual/dmi/id/sys_vendor": "NVIDIA\n",
    "sys/devices/virtual/dmi/id/board_name": "P4242\n",
}
_FIB = """\
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 127.0.0.0/8 2 0 2
        |-- 127.0.0.0
           /8 host LOCAL
        |-- 127.0.0.1
           /32 host LOCAL
     +-- 192.168.1.0/24 2 0 2
        |-- 192.168.1.0
           /24 link UNICAST
        |-- 192.168.1.11
           /32 host LOCAL
        |-- 192.168.1.255
           /32 link BROADCAST
     +-- 169.254.0.0/16 2 0 2
        |-- 169.254.77.1
           /32 host LOCAL
     |-- 10.100.0.11
        /32 host LOCAL
"""
_PCI = "sys/devices/pci{domain}:00/{domain}:00:00.0/{address}"
_ETHERNET, _WIFI, _NVME = "0007:01:00.0", "0009:01:00.0", "0004:01:00.0"
_SPBM_RAILS = {"sys_total": 61_500_000, "soc_pkg": 44_250_000, "cpu_p": 9_100_000, "cpu_e": 2_400_000}
_SPBM_RAILS |= {"gpu": 30_750_000, "dc_input": 66_000_000}
"""Microwatts by the label of power*_input."""
_SPBM_ENERGIES = {"soc_pkg": 7_200_000_000, "gpu": 5_100_500_000}
"""Microjoules by the label of energy*_input."""


def write(root: Path, path: str, content: str | bytes) -> None:
    """Write a file into a tree."""
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content if isinstance(content, bytes) else content.encode())


def build(root: Path) -> Path:
    """Write the machine below `root` and return `root`."""
    for path, content in _FILES.items():
        write(root, path, content)
    write(root, "proc/meminfo", meminfo())
    write(root, "proc/net/fib_trie", f"Main:\n{_FIB}Local:\n{_FIB}")
    _write_cores(root)
    _write_interface(root, "enP7s7", _ETHERNET, vendor="0x10ec", speed="10000")
    _write_interface(root, "wlP9s9", _WIFI, vendor="0x14c3", speed=None)
    write(root, f"{_class_target('net', 'wlP9s9', _WIFI)}/phy80211/index", "0\n")
    for name in ("lo", "docker0"):
        folder = f"sys/devices/virtual/net/{name}"
        write(root, f"{folder}/type", "772\n" if name == "lo" else "1\n")
        write(root, f"{folder}/operstate", "unknown\n" if name == "lo" else "down\n")
        _link(root, f"sys/class/net/{name}", folder)
    for place in range(len(RDMA_DEVICES)):
        _write_function(root, place)
    _write_sensors(root)
    _write_spbm(root)
    advance(root, 0)
    return root


def meminfo(huge_pages: tuple[int, int] = (0, 0), **changes_kib: int | None) -> str:
    """Return the content of /proc/meminfo with all and free huge pages; `changes_kib` replaces lines."""
    figures = {name: size for name, size in (MEMINFO_KIB | changes_kib).items() if size is not None}
    lines = [f"{name + ':':<16}{size:>10} kB\n" for name, size in figures.items()]
    total, free = huge_pages
    lines += [f"HugePages_Total: {total:>6}\nHugePages_Free:  {free:>6}\nHugepagesize:      2048 kB\n"]
    return "".join([*lines, f"Hugetlb:      {total * 2048:>10} kB\n"])


def advance(root: Path, seconds: int) -> None:
    """Set every counter to its value `seconds` after `build`."""
    write(root, "proc/stat", stat(seconds))
    write(
        root,
        "proc/vmstat",
        f"nr_free_pages 2467801\nnr_free_cma 2306867\npswpin {1000 + 100 * seconds}\n"
        f"pswpout {2000 + 300 * seconds}\nswap_ra 5\n",
    )
    moved = {
        "lo": (9_000_000 + 1000 * seconds, 9_000_000 + 1000 * seconds),
        "enP7s7": (10**9 + ETHERNET_RX_BYTES_PER_S * seconds, 10**8 + ETHERNET_TX_BYTES_PER_S * seconds),
        "wlP9s9": (100, 200),
        "docker0": (11, 12),
    }
    moved |= dict.fromkeys(NETDEVS, (5_600_000, 5_600_000))
    for device in RDMA_DEVICES:
        _write_traffic(root, device, seconds if device == RDMA_DEVICES[0] else 0)
    header = (
        "Inter-|   Receive                    |  Transmit\n face |bytes packets errs drop ...|bytes ...\n"
    )
    rows = [f"{name:>6}: {rx} 5000 0 0 0 0 0 0 {tx} 6000 0 0 0 0 0 0\n" for name, (rx, tx) in moved.items()]
    write(root, "proc/net/dev", header + "".join(rows))


def stat(seconds: int) -> str:
    """Return the content of /proc/stat, `seconds` after `build`: big cores were busy half of the time."""
    rows, sums = [], [0, 0]
    for core in range(len(BIG_CORES) + len(LITTLE_CORES)):
        busy = 10_000 + seconds * (BIG_BUSY if core in BIG_CORES else LITTLE_BUSY)
        idle = 90_000 + seconds * 100 - (busy - 10_000)
        sums = [sums[0] + busy, sums[1] + idle]
        rows.append(f"cpu{core} {busy} 0 0 {idle} 0 0 0 0 0 0\n")
    total = f"cpu  {sums[0]} 0 0 {sums[1]} 0 0 0 0 0 0\n"
    return total + "".join(rows) + "intr 912345678 0 0 0 17\nctxt 1234567\nbtime 1760000000\n"


def pci_folder(address: str) -> str:
    """Return the folder of a PCI function below the root."""
    return _PCI.format(domain=address.partition(":")[0], address=address)


def _link(root: Path, path: str, target: str) -> None:
    """Create a relative link at `path` to `target`, both below the root."""
    place = root / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(os.path.relpath(root / target, place.parent))


def _class_target(kind: str, name: str, address: str) -> str:
    return f"{pci_folder(address)}/{kind}/{name}"


def _write_cores(root: Path) -> None:
    blocks = []
    for core in range(len(BIG_CORES) + len(LITTLE_CORES)):
        big = core in BIG_CORES
        blocks.append(
            f"processor\t: {core}\nBogoMIPS\t: 2000.00\nFeatures\t: fp asimd sve sve2 bf16 i8mm\n"
            "CPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x0\n"
            f"CPU part\t: {'0xd85' if big else '0xd87'}\nCPU revision\t: 1\n"
        )
        folder = f"sys/devices/system/cpu/cpu{core}"
        write(root, f"{folder}/cpu_capacity", "1024\n" if big else "718\n")
        write(root, f"{folder}/cpufreq/cpuinfo_max_freq", "3900000\n" if big else "2808000\n")
    write(root, "proc/cpuinfo", "\n".join(blocks) + "\n")


def _write_interface(root: Path, name: str, address: str, *, vendor: str, speed: str | None) -> None:
    folder = _class_target("net", name, address)
    for file, content in (("operstate", "up"), ("carrier", "1"), ("type", "1"), ("mtu", "1500")):
        write(root, f"{folder}/{file}", content + "\n")
    if speed is not None:
        write(root, f"{folder}/speed", speed + "\n")
    write(root, f"{pci_folder(address)}/vendor", vendor + "\n")
    _link(root, f"{folder}/device", pci_folder(address))
    _link(root, f"sys/class/net/{name}", folder)


def _write_function(root: Path, place: int) -> None:
    """Write one of the four functions of the network card; only the first port has a cable."""
    name, address = RDMA_DEVICES[place], FUNCTIONS[place]
    connected = place in {0, 2}
    _write_interface(root, NETDEVS[place], address, vendor="0x15b3", speed="200000" if connected else "-1")
    if not connected:
        write(root, f"{_class_target('net', NETDEVS[place], address)}/operstate", "down\n")
    folder = _class_target("infiniband", name, address)
    port = f"{folder}/ports/1"
    write(root, f"{port}/state", "4: ACTIVE\n" if connected else "1: DOWN\n")
    write(root, f"{port}/phys_state", "5: LinkUp\n" if connected else "3: Disabled\n")
    write(root, f"{port}/rate", "200 Gb/sec (2X NDR)\n" if connected else "40 Gb/sec (4X QDR)\n")
    write(root, f"{port}/link_layer", "Ethernet\n")
    for counter in (*CONGESTION_COUNTERS, "out_of_sequence", "local_ack_timeout_err"):
        write(root, f"{port}/hw_counters/{counter}", "0\n")
    write(root, f"{pci_folder(address)}/current_link_speed", "32.0 GT/s PCIe\n")
    write(root, f"{pci_folder(address)}/current_link_width", "4\n")
    _link(root, f"{folder}/device", pci_folder(address))
    _link(root, f"sys/class/infiniband/{name}", folder)


def _write_traffic(root: Path, device: str, seconds: int) -> None:
    counters = {
        "port_xmit_data": 4_000_000_000 + RDMA_TX_WORDS_PER_S * seconds,
        "port_rcv_data": 3_000_000_000 + RDMA_RX_WORDS_PER_S * seconds,
        "port_xmit_packets": 4_000_000 + RDMA_TX_PACKETS_PER_S * seconds,
        "port_rcv_packets": 3_000_000 + RDMA_RX_PACKETS_PER_S * seconds,
        "symbol_error": 0,
        "link_downed": 0,
    }
    for name, value in counters.items():
        write(root, f"sys/class/infiniband/{device}/ports/1/counters/{name}", f"{value}\n")


def _write_chip(root: Path, number: int, device: str, files: dict[str, str]) -> None:
    """Write a hwmon chip of a device."""
    folder = f"{device}/hwmon/hwmon{number}"
    for name, content in files.items():
        write(root, f"{folder}/{name}", content + "\n")
    _link(root, f"{folder}/device", device)
    _link(root, f"sys/class/hwmon/hwmon{number}", folder)


def _write_sensors(root: Path) -> None:
    zones = {"name": "acpitz"}
    for zone, milli in enumerate((91_500, 88_000, 90_200, 84_100, 79_900)):
        zones[f"temp{zone + 1}_input"] = str(milli)
        folder = f"sys/devices/virtual/thermal/thermal_zone{zone}"
        write(root, f"{folder}/type", "acpitz\n")
        write(root, f"{folder}/temp", f"{milli}\n")
        _link(root, f"sys/class/thermal/thermal_zone{zone}", folder)
    _write_chip(root, 0, "sys/devices/virtual/thermal/thermal_zone0", zones)
    disk = {"name": "nvme", "temp1_input": "46850", "temp1_label": "Composite", "temp1_crit": "84850"}
    disk |= {"temp1_max": "81850", "temp2_input": "51850", "temp2_label": "Sensor 1", "temp2_max": "65261850"}
    _write_chip(root, 1, f"{pci_folder(_NVME)}/nvme/nvme0", disk)
    for place, address in enumerate(FUNCTIONS):
        card = {"name": "mlx5", "temp1_input": f"{55_000 + 1000 * place}", "temp1_label": "asic"}
        _write_chip(root, 2 + place, pci_folder(address), card | {"temp1_crit": "105000"})
    _write_chip(root, 6, pci_folder(_WIFI), {"name": "mt7925_phy0", "temp1_input": "48000"})


def _write_spbm(root: Path) -> None:
    files = {"name": "spbm"}
    for number, (label, microwatts) in enumerate(_SPBM_RAILS.items(), 1):
        files |= {f"power{number}_label": label, f"power{number}_input": str(microwatts)}
    for number, (label, microjoules) in enumerate(_SPBM_ENERGIES.items(), 1):
        files |= {f"energy{number}_label": label, f"energy{number}_input": str(microjoules)}
    _write_chip(root, 7, "sys/devices/platform/NVDA8800:00", files)
