"""The reading of processors."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.hardware.cpu import CpuReader, _busy_percent
from tests.hardware.conftest import STAT, write


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


def test_ticks_that_went_back_give_no_share(spark: Path) -> None:
    """If ticks decrease, as after a resume or migration, there is no share."""
    reader = CpuReader(spark)
    reader.read(0.0)
    write(spark, "proc/stat", "cpu  1 0 1 1 1 0 0 0\ncpu0 1 0 1 1 1 0 0 0\n")
    reading = reader.read(1.0)
    assert (reading.percent, reading.core_percent) == (None, ())


def test_a_core_that_came_up_hides_the_cores_once(spark: Path) -> None:
    """After a core came online, the shares of cores are unknown once; the total is known."""
    reader = CpuReader(spark)
    reader.read(0.0)
    more = (
        STAT.replace("cpu  1000", "cpu  1100").replace("cpu0 600", "cpu0 700").replace("cpu1 400", "cpu1 410")
    )
    write(spark, "proc/stat", more.replace("intr", "cpu2 5 0 5 5 5 0 0 0\nintr"))
    reading = reader.read(1.0)
    assert (reading.percent, reading.core_percent, reading.cores) == (100.0, (), 3)


def test_without_proc_everything_is_unknown(bare: Path) -> None:
    """Without /proc everything is None, not 0."""
    reading = CpuReader(bare).read(0.0)
    assert (reading.percent, reading.cores, reading.load1) == (None, None, None)


def test_garbage_is_unknown(bare: Path) -> None:
    """Unexpected lines are ignored."""
    write(bare, "proc/stat", b"cpu  a b c d e f g h\ncpu0 1 2\n\xff\xfe")
    write(bare, "proc/loadavg", "much\n")
    reading = CpuReader(bare).read(0.0)
    assert (reading.percent, reading.cores, reading.load1) == (None, None, None)


_ticks = st.tuples(st.integers(0, 2**63), st.integers(0, 2**63))


@settings(max_examples=60)
@given(_ticks, _ticks)
def test_a_share_is_a_share(before: tuple[int, int], after: tuple[int, int]) -> None:
    """Whatever the counts, a share is between 0 and 100."""
    share = _busy_percent(before, after)
    assert share is None or 0.0 <= share <= 100.0
