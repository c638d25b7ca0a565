"""The data rate of a device's PCIe link, from its folder in /sys."""

from __future__ import annotations

import math

from sparktop.hardware.kernel_file import read_int, read_text

_GIGA = 1e9
_OLD_SPEED_MAX_GT = 5.0
_OLD_ENCODING, _ENCODING = 8 / 10, 128 / 130
"""Data bits per bit on the wire: of PCIe Gen1 and Gen2, and of Gen3 to Gen5."""
_FLIT_SPEED_GT, _FLIT_ENCODING = 64.0, 242 / 256
"""PCIe Gen6 and later (64 GT/s) send units of 256 bytes, of which 14 are checksums."""
_PACKETS_SHARE = 0.8
"""The fraction of the encoded bits that is payload. With the usual 128 bytes of data per packet, header,
sequence number and checksum take 24 (128/152 = 84 %), and acknowledgements and flow control a twentieth of
the rest. So a Gen5 x4 function of a DGX Spark carries 100.8 of 126 Gb/s, and the usual pairs of port and slot
match: 100 Gb/s on Gen3 x16, 200 on Gen4 x16, 400 on Gen5 x16."""
_WIDTH_MAX = 32
"""Most PCIe lanes that a link can have; a device without a link reports 0, one that dropped off the bus 63 or
255."""


def link_bits_per_s(folder: str) -> float | None:
    """Return the payload rate (bit/s, one direction) of the PCIe link of the device whose folder is `folder`.

    None when speed or width of the link cannot be read.
    """
    speed = _giga_transfers(read_text(f"{folder}/current_link_speed"))
    lanes = read_int(f"{folder}/current_link_width")
    if speed is None or lanes is None or not 0 < lanes <= _WIDTH_MAX:
        return None
    if speed <= _OLD_SPEED_MAX_GT:
        encoding = _OLD_ENCODING
    else:
        encoding = _FLIT_ENCODING if speed >= _FLIT_SPEED_GT else _ENCODING
    return speed * _GIGA * lanes * encoding * _PACKETS_SHARE


def _giga_transfers(speed: str | None) -> float | None:
    """Parse a link speed such as `32.0 GT/s PCIe` into GT/s; None for other text, such as `Unknown`."""
    fields = (speed or "").split()
    if len(fields) < len(("32.0", "GT/s")) or fields[1] != "GT/s":
        return None
    try:
        found = float(fields[0])
    except ValueError:
        return None
    return found if math.isfinite(found) and found > 0 else None
