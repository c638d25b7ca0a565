"""The reader of the text format, its histograms, and pages that follow each other."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Mapping

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparktop.engines import PageError, exposition
from sparktop.engines.exposition import Family, Labels, PageText, Reader
from sparktop.engines.lanes import HistogramReader
from sparktop.model.engine import Histogram
from sparktop.model.failure import FailureKind

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]

WANTED = ("vllm:a", "vllm:a_total", "vllm:b_bucket", "process_start_time_seconds")
NAMES = (*WANTED, "vllm:a_created", "vllm:ab", "xvllm:a", "vllm", "b_bucket")
NUMBERS = ("0", "1.0", "-2", "+4", "1e3", "1.5E-7", "6.5798e+10", "NaN", "+Inf", "-Inf", "1795255089.97")
PIECES = (
    "a",
    " ",
    "\t",
    "{",
    "}",
    ",",
    "=",
    "#",
    r"\"",
    r"\\",
    r"\n",
    r"\d",
    "vllm:a 7",
    "é",
    "\u202e",
    "🜁",
    "\r",
)

label_blocks = st.lists(
    st.tuples(
        st.sampled_from(("engine", "le", "model_name", "_x", "A9")),
        st.lists(st.sampled_from(PIECES), max_size=4).map("".join),
    ),
    max_size=3,
    unique_by=lambda pair: pair[0],
)
shapes = st.tuples(
    st.sampled_from(("", " ", "\t")),  # around braces and between labels
    st.sampled_from(("", ",")),  # after the last label
    st.sampled_from(("", " 1395066363000", "  -5")),  # a timestamp
)


def sample_line(name: str, labels: list[tuple[str, str]], value: str, shape: tuple[str, str, str]) -> str:
    """Return a well-formed sample, as unusual as the format allows."""
    gap, comma, time = shape
    pairs = [f'{gap}{label}{gap}={gap}"{raw}"{gap}' for label, raw in labels]
    block = gap + "{" + ",".join(pairs) + comma + "}" if labels else ""
    return f"{gap}{name}{block} {gap}{value}{time}"


lines = st.builds(sample_line, st.sampled_from(NAMES), label_blocks, st.sampled_from(NUMBERS), shapes)
comments = st.sampled_from(("", "# TYPE other gauge", "# HELP vllm:a not {a sample} 5", "#", "# vllm:a 9"))
pages = st.builds(
    lambda parts, newline, end: (newline.join(parts) + end).encode(),
    st.lists(lines | comments, max_size=5),
    st.sampled_from(("\n", "\r\n")),
    st.sampled_from(("", "\n")),
)


def flat(families: Mapping[str, dict[tuple[tuple[str, str], ...], float]]) -> Samples:
    return {(name, labels): value for name, family in families.items() for labels, value in family.items()}


def same(left: Samples, right: Samples) -> bool:
    return left.keys() == right.keys() and all(
        value == right[key] or (math.isnan(value) and math.isnan(right[key])) for key, value in left.items()
    )


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=pages)
def test_every_page_is_read_as_prometheus_client_reads_it(
    oracle: Callable[[bytes], Samples], body: bytes
) -> None:
    """On well-formed pages both readers find the same samples, labels and values."""
    expected = {key: value for key, value in oracle(body).items() if key[0] in WANTED}
    assert same(flat(Reader(WANTED).read(body)), expected)


@pytest.mark.parametrize(
    "line",
    [
        b'vllm:a{x="1} 5',
        b'vllm:a{x="1",,y="2"} 5',
        b'vllm:a{x="1",x="2"} 5',
        b"vllm:a 5 and more",
        b"vllm:a{{}} 5",
        b'vllm:a{x="1"} {y="2"} 5',
    ],
)
def test_a_malformed_line_leaves_its_name_without_samples(line: bytes) -> None:
    """A name with an unreadable line has no samples: a sum without that line would be wrong."""
    assert Reader(WANTED).read(b"vllm:a 1\n" + line + b"\nvllm:a_total 2\n") == {
        "vllm:a": {},
        "vllm:a_total": {(): 2.0},
    }


def test_a_page_of_endless_samples_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page with more samples than the limit is refused."""
    monkeypatch.setattr(exposition, "MAX_SAMPLES", 1000)
    lines = [b'vllm:a{x="%d"} 1\n' % number for number in range(1001)]
    assert len(Reader(WANTED).read(b"".join(lines[:1000]))["vllm:a"]) == 1000
    with pytest.raises(PageError, match="1,000 samples") as error:
        Reader(WANTED).read(b"".join(lines))
    assert error.value.kind is FailureKind.TOO_LARGE


