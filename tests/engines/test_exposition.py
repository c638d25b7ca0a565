"""The reader of the text format, compared with prometheus_client on pages with many special cases."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparktop.engines import exposition
from sparktop.engines.exposition import PageError, PageMemory, Reader, number, parse_labels
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


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=pages)
def test_every_page_is_read_as_prometheus_client_reads_it(
    oracle: Callable[[bytes], Samples], body: bytes
) -> None:
    """On well-formed pages both readers find the same samples, labels and values."""
    expected = {key: value for key, value in oracle(body).items() if key[0] in WANTED}
    assert same(flat(Reader(WANTED).read(body)), expected)


@pytest.mark.parametrize("name", ["t002", "t009", "t018"])
def test_captured_pages_lose_no_sample(
    page: Callable[[str], bytes], oracle: Callable[[bytes], Samples], name: str
) -> None:
    """If all names are requested, the reader finds every sample of a captured page."""
    body = page(f"vllm-0.32/{name}.prom")
    expected = oracle(body)
    assert same(flat(Reader({key[0] for key in expected}).read(body)), expected)


def test_the_last_of_repeated_samples_counts() -> None:
    """Of a repeated sample, also with its labels in another order, the last value counts."""
    body = b'vllm:a{x="1",y="2"} 5\nvllm:a{y="2",x="1"} 7\n'
    assert Reader(WANTED).read(body) == {"vllm:a": {(("x", "1"), ("y", "2")): 7.0}}


def test_a_name_is_not_found_inside_another() -> None:
    """Longer and shorter names, comments and label values do not match the requested name."""
    body = b'vllm:ab 1\nvllm:a_created 2\n#vllm:a 3\nvllm:b{x="\\nvllm:a 4"} 4\nxvllm:a 5\n'
    assert Reader(["vllm:a"]).read(body) == {}


def test_names_that_begin_alike_are_told_apart() -> None:
    """A name and a longer one that begins with it are both found."""
    body = b"vllm:a 1\nvllm:a_total 2\nvllm:a_to 3\n"
    assert Reader(["vllm:a", "vllm:a_total"]).read(body) == {"vllm:a": {(): 1.0}, "vllm:a_total": {(): 2.0}}


@pytest.mark.parametrize(
    "line",
    [
        b'vllm:a{x="1} 5',
        b"vllm:a{x=1} 5",
        b'vllm:a{x="1",,y="2"} 5',
        b'vllm:a{x="1",x="2"} 5',
        b'vllm:a{x="1"',
        b'vllm:a{="1"} 5',
        b'vllm:a{x="1"}',
        b"vllm:a",
        b"vllm:a 5 and more",
        b"vllm:a 5 6 7",
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


@pytest.mark.parametrize("text", ["", "five", "1_000", "0x10", "1,5", "--1", "1e", "\u0661"])
def test_what_is_no_number_is_nan(text: str) -> None:
    """Words, digit groups, hexadecimal and digits of other scripts are not numbers and give NaN."""
    assert math.isnan(number(text))
    assert math.isnan(Reader(WANTED).read(f"vllm:a {text or '-'}".encode())["vllm:a"][()])


def test_broken_utf8_in_labels_keeps_two_names_apart() -> None:
    """Invalid UTF-8 in labels does not stop the reader, and different bytes stay different."""
    (family,) = Reader(WANTED).read(b'vllm:a{x="\xff"} 1\nvllm:a{x="\xfe"} 2\n').values()
    assert sorted(family.values()) == [1.0, 2.0]


@given(
    body=pages, changes=st.lists(st.tuples(st.integers(0, 9), st.sampled_from((*NUMBERS, ""))), max_size=3)
)
@settings(deadline=None)
def test_a_page_that_follows_another_is_read_as_if_it_were_alone(
    body: bytes, changes: list[tuple[int, str]]
) -> None:
    """With the memory of the page before, a changed page gives the same samples as without."""
    known, memory = Reader(WANTED), PageMemory()
    known.read(body, memory)
    page_lines = body.split(b"\n")
    for row, value in changes:
        head = page_lines[row % len(page_lines)].rpartition(b" ")[0]
        page_lines[row % len(page_lines)] = head + b" " + value.encode()
        other = b"\n".join(page_lines)
        memory.follow(other)
        # As text, because NaN is not equal to itself.
        assert repr(flat(known.read(other, memory))) == repr(flat(known.read(other)))


def test_a_page_of_endless_samples_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page with more samples than the limit is refused."""
    monkeypatch.setattr(exposition, "MAX_SAMPLES", 1000)
    lines = [b'vllm:a{x="%d"} 1\n' % number for number in range(1001)]
    assert len(Reader(WANTED).read(b"".join(lines[:1000]))["vllm:a"]) == 1000
    with pytest.raises(PageError, match="1,000 samples") as error:
        Reader(WANTED).read(b"".join(lines))
    assert error.value.kind is FailureKind.TOO_LARGE


@pytest.mark.parametrize("junk", [b"{", b"}", b'"', b"\\", b'{a="', b'"}', b" ", b",", b'a="b",', b"} 1 "])
def test_long_malformed_lines_are_walked_once(junk: bytes) -> None:
    """A malformed line of 400 kB is read in linear time; backtracking would take hours."""
    body = b"vllm:a{" + junk * (400_000 // len(junk)) + b"\nvllm:a_total 2\n"
    assert Reader(WANTED).read(body)["vllm:a_total"] == {(): 2.0}


def test_huge_label_blocks_are_read_and_not_remembered() -> None:
    """A label of a megabyte is read, but label blocks beyond the limit are not cached."""
    body = b'vllm:a{x="' + b"y" * 1_000_000 + b'"} 3\n'
    families = Reader(WANTED).read(body)
    (labels,) = families["vllm:a"]
    assert len(labels[0][1]) == 1_000_000


def test_endless_labels_are_malformed() -> None:
    """A sample with hundreds of labels is malformed."""
    pairs = [b'a%d="1"' % number for number in range(257)]
    assert parse_labels(b"{" + b",".join(pairs) + b"}") is None
    assert len(parse_labels(b"{" + b",".join(pairs[:256]) + b"}") or ()) == 256


def test_labels_come_sorted_whatever_their_order() -> None:
    """Labels are sorted, so that two orders of the same labels are equal."""
    orders = [b'{b="2",a="1",c="3"}', b'{c="3",b="2",a="1"}', b'{ a = "1" , c="3",b="2",}']
    assert all(parse_labels(left) == parse_labels(right) for left, right in pairwise(orders))


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


@pytest.mark.parametrize("junk", [b'vllm:a{x="# {', b'vllm:a{x="1"} 5 # {', b"vllm:a 5 # { " + b"{" * 50_000])
def test_a_broken_exemplar_costs_its_sample_at_most(junk: bytes) -> None:
    """A broken exemplar affects at most its own sample: its value is right or missing."""
    families = Reader(WANTED).read(b"vllm:a_total 1\n" + junk + b"\nvllm:b_bucket 2")
    assert families["vllm:a_total"] == {(): 1.0}
    assert families["vllm:b_bucket"] == {(): 2.0}
    assert set(families.get("vllm:a", {}).values()) <= {5.0}
