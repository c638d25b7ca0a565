"""Compare sparktop's readings of this machine's GPUs with `nvidia-smi -q -x`, field by field.

    python scripts/compare_nvidia_smi.py [--seconds 2] [--xml FILE]

Both read twice, `--seconds` apart: a figure of nvidia-smi must lie within its tolerance of sparktop's reads
just before and just after it, and throttled shares are those between the two reads. Exit code: 0 all fields
agree, 1 a field differs, 3 no GPU or no nvidia-smi. `--xml` keeps nvidia-smi's last page.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree as ET

from sparktop.hardware.gpu import GpuReader
from sparktop.hardware.memory import read_meminfo
from sparktop.model.node import GpuReading

MIB = 2**20
_UNITS = {"": 1.0, "%": 1.0, "C": 1.0, "W": 1.0, "MHz": 1.0, "MiB": float(MIB), "us": 1e-6, "ns": 1e-9}
_QUANTITY = re.compile(r"(-?[0-9]+(?:\.[0-9]+)?)\s*([%A-Za-z]*)")
_REASONS = {
    "applications_clocks_setting": "application clocks",
    "sw_power_cap": "software power cap",
    "hw_slowdown": "hardware slowdown",
    "sync_boost": "sync boost",
    "sw_thermal_slowdown": "software thermal",
    "hw_thermal_slowdown": "hardware thermal",
    "hw_power_brake_slowdown": "hardware power brake",
    "display_clocks_setting": "display clock",
    "display_clock_setting": "display clock",
}
"""Sparktop's words for throttle reasons, by the end of nvidia-smi's tag after "clocks_event_reason_"."""
_SHARES = {
    "sw_power_cap": "software power cap",
    "sync_boost": "sync boost",
    "sw_therm_slowdown": "software thermal",
    "hw_therm_slowdown": "hardware thermal",
    "hw_power_braking": "hardware power brake",
    "hw_power_brake": "hardware power brake",
}
"""The same by the end of the tag after "clocks_event_reasons_counters_"."""
_KINDS = {"C": "compute", "G": "graphics", "C+G": "both"}
Value = float | str | None


@dataclass(frozen=True, slots=True)
class SmiGpu:
    """One GPU as nvidia-smi reports it, in sparktop's names and units."""

    fields: Mapping[str, Value]
    reasons: frozenset[str] | None = None
    throttled_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds throttled since the driver was loaded, by reason."""
    processes: Mapping[int, tuple[float | None, str | None]] = field(default_factory=dict)
    """(memory in bytes, kind) by process id."""
    mig_totals: tuple[float | None, ...] = ()
    """Memory of each MIG instance in bytes."""


@dataclass(frozen=True, slots=True)
class Line:
    """A row of the table: one field."""

    name: str
    ours: str
    theirs: str
    deviation: str
    ok: bool


@dataclass(frozen=True, slots=True)
class Rule:
    """Tolerance for a figure's deviation from nvidia-smi's: the sum of an absolute and a relative part."""

    absolute: float = 0.0
    share: float = 0.0
    """Relative part, as a fraction of nvidia-smi's figure."""


RULES = {
    "utilization_percent": Rule(25.0),
    "temperature_c": Rule(2.0),
    "limit_margin_c": Rule(2.0),
    "power_w": Rule(5.0, 0.15),
    "power_limit_w": Rule(0.5),
    "sm_clock_mhz": Rule(30.0, 0.10),
    "sm_clock_max_mhz": Rule(),
    "memory_total_bytes": Rule(MIB),
    "memory_used_bytes": Rule(64.0 * MIB, 0.01),
}
"""Tolerances by field, wider for figures that change from one moment to the next."""
_SHARE_RULE, _PROCESS_RULE, _MIG_RULE = Rule(10.0), Rule(64.0 * MIB, 0.01), Rule(MIB)


def quantity(text: str | None) -> float | None:
    """Parse a quantity such as "612.34 W" or "143771 MiB" into sparktop's unit; None for N/A and the like."""
    found = _QUANTITY.fullmatch((text or "").strip())
    if found is None or found[2] not in _UNITS:
        return None
    return float(found[1]) * _UNITS[found[2]]


