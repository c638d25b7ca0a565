"""Machines as trees of files: one like a DGX Spark, and one where nearly everything is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hardware.gb10_root import build
from tests.hardware.gb10_root import write as write  # noqa: PLC0414 - tests know it from here

MEMINFO = """\
MemTotal:       124609375 kB
MemFree:        14680064 kB
MemAvailable:   20971520 kB
Buffers:          524288 kB
Cached:          7340032 kB
SwapCached:            0 kB
AnonPages:       9437184 kB
Shmem:           1048576 kB
Slab:            2097152 kB
PageTables:       131072 kB
KernelStack:       32768 kB
SwapTotal:      16777216 kB
SwapFree:       15728640 kB
CmaTotal:       10485760 kB
CmaFree:         9227469 kB
HugePages_Total:       0
HugePages_Free:        0
HugePages_Rsvd:        0
HugePages_Surp:        0
Hugepagesize:       2048 kB
Hugetlb:               0 kB
"""


def net_dev_line(name: str, rx: int, rx_errors: int, tx: int, tx_errors: int) -> str:
    """Return a line of /proc/net/dev: eight columns received, eight sent."""
    return f"{name:>6}: {rx:7} 5000 {rx_errors:4} 0 0 0 0 0 {tx:8} 6000 {tx_errors:4} 0 0 0 0 0\n"


NET_DEV = "".join(
    [
        "Inter-|   Receive |  Transmit\n face |bytes packets errs ... |bytes packets errs ...\n",
        net_dev_line("lo", 9_000_000, 0, 9_000_000, 0),
        net_dev_line("enP7s7", 1_000_000, 2, 2_000_000, 1),
        net_dev_line("enp1s0f0np0", 5_600_000, 0, 5_600_000, 0),
        net_dev_line("wlP9s9", 100, 0, 200, 0),
        net_dev_line("docker0", 11, 0, 12, 0),
        net_dev_line("vethab12", 11, 0, 12, 0),
        net_dev_line("br-5f00", 11, 0, 12, 0),
        net_dev_line("tun0", 50, 0, 60, 0),
    ]
)

STAT = """\
cpu  1000 0 500 8000 500 0 0 0 0 0
cpu0 600 0 300 3000 100 0 0 0 0 0
cpu1 400 0 200 5000 400 0 0 0 0 0
intr 123456 0 0 0
ctxt 99
"""

SPARK_FILES = {
    "proc/stat": STAT,
    "proc/loadavg": "7.25 3.00 1.00 9/800 4242\n",
    "proc/meminfo": MEMINFO,
    "proc/vmstat": "nr_free_pages 1\npswpin 100\npswpout 200\nswap_ra 5\n",
    "proc/pressure/memory": (
        "some avg10=3.00 avg60=1.00 avg300=0.00 total=1\nfull avg10=1.25 avg60=0.40 avg300=0.00 total=1\n"
    ),
    "proc/net/dev": NET_DEV,
    "proc/sys/kernel/osrelease": "6.14.0-1013-nvidia\n",
    "proc/sys/kernel/random/boot_id": "0f1e2d3c-0000-4000-8000-000000000001\n",
    "etc/os-release": 'NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 24.04.3 LTS"\nID=ubuntu\n',
    "sys/devices/virtual/dmi/id/product_family": "DGX Spark\n",
    "sys/devices/virtual/dmi/id/product_name": "NVIDIA_DGX_Spark\n",
    "sys/devices/virtual/dmi/id/sys_vendor": "NVIDIA\n",
    "sys/class/net/enP7s7/operstate": "up\n",
    "sys/class/net/enP7s7/speed": "10000\n",
    "sys/class/net/enP7s7/type": "1\n",
    "sys/class/net/enP7s7/device/vendor": "0x10ec\n",
    "sys/class/net/enp1s0f0np0/operstate": "down\n",
    "sys/class/net/enp1s0f0np0/speed": "-1\n",
    "sys/class/net/enp1s0f0np0/type": "1\n",
    "sys/class/net/enp1s0f0np0/device/vendor": "0x15b3\n",
    "sys/class/net/wlP9s9/operstate": "up\n",
    "sys/class/net/wlP9s9/type": "1\n",
    "sys/class/net/wlP9s9/phy80211/index": "0\n",
    "sys/class/net/tun0/operstate": "unknown\n",
    "sys/class/net/tun0/type": "65534\n",
    "sys/devices/pci/0000/vendor": "0x15b3\n",
    "sys/devices/pci/0001/vendor": "0x15b3\n",
    "sys/class/infiniband/rocep1s0f0/ports/1/state": "4: ACTIVE\n",
    "sys/class/infiniband/rocep1s0f0/ports/1/rate": "200 Gb/sec (4X HDR)\n",
    "sys/class/infiniband/rocep1s0f0/ports/1/counters/port_rcv_data": "1000000\n",
    "sys/class/infiniband/rocep1s0f0/ports/1/counters/port_xmit_data": "2000000\n",
    "sys/class/infiniband/rocep1s0f0/ports/1/hw_counters/out_of_sequence": "5\n",
    "sys/class/infiniband/rocep1s0f0/ports/1/hw_counters/packet_seq_err": "7\n",
    "sys/class/infiniband/rocep1s0f0/ports/1/hw_counters/np_cnp_sent": "1000\n",
    "sys/class/infiniband/rocep1s0f1/ports/1/state": "1: DOWN\n",
    "sys/class/hwmon/hwmon0/name": "acpitz\n",
    "sys/class/hwmon/hwmon0/temp1_input": "91500\n",
    "sys/class/hwmon/hwmon0/temp2_input": "88000\n",
    "sys/class/hwmon/hwmon1/name": "nvme\n",
    "sys/class/hwmon/hwmon1/temp1_input": "46850\n",
    "sys/class/hwmon/hwmon1/temp1_label": "Composite\n",
    "sys/class/hwmon/hwmon1/temp1_crit": "84850\n",
    "sys/class/hwmon/hwmon1/temp1_max": "81850\n",
    "sys/class/hwmon/hwmon2/name": "mlx5\n",
    "sys/class/hwmon/hwmon2/temp1_input": "55000\n",
    "sys/class/hwmon/hwmon2/temp1_crit": "105000\n",
    "sys/class/hwmon/hwmon10/name": "mlx5\n",
    "sys/class/hwmon/hwmon10/temp1_input": "56000\n",
    "sys/class/hwmon/hwmon10/temp1_crit": "105000\n",
}

SPARK_LINKS = {
    "sys/class/infiniband/rocep1s0f0/device": "sys/devices/pci/0000",
    "sys/class/infiniband/rocep1s0f1/device": "sys/devices/pci/0001",
    "sys/class/hwmon/hwmon2/device": "sys/devices/pci/0000",
    "sys/class/hwmon/hwmon10/device": "sys/devices/pci/0001",
}


def stat_line(
    pid: int, name: str, *, ticks: int = 0, start: int = 1, rss_pages: int = 1, flags: int = 0x400000
) -> str:
    """Return the content of /proc/PID/stat of a process."""
    behind = f"{'0 ' * 2}{start} 1000000 {rss_pages} 18446744073709551615 0 0"
    return f"{pid} ({name}) S 1 {pid} {pid} 0 -1 {flags} 10 0 0 0 {ticks} 0 0 0 20 0 {behind}\n"


@pytest.fixture
def spark(tmp_path: Path) -> Path:
    """Return the root of a machine like a DGX Spark."""
    for path, content in SPARK_FILES.items():
        write(tmp_path, path, content)
    for path, target in SPARK_LINKS.items():
        (tmp_path / path).symlink_to(tmp_path / target)
    return tmp_path


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """Return the root of a container that sees hardly anything."""
    write(tmp_path, "proc/meminfo", "MemTotal:        4194304 kB\nMemFree:         2097152 kB\n")
    write(tmp_path, "proc/net/dev", NET_DEV.replace("enP7s7", "  eth0"))
    return tmp_path


@pytest.fixture
def gb10_tree(tmp_path: Path) -> Path:
    """Return the root of a complete DGX Spark that serves a large model: see `gb10_root`."""
    return build(tmp_path)
