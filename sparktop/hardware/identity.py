"""The identity of a machine: operating system, product, host name, addresses, and how the last boot ended."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import socket
import struct
import subprocess
import threading
from collections.abc import Collection
from ipaddress import IPv4Address, IPv6Address, ip_address
from os import SEEK_END
from pathlib import Path

from msgspec.structs import replace

from sparktop.hardware.kernel_file import parse_int, read_bytes, read_int, read_text
from sparktop.model.node import LastBoot, MachineSetup, NodeIdentity
from sparktop.model.text import clean, lines_of

_MOST_ADDRESSES = 64
"""Upper limit of addresses returned."""
_LOCAL = b"/32 host LOCAL"
"""A line in /proc/net/fib_trie: the line above it holds one of this machine's own addresses."""


def read_addresses(root: Path = Path("/")) -> tuple[str, ...]:
    """Return the machine's IP addresses, IPv4 first, without loopback and link-local addresses.

    They show on which node a backend runs. /proc/net is read below `root`; at most `_MOST_ADDRESSES` are
    returned.
    """
    # psutil would read this machine's, whatever the root.
    trie = read_bytes(str(root / "proc/net/fib_trie")) or b""
    interfaces = read_bytes(str(root / "proc/net/if_inet6")) or b""
    every: list[IPv4Address | IPv6Address] = [*_parse_trie(trie), *_parse_if_inet6(interfaces)]
    useful = (
        address
        for address in every
        if not (address.is_loopback or address.is_link_local or address.is_unspecified)
    )
    return tuple(dict.fromkeys(map(str, useful)))[:_MOST_ADDRESSES]


def own_hosts() -> frozenset[str]:
    """Return this machine's names and addresses as they appear in URLs, but for loopback addresses."""
    return frozenset({"localhost", clean(socket.gethostname(), 64).lower() or "localhost", *read_addresses()})


def is_here(host: str | None, own: Collection[str]) -> bool:
    """Return whether a host is this machine: a loopback or unspecified address, or one of `own`."""
    with contextlib.suppress(ValueError):
        address = ip_address(host or "")
        return address.is_loopback or address.is_unspecified or str(address) in own
    return host is not None and host.lower() in own


def _parse_trie(content: bytes) -> list[IPv4Address]:
    """Return the machine's own IPv4 addresses in /proc/net/fib_trie, sorted and without duplicates.

    The file lists each address twice, in the tables `Main:` and `Local:`.
    """
    addresses: list[IPv4Address] = []
    above = b""
    for line in content.splitlines():
        text = line.strip()
        if text == _LOCAL and above.startswith(b"|-- "):
            with contextlib.suppress(ValueError):
                addresses.append(IPv4Address(above[4:].decode("ascii", "replace")))
        above = text
    return sorted(set(addresses))


def _parse_if_inet6(content: bytes) -> list[IPv6Address]:
    """Return the addresses in /proc/net/if_inet6, sorted: one per line, as 32 hexadecimal digits."""
    addresses: list[IPv6Address] = []
    for line in content.splitlines():
        with contextlib.suppress(ValueError, IndexError):
            addresses.append(IPv6Address(bytes.fromhex(line.split()[0].decode("ascii"))))
    return sorted(set(addresses))


_JOURNAL_S = 5.0
"""Longest time that journalctl may take."""
_RECORD_HEAD = struct.Struct("=h2xi32s4s32s")
"""Beginning of a record of wtmp (struct utmp of glibc): type, process, line, id, user."""
_RECORD_BYTES = (384, 400)
"""Size of a record: on x86-64, where its times have 32 bits, and on aarch64, where they have 64."""
_MOST_RECORDS = 4000
"""Records read of the end of wtmp."""
_TYPES = range(1, 10)
"""Types of records that are not empty (man 5 utmp)."""
_RUN_LEVEL, _BOOT_TIME = 1, 2
"""Two of the types."""
_WATCHDOG_RESET = 0x20
"""WDIOF_CARDRESET of include/uapi/linux/watchdog.h."""
_WATCHDOG = "sys/class/watchdog/watchdog0/bootstatus"
_DENIED = "the journal of the last boot is not readable: the group adm or systemd-journal would allow it"


