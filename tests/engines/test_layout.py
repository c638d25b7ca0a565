"""Pages that are followed from poll to poll give the same samples as pages that are read in full."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from sparktop.engines import ENGINES, PageError, read_page
from sparktop.engines.exposition import PageMemory
from sparktop.model.engine import EngineSample

DATA = Path(__file__).parent.parent / "data"
PAGES = sorted(path.relative_to(DATA).as_posix() for path in DATA.rglob("*.prom"))
VLLM = "vllm-0.32/t010.prom"
Change = Callable[[random.Random, bytes], bytes]


def reading(body: bytes, memory: PageMemory | None = None) -> EngineSample | str:
    """Return the sample of a page without its text, or the error message."""
    try:
        return replace(read_page(body, at=1.0, memory=memory), page=b"")
    except PageError as error:
        return error.message


def numbers(rng: random.Random, body: bytes, share: float = 0.3) -> bytes:
    """Return the page with other numbers in some of its lines."""

    def other(match: re.Match[bytes]) -> bytes:
        value = rng.choice((b"0", b"7", b"1.5e+03", b"%.3f" % rng.uniform(0, 99), b"-1", b"1e400", b"12-3"))
        return match[1] + value if rng.random() < share else match[0]

    return re.sub(rb"(?m)^([^#\n][^\n]* )([-+.0-9eE]+)$", other, body)


def in_a_line(change: Callable[[random.Random, bytes], bytes]) -> Change:
    """Return a change that applies `change` to one random line with a sample."""

    def changed(rng: random.Random, body: bytes) -> bytes:
        lines = body.split(b"\n")
        row = rng.choice([row for row, line in enumerate(lines) if line and not line.startswith(b"#")])
        lines[row] = change(rng, lines[row])
        return b"\n".join(lines)

    return changed


def word(text: bytes) -> Change:
    """Return a change of a line's value to `text`."""
    return in_a_line(lambda _, line: line.rpartition(b" ")[0] + b" " + text)


CHANGES: dict[str, Change] = {
    "numbers": numbers,
    "no number": word(b"NaN"),
    "infinite": word(b"+Inf"),
    "underscore": word(b"1_0"),
    "no value": word(b""),
    "time stamp": in_a_line(lambda _, line: line + b" 1700000000"),
    "carriage return": in_a_line(lambda _, line: line + b"\r"),
    "exemplar": in_a_line(lambda _, line: line + b' # {trace_id="x"} 0.4'),
    "gone": in_a_line(lambda _, _line: b""),
    "twice": in_a_line(lambda _, line: line + b"\n" + line),
    "other label": in_a_line(lambda _, line: line.replace(b'="', b'="x', 1)),
    "other name": in_a_line(lambda rng, line: rng.choice((b"x", b" ")) + line),
    "value alone": in_a_line(lambda _, line: line.rpartition(b" ")[2]),
    "swapped": in_a_line(lambda _, _line: b"vllm:num_requests_running 3"),
    "cut": lambda rng, body: body[: rng.randrange(len(body))],
    "nothing": lambda _, body: body,
}


def following(rng: random.Random, body: bytes) -> Iterator[bytes]:
    """Yield a page and pages that may follow it, each with another change."""
    yield body
    for change in rng.sample(list(CHANGES.values()), len(CHANGES)):
        yield numbers(rng, body)
        yield change(rng, body)
        yield body


@pytest.mark.parametrize("path", PAGES)
def test_a_followed_page_has_the_samples_of_a_page_read_whole(path: str) -> None:
    """After any change of values, lines, labels, names or marks, a followed page gives the right sample."""
    memory, rng = PageMemory(), random.Random(path)  # noqa: S311 - not a secret
    for body in following(rng, (DATA / path).read_bytes()):
        assert reading(body, memory) == reading(body)


@pytest.mark.parametrize("change", CHANGES)
def test_only_numbers_are_followed(change: str) -> None:
    """Only changed numbers are followed; a page with any other change in a needed line is read in full."""
    lines = (DATA / VLLM).read_bytes().split(b"\n")
    body = b"\n".join(line for line in lines if line.startswith(b"vllm:generation_tokens_total"))
    memory, rng = PageMemory(), random.Random(change)  # noqa: S311 - not a secret
    reading(body, memory)
    other = numbers(rng, body, 1.0) if change == "numbers" else CHANGES[change](rng, body)
    followed = {"nothing", "numbers", "no number", "infinite"}
    assert memory.follow(other) == (change in followed and b"12-3" not in other)


def test_the_values_of_lines_that_nothing_reads_do_not_matter() -> None:
    """Values of unused lines may change freely, but no needed line may replace them."""
    body, memory = (DATA / VLLM).read_bytes(), PageMemory()
    line = next(line for line in body.split(b"\n") if line.startswith(b"python_gc_objects"))
    reading(body, memory)
    assert memory.follow(body.replace(line, line.rpartition(b" ")[0] + b" 1_0"))
    for other in (b"", b" vllm:num_requests_running 3", b"#" + line, line.partition(b" ")[0]):
        reading(body, memory)
        assert not memory.follow(body.replace(line, other))
    indented = body.replace(line, b" # a comment")
    reading(indented, memory)
    assert not memory.follow(body.replace(line, b" vllm:num_requests_running 3"))


def test_a_page_of_another_engine_is_recognised() -> None:
    """Another engine's page at the same address is recognised."""
    memory = PageMemory()
    for path in (VLLM, "tgi/metrics.prom", VLLM, "families/router-stack.prom", "sglang/dp-ranks.prom"):
        body = (DATA / path).read_bytes()
        assert reading(body, memory) == reading(body)


def test_replicas_share_their_layout_but_not_their_values() -> None:
    """Two servers whose pages have the same text share the layout, but not the values."""
    body = (DATA / VLLM).read_bytes()
    first, second = PageMemory(), PageMemory()
    other = re.sub(rb"(num_requests_running\S+) \S+", rb"\1 5.0", body)
    before = reading(body, first)
    assert reading(other, second) != before
    assert reading(body, first) == before
    assert first._layout is second._layout


def test_values_that_stay_keep_their_objects() -> None:
    """Unchanged histograms stay the same object, so that comparing them is cheap."""
    memory, body = PageMemory(), (DATA / VLLM).read_bytes()
    read = ENGINES["vllm"].read
    assert read is not None
    first = read(body, at=1.0, memory=memory)
    moved = re.sub(rb"(num_requests_running\S+) \S+", rb"\1 5.0", body)
    assert memory.follow(moved)
    second = read(moved, at=2.0, memory=memory)
    assert second.lanes[0].running == 5.0
    assert second.lanes[0].ttft is first.lanes[0].ttft is not None