@pytest.mark.parametrize("junk", [b"{", b"\\", b'a="b",', b"} 1 "])
def test_long_malformed_lines_are_walked_once(junk: bytes) -> None:
    """A malformed line of 400 kB is read in linear time; backtracking would take hours."""
    body = b"vllm:a{" + junk * (400_000 // len(junk)) + b"\nvllm:a_total 2\n"
    assert Reader(WANTED).read(body)["vllm:a_total"] == {(): 2.0}


EXEMPLARS = b"""\
# TYPE vllm:b histogram
vllm:b_bucket{le="0.1",model_name="m # {x"} 5 # {trace_id="abc",span="} 7"} 0.05 1700.1
vllm:b_bucket{le="+Inf",model_name="m # {x"} 7.0 # {} 0.4
vllm:a_total{model_name="m"} 12 1700 # {trace_id="a{b}c"} 1.0
vllm:a 3 # {trace_id="z"} 1
"""


def test_openmetrics_exemplars_are_passed_over() -> None:
    """Exemplars change neither labels nor values, on a bucket, a counter and a gauge."""
    families = Reader(WANTED).read(EXEMPLARS)
    model = ("model_name", "m # {x")
    assert families == {
        "vllm:b_bucket": {(("le", "0.1"), model): 5.0, (("le", "+Inf"), model): 7.0},
        "vllm:a_total": {(("model_name", "m"),): 12.0},
        "vllm:a": {(): 3.0},
    }


# Histograms from buckets are right or None.


def read_histogram(buckets: Family, sums: Family, counts: Family) -> Histogram | None:
    """Return the histogram of a page with these samples only."""
    values = [*buckets.values(), *sums.values(), *counts.values()]
    index = itertools.count()
    places = [{labels: next(index) for labels in family} for family in (buckets, sums, counts)]
    return HistogramReader(*places).read(values)


def buckets(*pairs: tuple[str, float], **labels: str) -> Family:
    others = tuple(labels.items())
    found: Family = {}
    for bound, count in pairs:
        key: Labels = tuple(sorted((*others, ("le", bound))))
        found[key] = count
    return found


@pytest.mark.parametrize(
    ("family", "sums", "counts"),
    [
        pytest.param({}, {}, {(): 1.0}, id="no bucket and no sum"),
        pytest.param(buckets(("1", 3), ("5", 2), ("+Inf", 4)), {(): 1.0}, {}, id="counts fall"),
        pytest.param(buckets(("1", 1), ("1.0", 1), ("+Inf", 4)), {(): 1.0}, {}, id="one bound twice"),
        pytest.param(buckets(("1", 5)), {(): 1.0}, {(): 4.0}, id="count below a bucket"),
        pytest.param(buckets(("1", 1), ("+Inf", 4)), {}, {}, id="no sum"),
        pytest.param(
            buckets(("1", 1), ("+Inf", 4), model="a") | buckets(("2", 1), ("+Inf", 4), model="b"),
            {(("model", "a"),): 1.0, (("model", "b"),): 1.0},
            {},
            id="different bounds",
        ),
    ],
)
def test_a_doubtful_histogram_is_none(family: Family, sums: Family, counts: Family) -> None:
    """If bounds, sum or count are missing or contradict each other, there is no histogram."""
    assert read_histogram(family, sums, counts) is None


ODD = (
    b"1",
    b"NaN",
    b"-1",
    b"1e308",
    b"",
    b"x",
    b"1_0",
    b"5\r",
    b"5\t1",
    b"5 1",
    b"{",
    b'7 # {t="x"} 1',
    b"\xd9\xa1",
)


@pytest.mark.parametrize("seed", range(20))
def test_a_page_is_read_as_by_a_reader_that_has_seen_no_other(seed: int) -> None:
    """Values, lines and labels that change, come and go leave nothing of one page in the next."""
    dice = random.Random(seed)  # noqa: S311 - made values
    body = b"".join(b'up{at="%d"} 1\nother %d\nup_total{a="b c"} 2\n\n' % (row, row) for row in range(9))
    reader = Reader(("up", "up_total"))
    for _ in range(40):
        lines = body.split(b"\n")
        for _ in range(dice.choice((0, 1, 1, 3))):
            row = dice.randrange(len(lines))
            head, space, _ = lines[row].rpartition(b" ")
            changed = head + space + dice.choice(ODD)
            lines[row] = dice.choice((changed, b"", b'up{at="x"}7', lines[0]))
        page = b"\n".join(lines) + b"#" * dice.choice((0, 0, 0, 1 << 20))
        assert repr(dict(reader.read(page))) == repr(dict(Reader(("up", "up_total")).read(page)))


def test_only_the_bytes_of_pages_that_are_kept_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages that others displaced do not fill the room for pages, after which all are forgotten."""
    pages = [b"up 1\nkind_%d 1\nmiddle 1\n" % number for number in range(9)]
    monkeypatch.setattr(exposition, "_PAGES", exposition._PageCaches())
    monkeypatch.setattr(exposition, "_MOST_CACHED_BYTES", 5 * len(pages[0]))
    caches = [PageText(page).cache for page in pages]
    assert all(PageText(page).cache is cache for page, cache in zip(pages[-4:], caches[-4:], strict=True))


INF = math.inf


def test_a_missing_inf_bucket_is_filled_from_the_count() -> None:
    """A missing `+Inf` bucket is taken from the count."""
    found = read_histogram(buckets(("1", 2), ("5", 6)), {(): 3.0}, {(): 8.0})
    assert found == Histogram(bounds=(1.0, 5.0, INF), cumulative=(2, 6, 8), sum=3.0)
