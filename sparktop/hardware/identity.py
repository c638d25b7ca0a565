"""The identity of a machine: operating system, product, host name, IP addresses and boot id."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

from sparktop.hardware.addresses import read_addresses
from sparktop.hardware.kernel_file import parse_int, read_bytes, read_text
from sparktop.hardware.last_boot import LastBootReader
from sparktop.model.node import NodeIdentity
from sparktop.model.text import clean

_LONGEST = 120
_DMI = "sys/devices/virtual/dmi/id"
_LOOK_AGAIN_S = 60.0
"""Seconds between two reads of addresses and host name, which seldom change while a machine runs."""
_PLACEHOLDERS = frozenset(
    {
        "",
        "default string",
        "none",
        "not applicable",
        "not specified",
        "o.e.m.",
        "system manufacturer",
        "system product name",
        "to be filled by o.e.m.",
        "unknown",
    }
)
"""What manufacturers leave in the DMI table instead of a value."""


class IdentityReader:
    """Reads a machine's identity; host name and addresses, which can change, are read again once a minute."""

    def __init__(self, root: Path = Path("/"), *, journal: bool = False) -> None:
        self._root = root
        self._last_boot = LastBootReader(root, journal=journal)
        self._looked_at: float | None = None
        self._identity: NodeIdentity | None = None

    @property
    def identity(self) -> NodeIdentity | None:
        """The machine's identity; None before the first reading.

        The same object is returned until a field changes.
        """
        return self._identity

    def read(self, now: float, *, driver: str | None = None, cpu: str | None = None) -> NodeIdentity:
        """Return the identity; host name and addresses are read again once a minute.

        `now` is in seconds, `driver` the NVIDIA driver's version, `cpu` the one-line description of the
        processors.
        """
        known = self._identity
        if known is None:
            self._looked_at = now
            found = read_identity(self._root, driver=driver, cpu=cpu)
            self._identity = replace(found, last_boot=self._last_boot.read())
            return self._identity
        # When the driver goes away, its last known version is kept.
        seen = replace(known, driver=driver or known.driver, cpu=cpu or known.cpu)
        if seen.last_boot is None and (last := self._last_boot.read()) is not None:
            seen = replace(seen, last_boot=last)
        if self._looked_at is None or not 0 <= now - self._looked_at < _LOOK_AGAIN_S:
            self._looked_at = now
            seen = replace(seen, hostname=_hostname(self._root), addresses=read_addresses(self._root))
        if seen != known:
            self._identity = seen
        return self._identity or seen


def read_identity(
    root: Path = Path("/"), *, driver: str | None = None, cpu: str | None = None
) -> NodeIdentity:
    """Read the identity of the machine from /proc, /sys and /etc below `root`.

    `driver` (the NVIDIA driver's version) and `cpu` (the processors in one line) are stored as they are.
    """
    boot_id = read_text(str(root / "proc/sys/kernel/random/boot_id"))
    maker = _dmi(root / _DMI / "sys_vendor")
    return NodeIdentity(
        os=_os(root),
        driver=driver,
        product=_product(root),
        boot_id=clean(boot_id, 64) if boot_id else None,
        maker=clean(maker, _LONGEST) or None if maker else None,
        cpu=cpu,
        addresses=read_addresses(root),
        hostname=_hostname(root),
        booted_at=_booted_at(root),
    )


def _booted_at(root: Path) -> float | None:
    """Return when the machine booted, as Unix time, from the line btime of /proc/stat."""
    for line in (read_bytes(str(root / "proc/stat")) or b"").splitlines():
        if line.startswith(b"btime "):
            found = parse_int(line.partition(b" ")[2])
            return None if found is None else float(found)
    return None


def _hostname(root: Path) -> str | None:
    """Return the kernel's host name without control characters; None if it cannot be read."""
    return clean(read_text(str(root / "proc/sys/kernel/hostname")) or "", 253) or None


def _os(root: Path) -> str | None:
    """Return the distribution's name and the kernel's version, such as "Ubuntu 24.04 LTS, Linux 6.8.0".

    None where neither is known.
    """
    kernel = read_text(str(root / "proc/sys/kernel/osrelease"))
    parts = [_pretty_name(root), f"Linux {kernel}" if kernel else None]
    return clean(", ".join(part for part in parts if part), _LONGEST) or None


def _pretty_name(root: Path) -> str | None:
    """Return the value of PRETTY_NAME in os-release (man 5 os-release); None when it is missing."""
    text = read_text(str(root / "etc/os-release")) or read_text(str(root / "usr/lib/os-release")) or ""
    for line in text.splitlines():
        key, _, value = line.partition("=")
        if key == "PRETTY_NAME":
            try:
                return " ".join(shlex.split(value)) or None
            except ValueError:
                return value.strip("\"'") or None
    return None


def _product(root: Path) -> str | None:
    """Return the machine's maker and product from DMI, else the model from the device tree, else None."""
    dmi = root / _DMI
    family, name, vendor = (_dmi(dmi / entry) for entry in ("product_family", "product_name", "sys_vendor"))
    # A DGX Spark's family names it, whichever maker's; elsewhere the name can hold the family and more.
    product = name if family and name and family in name else family or name
    if product is None:
        model = (read_text(str(root / "sys/firmware/devicetree/base/model")) or "").strip("\0")
        return clean(model, _LONGEST) or None
    known = vendor is None or product.lower().startswith(vendor.lower())
    return clean(product if known else f"{vendor} {product}", _LONGEST)


def _dmi(path: Path) -> str | None:
    """Return the DMI string in the file `path`; None if missing or a placeholder such as "default string"."""
    text = read_text(str(path))
    return None if text is None or text.lower() in _PLACEHOLDERS else text