class LastBootReader:
    """Reads once how the boot before this one ended: from wtmp, the journal and the hardware's watchdog.

    The journal of the last boot is readable for the groups adm and systemd-journal only; wtmp and the
    watchdog's status for everybody. A thread asks journalctl, which can take seconds.
    """

    def __init__(self, root: Path = Path("/"), *, journal: bool = False) -> None:
        """Read below `root`; `journal` is whether to ask this machine's journal, too."""
        self._root = root
        self._journal = journal
        self._has_begun = False
        self._ending: LastBoot | None = None

    def read(self) -> LastBoot | None:
        """Return how the last boot ended; None until it is read, and where nothing says so."""
        if self._has_begun:
            return self._ending
        self._has_begun = True

        def read_journal() -> None:
            self._ending = self._read_files(*last_journal_line())

        if self._journal:
            threading.Thread(target=read_journal, name="sparktop-last-boot", daemon=True).start()
        else:
            self._ending = self._read_files(None, None)
        return self._ending

    def _read_files(self, line: str | None, unreadable: str | None) -> LastBoot | None:
        """Return what files say, with the journal's last `line` or why it is `unreadable`; None: nothing."""
        status = read_int(str(self._root / _WATCHDOG))
        watchdog = None if status is None else bool(status & _WATCHDOG_RESET)
        ending = LastBoot(was_shut_down(self._root), line, watchdog, unreadable)
        return None if ending == LastBoot() else ending


def was_shut_down(root: Path) -> bool | None:
    """Return whether the boot before this one was shut down in order, by wtmp; None if that is not known."""
    path = root / "var/log/wtmp"
    # The file tells its kind, since it can be of another machine: read as the other one, few types exist.
    records = max((_read_records(path, size) for size in _RECORD_BYTES), key=len)
    kinds = [
        kind for kind, user in records if kind == _BOOT_TIME or (kind, user) == (_RUN_LEVEL, b"shutdown")
    ]
    if kinds.count(_BOOT_TIME) < 2:  # noqa: PLR2004 - this boot and the one before
        return None
    this_boot = len(kinds) - 1 - kinds[::-1].index(_BOOT_TIME)
    return kinds[this_boot - 1] == _RUN_LEVEL