def parse(page: str) -> dict[str, SmiGpu]:
    """Parse nvidia-smi's XML page; return its GPUs by UUID."""
    # The page is from nvidia-smi on this machine; ElementTree resolves no external entities.
    gpus = ET.fromstring(page).findall("gpu")  # noqa: S314 - the page is the driver's own
    return {gpu.findtext("uuid", "").strip(): _gpu(gpu) for gpu in gpus}


def _gpu(gpu: ET.Element) -> SmiGpu:
    power = _first(gpu, "gpu_power_readings", "power_readings")
    heat = gpu.find("temperature")
    figures: dict[str, Value] = {
        "name": (gpu.findtext("product_name") or "").strip() or None,
        "utilization_percent": quantity(gpu.findtext("utilization/gpu_util")),
        "temperature_c": quantity(_text(heat, "gpu_temp")),
        "limit_margin_c": quantity(_text(heat, "gpu_temp_tlimit")),
        "power_w": quantity(_text(power, "average_power_draw", "power_draw", "instant_power_draw")),
        "power_limit_w": quantity(_text(power, "current_power_limit", "enforced_power_limit", "power_limit")),
        "sm_clock_mhz": quantity(gpu.findtext("clocks/sm_clock")),
        "sm_clock_max_mhz": quantity(gpu.findtext("max_clocks/sm_clock")),
        "memory_total_bytes": quantity(gpu.findtext("fb_memory_usage/total")),
        "memory_used_bytes": quantity(gpu.findtext("fb_memory_usage/used")),
        "mig": {"Enabled": "yes", "Disabled": "no"}.get((gpu.findtext("mig_mode/current_mig") or "").strip()),
    }
    instances = gpu.findall("mig_devices/mig_device")
    return SmiGpu(
        fields=figures,
        reasons=_reasons(gpu),
        throttled_s=_throttled_s(gpu),
        processes=_processes(gpu),
        mig_totals=tuple(quantity(one.findtext("fb_memory_usage/total")) for one in instances),
    )


def _first(parent: ET.Element, *names: str) -> ET.Element | None:
    return next((found for name in names if (found := parent.find(name)) is not None), None)


def _text(parent: ET.Element | None, *names: str) -> str | None:
    """Return the text of the first named element that has a figure; names differ between drivers."""
    texts = [parent.findtext(name) for name in names] if parent is not None else []
    return next((text for text in texts if quantity(text) is not None), None)


def _reasons(gpu: ET.Element) -> frozenset[str] | None:
    block = _first(gpu, "clocks_event_reasons", "clocks_throttle_reasons")
    if block is None:
        return None
    states = {one.tag.partition("_reason_")[2]: (one.text or "").strip() for one in block}
    known = {word: states[tag] for tag, word in _REASONS.items() if tag in states}
    if not any(state in {"Active", "Not Active"} for state in known.values()):
        return None
    return frozenset(word for word, state in known.items() if state == "Active")


def _throttled_s(gpu: ET.Element) -> dict[str, float]:
    block = gpu.find("clocks_event_reasons_counters")
    found: dict[str, float] = {}
    for one in block if block is not None else ():
        word = _SHARES.get(one.tag.partition("_counters_")[2])
        seconds = quantity(one.text)
        if word is not None and seconds is not None:
            found[word] = seconds
    return found


def _processes(gpu: ET.Element) -> dict[int, tuple[float | None, str | None]]:
    found: dict[int, tuple[float | None, str | None]] = {}
    for one in gpu.findall("processes/process_info"):
        pid = quantity(one.findtext("pid"))
        if pid is not None:
            kind = _KINDS.get((one.findtext("type") or "").strip())
            found[int(pid)] = (quantity(one.findtext("used_memory")), kind)
    return found


