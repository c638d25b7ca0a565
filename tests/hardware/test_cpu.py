"""The reading of processors."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.hardware.cpu import CpuReader, _busy_percent
from tests.hardware.conftest import write


def test_a_first_reading_knows_cores_and_load_but_no_share(spark: Path) -> None:
    """The first reading has cores and load, but no shares."""
    reading = CpuReader(spark).read(0.0)
    assert (reading.cores, reading.load1) == (2, 7.25)
    assert (reading.percent, reading.core_percent) == (None, ())


def test_shares_are_of_the_time_between_readings(spark: Path) -> None:
    """Ticks other than idle and iowait are busy; guest time is not counted twice."""
    reader = CpuReader(spark)
    reader.read(0.0)
    write(
        spark,
        "proc/stat",
        "cpu  1090 0 510 8080 520 0 0 0 90 0\ncpu0 690 0 310 3000 100 0 0 0 90 0\n"
        "cpu1 400 0 200 5080 420 0 0 0 0 0\nintr 1\n",
    )
    reading = reader.read(1.0)
    assert reading.percent == 50.0
    assert reading.core_percent == (100.0, 0.0)


_ticks = st.tuples(st.integers(0, 2**63), st.integers(0, 2**63))


@settings(max_examples=60)
@given(_ticks, _ticks)
def test_a_share_is_a_share(before: tuple[int, int], after: tuple[int, int]) -> None:
    """Whatever the counts, a share is between 0 and 100."""
    share = _busy_percent(before, after)
    assert share is None or 0.0 <= share <= 100.0