def _read_records(path: Path, record_bytes: int) -> list[tuple[int, bytes]]:
    """Return (type, user) of the last records of wtmp that have a type; empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            count = file.seek(0, SEEK_END) // record_bytes
            file.seek(max(0, count - _MOST_RECORDS) * record_bytes)
            content = file.read(_MOST_RECORDS * record_bytes)
    except OSError:
        return []
    starts = range(0, len(content) - record_bytes + 1, record_bytes)
    heads = (_RECORD_HEAD.unpack_from(content, start) for start in starts)
    return [(kind, user.partition(b"\0")[0]) for kind, *_, user in heads if kind in _TYPES]


def last_journal_line() -> tuple[str | None, str | None]:
    """Return (last line of the last boot's journal, why it cannot be read); both None without a journal."""
    program = shutil.which("journalctl")
    if program is None:
        return None, None
    command = [program, "-b", "-1", "-n", "1", "--no-pager", "-o", "short-iso", "-q"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_JOURNAL_S, check=False)  # noqa: S603 - a fixed command
    except (OSError, subprocess.TimeoutExpired):
        return None, None
    line = clean(done.stdout.decode("utf-8", "replace"), 200)
    if line and not line.startswith("--"):
        return line, None
    return None, _DENIED if b"ermission" in done.stderr or b"insufficient" in done.stderr else None


_LONGEST = 120
"""Most characters of a name."""
_DMI = "sys/devices/virtual/dmi/id"
_READ_AGAIN_S = 60.0
"""Seconds between two reads of addresses and host name, which seldom change while a machine runs."""
_PLACEHOLDERS = frozenset(
    {"", "default string", "none", "not applicable", "not specified", "o.e.m.", "system manufacturer"}
    | {"system product name", "to be filled by o.e.m.", "unknown"}
)
"""What manufacturers leave in the DMI table instead of a value."""


class IdentityReader:
    """Reads a machine's identity; host name and addresses, which can change, are read again once a minute."""

    def __init__(self, root: Path = Path("/"), *, journal: bool = False) -> None:
        self._root = root
        self._last_boot = LastBootReader(root, journal=journal)
        self._read_at: float | None = None
        self._identity: NodeIdentity | None = None

    @property
    def identity(self) -> NodeIdentity | None:
        """The machine's identity; None before the first reading.

        The same object is returned until a field changes.
        """
        return self._identity

    def read(
        self,
        now: float,
        *,
        driver: str | None = None,
        cpu: str | None = None,
        setup: MachineSetup | None = None,
    ) -> NodeIdentity:
        """Return the identity; host name and addresses are read again once a minute.

        `now` is in seconds, `driver` the NVIDIA driver's version, `cpu` the one-line description of the
        processors. They and `setup` were read by other readers.
        """
        before = self._identity or read_identity(self._root)
        # What is not known any more keeps its last value, such as the driver's version once it is unloaded.
        after = replace(
            before,
            driver=driver or before.driver,
            cpu=cpu or before.cpu,
            setup=setup or before.setup,
            last_boot=before.last_boot or self._last_boot.read(),
        )
        if self._read_at is None:
            self._read_at = now
        elif not 0 <= now - self._read_at < _READ_AGAIN_S:
            self._read_at = now
            after = replace(after, hostname=_hostname(self._root), addresses=read_addresses(self._root))
        self._identity = before if after == before else after
        return self._identity


def read_identity(root: Path = Path("/")) -> NodeIdentity:
    """Read the identity of the machine from /proc, /sys and /etc below `root`; not driver, CPU and setup."""
    boot_id = read_text(str(root / "proc/sys/kernel/random/boot_id"))
    maker = _read_dmi(root / _DMI / "sys_vendor")
    kernel = read_text(str(root / "proc/sys/kernel/osrelease"))
    system = [_pretty_name(root), f"Linux {kernel}" if kernel else None]
    return NodeIdentity(
        os=clean(", ".join(part for part in system if part), _LONGEST) or None,
        product=_product_name(root),
        boot_id=clean(boot_id, 64) if boot_id else None,
        maker=clean(maker, _LONGEST) or None if maker else None,
        addresses=read_addresses(root),
        hostname=_hostname(root),
        booted_at=_booted_at(root),
    )


def _booted_at(root: Path) -> float | None:
    """Return when the machine booted, as Unix time, from the line btime of /proc/stat."""
    for line in (read_bytes(str(root / "proc/stat")) or b"").splitlines():
        if line.startswith(b"btime "):
            seconds = parse_int(line.partition(b" ")[2])
            return None if seconds is None else float(seconds)
    return None


def _hostname(root: Path) -> str | None:
    """Return the kernel's host name without control characters; None if it cannot be read."""
    return clean(read_text(str(root / "proc/sys/kernel/hostname")) or "", 253) or None


def _pretty_name(root: Path) -> str | None:
    """Return the value of PRETTY_NAME in os-release (man 5 os-release); None when it is missing."""
    text = read_text(str(root / "etc/os-release")) or read_text(str(root / "usr/lib/os-release")) or ""
    for line in lines_of(text):
        key, _, value = line.partition("=")
        if key == "PRETTY_NAME":
            try:
                return " ".join(shlex.split(value)) or None
            except ValueError:
                return value.strip("\"'") or None
    return None


def _product_name(root: Path) -> str | None:
    """Return the machine's maker and product from DMI, else the model from the device tree, else None."""
    dmi = root / _DMI
    family, name, vendor = (
        _read_dmi(dmi / entry) for entry in ("product_family", "product_name", "sys_vendor")
    )
    # A DGX Spark's family names it, whichever maker's; elsewhere the name can hold the family and more.
    says_more = family is None or (name is not None and family in name)
    product = name if says_more else family
    if product is None:
        model = (read_text(str(root / "sys/firmware/devicetree/base/model")) or "").strip("\0")
        return clean(model, _LONGEST) or None
    names_vendor = vendor is None or product.lower().startswith(vendor.lower())
    return clean(product if names_vendor else f"{vendor} {product}", _LONGEST)


def _read_dmi(path: Path) -> str | None:
    """Return the DMI string in the file `path`; None if missing or a placeholder such as "default string"."""
    text = read_text(str(path))
    return None if text is None or text.lower() in _PLACEHOLDERS else text