def compare(
    before: GpuReading,
    after: GpuReading,
    smi: SmiGpu,
    shares: Mapping[str, tuple[float | None, float]] | None = None,
) -> list[Line]:
    """Compare two readings of sparktop with nvidia-smi's, made between them; return a line per field.

    `shares` has the throttled percent by reason: (sparktop's, nvidia-smi's).
    """
    lines = [_same("name", before.name, smi.fields["name"])]
    mig = None if before.mig is None else "yes" if before.mig else "no"
    lines.append(_same("mig", mig, smi.fields["mig"]))
    for name, rule in RULES.items():
        theirs = smi.fields[name]
        scale, unit = (MIB, "MiB") if name.endswith("_bytes") else (1, "")
        known = theirs if isinstance(theirs, float) else None
        lines.append(_near(name, (getattr(before, name), getattr(after, name)), known, rule, scale, unit))
    lines.append(_reason_line(before, after, smi))
    for word, (percent, theirs_percent) in (shares or {}).items():
        lines.append(_near(f"throttled: {word} %", (percent, percent), theirs_percent, _SHARE_RULE, 1, ""))
    totals = [one.memory_total_bytes for one in after.mig_instances]
    lines.append(_same("mig instances", str(len(totals)), str(len(smi.mig_totals))))
    for place, (total, theirs) in enumerate(zip(totals, smi.mig_totals, strict=False)):
        lines.append(_near(f"mig {place} memory", (total, total), theirs, _MIG_RULE, MIB, "MiB"))
    return lines + _process_lines(before, after, smi)


def _reason_line(before: GpuReading, after: GpuReading, smi: SmiGpu) -> Line:
    """Compare throttle reasons, which come and go.

    Each of nvidia-smi's must be in one of sparktop's two readings; each that is in both readings must be
    among nvidia-smi's.
    """
    looks = (before.throttle_reasons, after.throttle_reasons)
    ours = [None if one is None else frozenset(one) for one in looks]
    here, there = ("–" if one is None else ", ".join(sorted(one)) or "none" for one in (ours[0], smi.reasons))
    if smi.reasons is None or ours[0] is None or ours[1] is None:
        return Line("throttle reasons", here, there, "", ok=smi.reasons is None)
    known = frozenset(_REASONS.values())
    ok = (ours[0] & ours[1] & known) <= smi.reasons <= (ours[0] | ours[1])
    return Line("throttle reasons", here, there, "" if ok else "differ", ok=ok)


def _process_lines(before: GpuReading, after: GpuReading, smi: SmiGpu) -> list[Line]:
    """Return a line per process that is in both readings of sparktop, or in nvidia-smi's."""
    looks = [{one.pid: one for one in look.processes or ()} for look in (before, after)]
    lines = []
    for pid in sorted(smi.processes.keys() | (looks[0].keys() & looks[1].keys())):
        ours = [look[pid] for look in looks if pid in look]
        if pid not in smi.processes or not ours:
            told = ("yes", "–", "unknown there") if ours else ("–", "yes", "unknown here")
            lines.append(Line(f"process {pid}", *told, ok=False))
            continue
        memory, kind = smi.processes[pid]
        name = f"process {pid}, {ours[0].kind}"
        line = _near(name, (ours[0].memory_bytes, ours[-1].memory_bytes), memory, _PROCESS_RULE, MIB, "MiB")
        same = kind is None or ours[0].kind == kind
        lines.append(line if same else Line(name, line.ours, f"{line.theirs} {kind}", "kind", ok=False))
    return lines


def _same(name: str, ours: Value, theirs: Value) -> Line:
    ok = theirs is None or ours == theirs
    return Line(name, _shown(ours), _shown(theirs), "" if ok else "differ", ok=ok)


def _near(
    name: str,
    ours: tuple[float | None, float | None],
    theirs: float | None,
    rule: Rule,
    scale: int,
    unit: str,
) -> Line:
    """Compare one figure: nvidia-smi's may be outside sparktop's two readings by at most its tolerance."""
    here = _with_unit(" … ".join(dict.fromkeys(_shown(one, scale) for one in ours)), unit)
    there = _with_unit(_shown(theirs, scale), unit)
    known = [one for one in ours if one is not None]
    if theirs is None or not known:
        # A figure that nvidia-smi lacks is not a mismatch; one that only sparktop lacks is.
        return Line(name, here, there, "" if theirs is None else "unknown here", ok=theirs is None)
    off = max(0.0, min(known) - theirs, theirs - max(known))
    allowed = rule.absolute + rule.share * abs(theirs)
    return Line(name, here, there, f"{off / scale:g}" if off else "", ok=off <= allowed)


def _with_unit(text: str, unit: str) -> str:
    return text if text == "–" else f"{text} {unit}".rstrip()


def _shown(value: Value, scale: int = 1) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else f"{value / scale:g}"


def between(first: SmiGpu, second: SmiGpu, seconds: float) -> dict[str, float]:
    """Return nvidia-smi's throttled percent by reason between two pages that are `seconds` apart."""
    both = first.throttled_s.keys() & second.throttled_s.keys()
    return {
        word: 100 * (second.throttled_s[word] - first.throttled_s[word]) / seconds for word in sorted(both)
    }


def table(name: str, lines: Sequence[Line]) -> str:
    """Return one GPU's lines as a Markdown table."""
    rows = [("field", "sparktop", "nvidia-smi", "off by", ""), ("---",) * 5]
    rows += [(line.name, line.ours, line.theirs, line.deviation, "ok" if line.ok else "NO") for line in lines]
    return "\n".join([f"{name}:", "", *(f"| {' | '.join(row)} |" for row in rows), ""])


def ask_smi() -> tuple[float, str]:
    """Run nvidia-smi; return (monotonic time in the middle of its run, its XML page)."""
    began = time.monotonic()
    done = subprocess.run(["nvidia-smi", "-q", "-x"], capture_output=True, text=True, timeout=30, check=True)
    return (began + time.monotonic()) / 2, done.stdout


def look(
    reader: GpuReader, seconds: float, ask: Callable[[], tuple[float, str]] = ask_smi
) -> tuple[list[dict[str, GpuReading]], list[tuple[float, str]]]:
    """Read sparktop, then nvidia-smi; pause for `seconds`; read sparktop, nvidia-smi and sparktop again.

    Return (sparktop's three readings by UUID, nvidia-smi's two pages with their times).
    """
    total = read_meminfo(Path("/")).get("MemTotal")

    def ours() -> dict[str, GpuReading]:
        picture = reader.read(time.monotonic(), total)
        return {gpu.uuid or str(gpu.index): gpu for gpu in picture.gpus}

    looks, pages = [ours()], [ask()]
    time.sleep(seconds)
    looks.append(ours())
    pages.append(ask())
    looks.append(ours())
    return looks, pages


def main() -> int:
    """Print the comparison; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=2.0, help="between the two looks (default 2)")
    parser.add_argument("--xml", type=Path, help="keep nvidia-smi's last page here")
    arguments = parser.parse_args()
    reader = GpuReader()
    picture = reader.read(time.monotonic())
    if not picture.gpus:
        print(f"nothing to compare: {picture.note or 'no GPU'}", file=sys.stderr)
        return 3
    try:
        looks, pages = look(reader, arguments.seconds)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"nothing to compare with: nvidia-smi does not run here: {error}", file=sys.stderr)
        return 3
    finally:
        reader.close()
    if arguments.xml is not None:
        arguments.xml.write_text(pages[-1][1], encoding="utf-8")
    first, last = (parse(page) for _, page in pages)
    wrong = 0
    for uuid, smi in last.items():
        if uuid not in looks[1] or uuid not in looks[2]:
            print(f"{uuid}: nvidia-smi knows it, sparktop does not\n")
            wrong += 1
            continue
        shares = between(first[uuid], smi, pages[1][0] - pages[0][0]) if uuid in first else {}
        # The middle reading's shares cover the pause, as those between the pages do; the last one's do not.
        ours = looks[1][uuid].throttled_percent
        pairs = {word: (ours.get(word), percent) for word, percent in shares.items()}
        lines = compare(looks[1][uuid], looks[2][uuid], smi, pairs)
        wrong += sum(not line.ok for line in lines)
        print(table(f"{smi.fields['name']} ({uuid})", lines))
    print(f"fields that differ: {wrong}" if wrong else "all fields agree")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
