"""A report of a sweep as a web page: complete, self-contained, safe against hostile names.

What a report never shows, and what it shows on request.

A sweep's result as a post for a forum.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from sparktop.cli import main
from sparktop.errors import UsageError
from sparktop.model.failure import FailureKind, RequestFailure
from sparktop.model.load import (
    EndReason,
    Level,
    LoadKind,
    LoadMode,
    RequestEnded,
    RequestStarted,
    concurrency_point,
)
from sparktop.sweep.compare.compare import compare
from sparktop.sweep.compare.imports.tables import read
from sparktop.sweep.compare.series import load_reference, published_series, series_of
from sparktop.sweep.formats.post import MOST_LINES
from sparktop.sweep.formats.report import comparison_json, comparison_markdown
from sparktop.sweep.formats.written import SweepPrivacy, sweep_report
from sparktop.sweep.result.level import level_result
from sparktop.sweep.result.measure import collect
from sparktop.sweep.result.results import (
    ComparisonRow,
    LevelResult,
    LimitSide,
    Rate,
    SweepResult,
    TargetResult,
)
from sparktop.sweep.result.store import save
from sparktop.sweep.terms.definitions import METRICS
from sparktop.sweep.view.curves import fits
from sparktop.sweep.view.result import result_view
from tests.known import known
from tests.report.html_page import Page
from tests.sweep.formats.full_results import full_sweep
from tests.sweep.made_results import (
    doubts,
    latency,
    made_level,
    made_sweep,
    rate,
    simulated_level,
    with_target,
)

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</title></style><style>*{display:none}",
    "a|b `c` **d**",
    "&#124;<!--",
)


def page_of(result: SweepResult) -> tuple[str, Page]:
    text = sweep_report(result, "html")
    return text, Page(text)


def test_the_page_holds_everything_that_the_screen_knows() -> None:
    """Answer, plots, tables, machines, split, marks with codes, every level, command and definitions."""
    text, page = page_of(full_sweep())
    assert "<strong><code>proxy</code>: first token p90 ≤ 2 s holds up to c = 4" in text
    headings = re.findall(r"<(?:h2|summary)[^>]*>(.*?)</(?:h2|summary)>", text)
    assert [re.sub(r"<[^>]*>", "", one) for one in headings] == [
        "Decode (tok/s, higher is better)",
        "Prefill (tok/s, higher is better)",
        "TTFT (ms, lower is better)",
        "proxy",
        "Throughput (tok/s): proxy",
        "Latency (ms): proxy",
        "Levels: proxy",
        "Who answered: proxy",
        "alpha",
        "Throughput (tok/s): alpha",
        "Latency (ms): alpha",
        "Levels: alpha",
        "Behind the figures",
        "Machines",
        "Independent engines at best",
        "Notes",
        "Remarks on levels",
        "Everything about proxy",
        "Everything about alpha",
        "The same again",
        "What the figures mean",
    ]
    assert text.count('class="plot"') == 3
    for cell in ("71 °C", "48 W", "9.0 GiB", "20 %"):
        assert cell in page.cells
    assert "alpha had 2 waiting" in text
    assert "proxy=http://HOST:PORT alpha=http://HOST:PORT --pp 100 --tg 4 --mode burst --runs 3" in text
    assert any("alpha:omega = 0:2, 1:1, 2:0" in cell for cell in page.cells)


def test_the_page_needs_nothing_else() -> None:
    """No script, no link, no picture from elsewhere, and a policy that would not load them."""
    text, page = page_of(full_sweep())
    page.assert_standing_alone()
    for usual in ("http://www.w3.org/2000/svg", "http-equiv", "http://HOST:PORT"):
        text = text.replace(usual, "")
    assert "http" not in text


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_shown_and_do_nothing(name: str) -> None:
    """As a target, a server, a model and in a message: no tag, no attribute and no comment comes of them."""
    _, usual = page_of(full_sweep())
    result = full_sweep(router=f"r{name}", alone=name, model=name)
    text, page = page_of(result.model_copy(update={"status": "failed", "stop_reason": name}))
    page.assert_shaped_as(usual)
    assert any(name in cell for cell in page.cells)
    assert text.count("<title>sparktop sweep, ") == 1


@pytest.mark.parametrize("form", ["md", "html", "csv", "svg", "json"])
def test_no_format_holds_a_control_character_of_a_name(form: str) -> None:
    """Escape sequences, marks that turn the direction of text, and zero-width characters are gone."""
    name = "a\x1b[31m\u202eb\u200b\x07|c"
    text = sweep_report(full_sweep(router=f"r{name}", alone=name, model=name), form)
    assert not {"\x1b", "\x07", "\u202e", "\u200b"} & set(text)
    assert "a [31mb" in text


def test_a_published_table_stands_beside_the_sweep() -> None:
    """In the plots as a dotted curve, in tables with the difference; in Markdown the tables alone."""
    reference = load_reference("ref:spark-topologies-2026-03")
    level = full_sweep().targets[1].levels[0]
    own = level.model_copy(update={"pp": 1024, "tg": 128})
    result = made_sweep(("mine", [own]))
    text = sweep_report(result, "html", beside=published_series(reference))
    assert 'class="curve reference"' in text
    assert "Decode: theirs and ours" in text
    plain = sweep_report(result, "md", beside=published_series(reference))
    assert "## Beside `" in plain
    assert re.search(r"^\| Source +\| Concurrency \| Theirs \(tok/s\) \| +`mine` \|$", plain, re.MULTILINE)
    assert re.search(r"^\| `solo` +\| +c1 \| +57\.5 \| 4\.0 \(−93\.1 %\) \|$", plain, re.MULTILINE)
    assert "<svg" not in plain
    unlike = made_sweep(("mine", [level.model_copy(update={"pp": 512, "tg": 64})]))
    for form in ("md", "post"):
        text = sweep_report(unlike, form, beside=published_series(reference)[:1])
        assert re.search("`solo`[^.]* left out: other load, 1,024 tokens in, 128 out", text)
        assert "57.5" not in text
    unstated = [
        replace(
            a_series, levels=tuple(replace(row, load=Level("", row.load.point)) for row in a_series.levels)
        )
        for a_series in published_series(reference)[:1]
    ]
    for form in ("md", "post"):
        text = sweep_report(result, form, beside=unstated)
        assert "57.5" in text
        assert re.search("`solo`[^.]*: lengths not stated: differences may be those of the load", text)
    page = sweep_report(unlike, "html", beside=published_series(reference)[:1])
    assert 'class="curve reference"' not in page
    assert [fits(reference, result_view(shown)) for shown in (result, unlike)] == [True, False]


FORMATS = ("md", "html", "csv", "json", "svg")
CANARY = "canary7"
ALL = [
    (form, mode)
    for form in FORMATS
    for mode in (SweepPrivacy(), SweepPrivacy(addresses=True), SweepPrivacy(anonymous=True))
]


def secret_sweep() -> SweepResult:
    """Return a sweep whose messages and addresses hold secrets in every usual form."""
    messages = (
        f"Incorrect API key provided: sk-{CANARY}abcdef",
        f"Authorization: Bearer {CANARY}",
        f"x-litellm-api-key: {CANARY}",
        f'{{"api_key": "{CANARY}"}}',
        f"GET http://user:{CANARY}@10.1.2.3:4000/v1?token={CANARY}#{CANARY} failed",
        f"password={CANARY}",
        f"hf_{CANARY}abcdef is no token of this organisation",
    )
    result = full_sweep(url=f"https://user:{CANARY}@10.1.2.3:4000/v1?key={CANARY}")
    refused = tuple(
        LevelResult(concurrency=1, pp=1000 + number, error=words) for number, words in enumerate(messages)
    )
    odd = TargetResult(
        name=f"http://me:{CANARY}@host", url="http://10.1.2.5", error=messages[4], levels=refused
    )
    return result.with_target(odd).model_copy(update={"status": "failed", "stop_reason": messages[0]})


@pytest.mark.parametrize(("form", "privacy"), ALL)
def test_no_format_holds_a_secret(form: str, privacy: SweepPrivacy) -> None:
    """Keys, tokens, passwords in addresses: in no format, whatever else is shown."""
    assert CANARY not in sweep_report(
        secret_sweep(), form, SweepPrivacy(privacy.addresses, privacy.anonymous)
    )


@pytest.mark.parametrize("form", FORMATS)
def test_addresses_are_shown_only_on_request(form: str) -> None:
    """Names stand for the servers; a request shows the address without user and query."""
    result = secret_sweep()
    odd = TargetResult(name="odd", url="http://thor-9:8000", error="thor-9 refused")
    shown = sweep_report(result.with_target(odd), form)
    assert "10.1.2" not in shown
    assert "thor-9" not in shown
    if form in {"md", "html", "json"}:
        assert "https://10.1.2.3:4000/v1" in sweep_report(result, form, SweepPrivacy(addresses=True))


def test_a_container_image_names_its_registry() -> None:
    """It says how to get the same server; an anonymous report names no host at all."""
    for image in ("containers.example.com/x/vllm:26.01", "containers.example.com/x/vllm@sha256:0a1b"):
        assert SweepPrivacy().text(f"image {image}") == f"image {image}"
        assert "example" not in SweepPrivacy(anonymous=True).text(f"image {image}")
    assert "example" not in SweepPrivacy().text("spark.example.com: no answer from spark.example.com/v1")


@pytest.mark.parametrize("form", [*FORMATS, "post"])
def test_an_anonymous_report_has_aliases_for_names(form: str) -> None:
    """The same alias everywhere; no name, no path, no command line is left."""
    result = full_sweep(router="hamlet", alone="ophelia", model="/home/yorick/models/Model-7B")
    words = "ophelia at 10.1.2.4 reads /home/yorick/x.toml on node-x"
    targets = (result.targets[0].model_copy(update={"error": words}), *result.targets[1:])
    text = sweep_report(result.model_copy(update={"targets": targets}), form, SweepPrivacy(anonymous=True))
    for word in ("hamlet", "ophelia", "node-x", "yorick", "10.1.2", "omega"):
        assert word not in text, word
    assert not re.search(r"sparktop sweep (hamlet|router)|--format", text)
    assert "router-1" in text
    assert "backend-1" in text
    if form in {"md", "html", "json"}:
        assert "backend-1 at (address) reads (path) on node-1" in text
        assert "Model-7B" in text


LEVELS = (1, 2, 4, 8, 16, 32, 64)
FIGURES = ("decode_tps", "prefill_tps", "ttft_ms")
TOPOLOGIES = "ref:spark-topologies-2026-03"


def post_of(result: SweepResult, **options: object) -> str:
    """Return a result as a post."""
    return sweep_report(result, "post", **options)  # type: ignore[arg-type]  # options of the function


def paragraphs(post: str) -> list[str]:
    """Return the blocks of a post that are prose."""
    _, _, rest = post.strip().partition("\n")
    return [one for one in rest.split("\n\n") if not one.startswith(("|", "```")) and one.strip()]


def table(post: str) -> list[list[str]]:
    """Return the cells of the rows of a post's tables of figures."""
    tables = [one for one in post.split("\n\n") if one.startswith("|") and not one.startswith("| Use")]
    blocks = [one.splitlines()[2:] for one in tables]
    return [[cell.strip() for cell in line.strip("|").split("|")] for block in blocks for line in block]


def picks(post: str) -> list[list[str]]:
    """Return the cells of the rows of a post's table of what to pick, its first."""
    block = post.partition("\n")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()]
    assert rows[0][:2] == ["Use", "Pick"]
    return rows[2:]


def shell(post: str) -> list[str]:
    """Return the lines of a post's commands."""
    return post.partition("```sh\n")[2].partition("\n```")[0].splitlines()


def routed_sweep(split: Sequence[Mapping[str, int]] = ()) -> SweepResult:
    """Return a sweep of a router over `alpha` and `omega`, and of `alpha` alone, four times as fast."""
    served = {"alpha": 6, "omega": 2}
    routed = tuple(made_level(at, step=0.3, runs_split=tuple(split), served_by=served) for at in (2, 4))
    alone = tuple(made_level(at, step=0.1) for at in (1, 2, 4))
    result = with_target(full_sweep(), levels=routed, engine="litellm", strategy="least-busy")
    return with_target(result, 1, levels=alone).model_copy(update={"slo": None, "guard": None})


@pytest.mark.parametrize("count", [1, 3, 6])
def test_a_post_has_each_level_in_forty_lines(count: int) -> None:
    """Seven levels of any number of targets: decode and TTFT have a row for each level, prefill for some."""
    levels = [simulated_level(one, 100, 4, 3) for one in LEVELS]
    post = post_of(made_sweep(*((f"target-{number}", levels) for number in range(count))))
    assert len(post.splitlines()) <= MOST_LINES
    assert all("\n" not in one or one.startswith("- ") for one in paragraphs(post))
    places = [f"c{one}" for one in LEVELS]
    shown = [row[0] for row in table(post)]
    if count == 1:
        assert shown == places
        return
    prefill = shown[len(places) : -len(places)]
    assert shown == places + prefill + places
    assert (prefill[0], prefill[-1]) == ("c1", "c64")
    lost = ", ".join(place for place in places if place not in prefill)
    assert (f"Left out here: prefill {lost}." in post) is bool(lost)


def test_a_post_of_many_levels_loses_some_in_the_middle() -> None:
    """The first and the last level stay, and a line has which are left out; subjects share an item first."""
    levels = [simulated_level(one, 100, 4, 3) for one in (1, 2, 3, 4, 5, 8, 10, 16, 32, 64, 128, 192, 256)]
    post = post_of(made_sweep(("fast", levels), ("slow", levels)))
    assert len(post.splitlines()) <= MOST_LINES
    rows = table(post)
    assert (rows[0][0], rows[-1][0]) == ("c1", "c256")
    assert "Left out here: decode and TTFT c3, c10, c128; prefill 10 levels." in post
    assert " **Warnings" in post
    assert "; to compare: save this post as post.md; this shows your newest sweep beside it: " in post


def test_a_post_is_read_back_as_the_figures_that_it_shows() -> None:
    """Who pastes the post's tables compares with each target's decode, prefill and TTFT."""
    levels = [simulated_level(one, 100, 4, 3) for one in LEVELS]
    result = made_sweep(("fast", levels), ("slow", levels))
    post = post_of(result, beside=published_series(load_reference(TOPOLOGIES)))
    assert "| Concurrency (prefill, waiting included, tok/s) |" in post
    assert re.search(rf"\(std \d+, p95 {known(known(levels[-1].ttft_ms).p95):,.0f}\)", post)
    found = read(post, "post", "post.md")
    assert [one.name for one in found] == ["fast", "slow"]
    for own, pasted in zip(series_of(result), found, strict=True):
        for mine, theirs in zip(own.levels, pasted.levels, strict=True):
            shown = {name: METRICS[name].text(figure.mean) for name, figure in theirs.figures.items()}
            ours = {name: METRICS[name].text(mine.figures[name].mean) for name in FIGURES}
            assert shown.items() <= ours.items()
            assert shown.keys() >= {"decode_tps", "ttft_ms"}


def test_published_values_are_a_column() -> None:
    """Of a target of the same name, or a lone one, with what it has more; llama-benchy's windows are ours."""
    levels = [simulated_level(one, 1024, 128, 3) for one in LEVELS]
    published = published_series(load_reference(TOPOLOGIES))
    result = made_sweep(("solo", levels), ("mine", levels))
    post = post_of(result, beside=published)
    assert re.sub(" +", " ", post).count("| `solo`, published |") == 3
    assert re.fullmatch(r"78\.4 \([+−]\d+ %\)", table(post)[1][-1])
    published_item = next(line for line in post.splitlines() if "**Published:**" in line)
    assert "Topology Benchmark on DGX Spark" in published_item
    assert "llama-benchy 0.3.5, 50 runs" in published_item
    assert "--enforce-eager)" in published_item
    assert "Its decode" not in published_item
    assert re.search(r"Against published values: `solo` decode [+−±]\d+ %", post)
    pasted = read(post, "post", "post.md")
    assert [(one.name, one.definitions) for one in pasted] == [("solo", {}), ("mine", {})]
    lone = post_of(made_sweep(("mine", levels)), beside=published[:1])
    heads = "| Decode, `solo`, published | Prefill, `solo`, published | TTFT, `solo`, published |"
    assert heads in re.sub(" +", " ", lone)
    assert all(re.fullmatch(r"[\d,.]+ \([^)]*%\)", cell) for cell in table(lone)[1][-3:])
    assert "left out" in post_of(made_sweep(("mine", levels), ("other", levels)), beside=published)


def test_launch_options_and_versions_of_servers() -> None:
    """As their processes show them, once for servers that are alike; an anonymous post has no names."""
    facts = {"flags": "--enforce-eager", "NCCL": "2.28.9", "kernel": "Linux 6.14", "BIOS": "1"}
    other_facts = {"flags": "none", "NCCL": "2.29.2", "image": "5f0c"}
    result = made_sweep(("fast", [made_level(2, step=0.2)]), ("slow", [made_level(2, step=0.3)]))
    result = with_target(result, setups={"alpha": facts})
    result = with_target(result, 1, setups={"alpha": facts, "omega": other_facts})
    setup = paragraphs(post_of(result))[0]
    assert "show it: `fast` with options `--enforce-eager`. Started, as" in setup
    assert "show it: `omega` with default options. Of options, there are only those" in setup
    assert "`alpha`: NCCL 2.28.9, Linux 6.14. `omega`: container image 5f0c, NCCL 2.29.2." in setup
    assert "omega" not in post_of(result, privacy=SweepPrivacy(anonymous=True))
    started = "vllm serve m --port 8000 --enforce-eager --api-key …"
    machines = {"x": "2 x EPYC, Linux 6.14, no GPU"}
    only = with_target(result, machines=machines, commands={"alpha": started})
    only = only.model_copy(update={"targets": only.targets[:1]})
    assert post_of(only).count("Linux 6.14") == 1
    assert shell(post_of(only))[0].startswith(f"{started}  # fast, as the process shows it, … for")
    assert f"Started, as the processes show it: `fast` with `{started}`" in sweep_report(only, "md")
    assert "vllm serve" not in post_of(only, privacy=SweepPrivacy(anonymous=True))


def test_the_answer_comes_first_then_what_was_measured() -> None:
    """Headline, machines and servers, load, warnings: before the tables with the winner and its lead."""
    result = made_sweep(("fast", [made_level(2, step=0.2)]), ("slow", [made_level(2, step=0.3)]))
    machines = {"x": "NVIDIA DGX Spark, NVIDIA GB10, driver 580.95", "y": "NVIDIA DGX Spark, NVIDIA GB10"}
    post = post_of(with_target(result, version="0.32.0", engine="vllm", machines=machines))
    about, figures = paragraphs(post)
    setup, load, warnings = about.splitlines()
    ((use, pick, lead, not_proven, speed),) = picks(post)
    assert (use, pick, lead) == ("One to four users (c2)", "**`fast`**", "decode +50 %")
    assert not_proven == "TTFT: no lead over 3 %; prefill: no lead over 3 %"
    assert re.fullmatch(r"[\d.]+ tok/s at c2", speed)
    assert post.startswith("## `m` on 2 × NVIDIA DGX Spark: `fast` or `slow`?\n")
    assert setup == (
        "- **Set-up:** NVIDIA DGX Spark, NVIDIA GB10, driver 580.95; NVIDIA DGX Spark, NVIDIA GB10. "
        "`fast`: vLLM 0.32.0, one server on 2 machines. "
        "How servers were started is not known: `sparktop agent` on their machines reads it."
    )
    assert "100 tokens in, 4 out (pp100 tg4), " in load
    assert ", 3 runs a level; " in load
    assert ", each level after a warm-up, burst (all of a run at the same moment), 3 runs" in load
    assert "2026-03-22" in load
    assert warnings.startswith("- **Warnings:** none. **Signs:** ≈: the lead is under 3 %.")
    assert figures.startswith("- **Figures:** decode = (output tokens − one per request)")
    assert table(post)[0][-1] == "`fast` (+50 %)"
    assert shell(post)[-1].startswith(
        "sparktop report last post.md  # to compare: save this post as post.md;"
    )
    assert shell(post)[0].startswith("sparktop sweep fast=http://HOST:PORT slow=http://HOST:PORT -c ")
    repeated = sweep_report(result, "md").partition("### The same again")[2]
    assert shell(repeated)[0] == shell(post)[0].partition("  #")[0]


def swept(slots: int | None, **rates: float) -> SweepResult:
    """Return a sweep of targets by name, at c1, c2 and c4, the first of which has `slots` slots, others 2.

    A rate is how many times as fast as the first target a target is at c4; at c1 half of what it leads more.
    """
    levels = {
        name: [made_level(at, step=0.2 / (1 + (rate - 1) * at / 4)) for at in (1, 2, 4)]
        for name, rate in rates.items()
    }
    result = with_target(made_sweep(*levels.items()), slots=slots)
    for place in range(1, len(rates)):
        result = with_target(result, place, slots=2)
    return result


def test_each_use_has_its_target() -> None:
    """Where figures or levels of a use have different winners, each of these is named with its lead."""

    def level(at: int, decode: float, ttft: float) -> LevelResult:
        return made_level(at, decode_tps=rate(decode), ttft_ms=latency(ttft))

    a = [level(1, 20.0, 100.0), level(4, 40.0, 200.0), level(8, 60.0, 900.0), level(64, 90.0, 4000.0)]
    b = [level(1, 10.0, 200.0), level(4, 20.0, 400.0), level(8, 50.0, 600.0), level(64, 180.0, 2000.0)]
    post = post_of(made_sweep(("a", a), ("b", b)))
    one, few, many = picks(post)
    assert one[:3] == ["One to four users (c1 to c4)", "**`a`**", "decode +100 %; TTFT −50 %"]
    assert one[3] == "prefill: no lead over 3 %"
    both = ["Several users or agents (c8)", "**`a` for decode, `b` for TTFT**", "decode +20 %; TTFT −33 %"]
    assert few[:3] == both
    assert re.fullmatch(r"`a` [\d.]+ tok/s at c8; `b` [\d.]+ tok/s at c8", few[-1])
    assert many[:3] == ["Many users or agents (c64)", "**`b`**", "decode +100 %; TTFT −50 %"]
    alike, _ = picks(post_of(made_sweep(("a", a[1:]), ("b", [a[1], *b[2:]]))))[:2]
    assert alike[1] == "**no clear winner**"
    assert re.fullmatch(r"[\d.]+( to [\d.]+)? tok/s at c4", alike[-1])  # of all, none is picked
    crossed = post_of(
        made_sweep(("a", [*a[1:3], level(16, 70.0, 999.0)]), ("b", [*b[1:3], level(16, 99.0, 700.0)]))
    )
    assert picks(crossed)[-1][:3] == ["c16", "**`b`**", "decode +41 %; TTFT −30 %"]


@pytest.mark.parametrize(("slots", "decides"), [(4, True), (2, False), (None, False)])
def test_a_level_beyond_the_slots_of_a_rival_is_no_win(slots: int | None, *, decides: bool) -> None:
    """The next best lets requests wait: told apart, with a sign in the tables, no advice."""
    result = swept(slots, wide=2.0, narrow=1.0)
    post = post_of(result)
    first, *others = picks(post)
    why = "`wide` has 4 slots, `narrow` 2, so requests wait there: measure with equal slots"
    unfair = [["c4", "**no fair comparison**", "`wide` decode +100 %", why]]
    assert [row[:4] for row in others] == (unfair if decides else [])
    assert first[:2] == [f"One to four users ({'c1 to c2' if decides else 'c1 to c4'})", "**`wide`**"]
    assert first[2].startswith("decode +25 %")
    won = ["`wide` (+25 %)", "`wide` (+50 %)", "(`wide` +100 % †)" if decides else "`wide` (+100 %)"]
    assert [row[-1] for row in table(post)[:3]] == won
    assert ("†: no fair comparison" in post) is decides
    same = "no fair comparison at c4 (`wide` +100 % against `narrow`; `wide` has 4 slots, `narrow` 2)"
    series = series_of(result)
    told = (
        (sweep_report(result, "md"), same),
        (sweep_report(result, "html"), "no fair comparison at c4: "),
        (comparison_markdown(compare(series), series), same),
        (comparison_json(compare(series), series), '"wide": 4,'),
        (result_view(result).headline or "", "no fair comparison at c4: wide has 4 slots, narrow 2"),
    )
    assert [words in text for text, words in told] == [decides] * len(told)


@pytest.mark.parametrize(
    ("slower", "faster", "cell"),
    [
        ((10.0, 10.5, 11.0), (10.5, 11.0, 11.5), r"– \(`b` \+\d+ %, n\.s\.\)"),
        ((8.0, 10.0, 14.0), (10.0, 13.0, 15.0), "runs differ too much to compare"),
        ((9.0, 11.0), (10.0, 13.0), "too few runs to compare: --runs 3"),
    ],
)
def test_a_lead_that_is_not_clear_stands_beside_the_sign(
    slower: tuple[float, ...], faster: tuple[float, ...], cell: str
) -> None:
    """Beyond the noise, but not beyond chance: the reader sees the lead, and that it is no win."""
    slow, fast = (
        [made_level(1, step=step), made_level(2, decode_tps=Rate.of_runs(runs))]
        for step, runs in ((0.4, slower), (0.2, faster))
    )
    result = made_sweep(("a", slow), ("b", fast))
    post = post_of(result)
    assert re.fullmatch(cell, table(post)[1][-1])
    assert post.count("n.s.: the lead is over 3 % and may be chance") == cell.count(r"n\.s")
    assert "--runs 3 may" not in post  # it had them
    brief = post_of(made_sweep(("a", slow), ("b", fast), plan={"runs": 2}))
    assert brief.count("; --runs 3 may prove leads with n.s.\n") == cell.count(r"n\.s")


def test_figures_are_found_in_llama_benchys_table() -> None:
    """A burst of one length: the names of its columns; recorded traffic and rates have none."""
    post = post_of(made_sweep(("solo", [made_level(1), made_level(2)])))
    assert (
        "decode is t/s (total) of tg4, per request the t/s (req) there, prefill t/s (total) of pp100" in post
    )
    assert "llama-benchy" not in post_of(
        made_sweep(("solo", [made_level(1)]), plan={"mode": LoadMode.STEADY})
    )


def test_a_router_is_held_against_its_engines_and_one_that_uses_one_server_is_named() -> None:
    """Its share of what its engines alone make; that nearly all requests went to one is a warning."""
    post = post_of(routed_sweep(split=({"alpha": 2}, {"alpha": 4}, {"alpha": 4})))
    assert (
        "- **Router:** 2 independent engines at best = 2 × alpha at c/2: decode in tok/s 19.8 at c2" in post
    )
    assert "of this best, proxy reached 33 %." in post
    assert "`proxy` sent 100 % of each run's requests to one server." in post
    assert "to one server" not in post_of(routed_sweep(split=({"alpha": 2, "omega": 2},)))


def test_doubts_name_their_levels() -> None:
    """The tables mark the level with a letter, the line of warnings has its reason."""
    fast = [made_level(2, step=0.2, validity=doubts("throttled")), made_level(4, step=0.2)]
    result = made_sweep(("fast", fast), ("slow", [made_level(at, step=0.3) for at in (2, 4)]))
    post = post_of(result)
    assert "- **Warnings (letters in tables):** ᵃ throttled." in post
    assert [[cell.endswith("ᵃ") for cell in row[:3]] for row in table(post)[:2]] == [
        [False, True, False],
        [False, False, False],
    ]
    assert [series.name for series in read(post, "post", "post.md")] == ["fast", "slow"]
    assert "warning at c2: throttled" in picks(post)[0][3]


def test_a_lead_within_the_noise_is_none_in_tables_and_choices() -> None:
    """Decode +2 % beside a clear winner in TTFT: the table has ≈ in its place, and no lead is not proven."""
    sides = [
        made_level(2, decode_tps=Rate.of_runs((decode, decode + 1, decode + 2)), ttft_ms=latency(ttft))
        for decode, ttft in ((50.0, 100.0), (51.0, 200.0))
    ]
    post = post_of(made_sweep(("a", [sides[0]]), ("b", [sides[1]])))
    assert picks(post)[0][3].startswith("decode: no lead over 3 %;")
    assert "n.s." not in post


def test_a_post_has_the_rate_that_the_headline_judges() -> None:
    """Of a steady load that is the sustained rate, in report, headline and post alike; it is read back so."""
    result = made_sweep(
        *(
            (name, [made_level(at, sustained_tps=rate(tps)) for at in (1, 2)])
            for name, tps in (("a", 20), ("b", 26))
        )
    )
    post = post_of(result)
    assert "`b` wins at every level: +30 % sustained" in sweep_report(result, "md")
    assert [row[2] for row in picks(post)] == ["sustained +30 %"]
    assert "| Concurrency (sustained, tok/s) |" in post
    for series in read(post, "post", "post.md"):
        assert {"sustained_tps"} <= series.levels[0].figures.keys()
        assert series.definitions == {}
    due = made_level(1, ttft_due_ms=latency(100))
    assert [f"TTFT{word} ms |" in post_of(made_sweep(("a", [due]))) for word in ("", " due")] == [False, True]


def test_a_post_of_agents_without_answers_says_what_was_measured() -> None:
    """Their output has a judgement and a table; nothing is said of the lengths of answers."""
    rates = [Rate.of_runs((mean,)) for mean in (46.2, 42.2)]
    levels = [LevelResult(concurrency=2, load=LoadKind.AGENTS, value=2, output_tps=rate) for rate in rates]
    sides = ((name, [level]) for name, level in zip("ab", levels, strict=True))
    post = post_of(made_sweep(*sides, plan={"load": LoadKind.AGENTS}))
    assert "**Output: `a` ahead at 2 agents (+9 % against `b`; too few runs to test).**" in post
    assert "every answer of this length" not in post


def test_a_post_says_what_limited_the_best_level() -> None:
    """By the judgement that the screen shows as the level's mark; other levels are in the report."""
    limit = LimitSide(kind="router", reason="it sends all requests to one server at a time")
    levels = [made_level(2), made_level(8, limited_by=limit)]
    item = "- **Best level:** c = 8 limited by router: it sends all requests to one server at a time.\n"
    assert item in post_of(made_sweep(("a", levels)))
    assert "Best level" not in post_of(made_sweep(("a", [levels[1], made_level(16)])))


def test_all_forms_judge_targets_by_the_rate_that_most_of_their_levels_have() -> None:
    """A level that was too short for a decode rate is in the tables that the headline speaks of."""
    targets = []
    for name, step in (("a", 0.25), ("b", 0.2)):
        levels = [made_level(at, step=step) for at in (1, 2)]
        targets.append((name, [levels[0].model_copy(update={"decode_tps": None}), levels[1]]))
    result = made_sweep(*targets)
    text, post = sweep_report(result, "md"), post_of(result)
    assert "**`b` wins at every level: +9 % output against `a`**" in text
    table = text.partition("### Output (tok/s, higher is better)")[2].partition("###")[0]
    matrix = post.partition("| Concurrency (output, tok/s) |")[2].partition("\n\n")[0]
    for cells in (table, matrix):
        assert re.findall(r"^\| (c\d+) ", cells, flags=re.MULTILINE) == ["c1", "c2"]


def unanswered(*, is_old: bool = False) -> LevelResult:
    """Return a level whose requests all failed after a second; versions before 2.0 wrote rates of 0."""
    ends = [
        event
        for at in range(2)
        for event in (
            RequestStarted(f"r{at}", at, 0, 100),
            RequestEnded(f"r{at}", at + 1.0, EndReason.ERROR, RequestFailure(FailureKind.HTTP, "no", 500)),
        )
    ]
    level = level_result(Level("a", concurrency_point(8), 100, 4), collect(ends))
    zero = {"mean": 0.0, "values": [0.0]}
    rates = dict.fromkeys(("output_tps", "requests_per_s", "total_tps"), zero) if is_old else {}
    return LevelResult.model_validate(level.model_dump() | rates)


def test_a_post_without_a_figure_is_refused() -> None:
    """No request of the only level was answered."""
    with pytest.raises(UsageError, match="nothing to post"):
        post_of(made_sweep(("a", [unanswered()])))


@pytest.mark.parametrize("form", ["post", "md", "html", "csv", "json", "svg"])
def test_a_level_without_an_answer_has_no_rate_of_zero(form: str) -> None:
    """Its rates are unknown in every form, also where the file has 0, and no target is compared there."""
    sweeps = [
        made_sweep(*((name, [made_level(2, step=step), empty]) for name, step in (("a", 0.25), ("b", 0.2))))
        for empty in (unanswered(), unanswered(is_old=True))
    ]
    assert not any(sweep.targets[0].levels[1].figures for sweep in sweeps)
    compared = [compare(series_of(sweep)) for sweep in sweeps]
    zeros = ComparisonRow(metric="output_tps", concurrency=8, values={"a": 0.0, "b": 0.0})
    compared[1] = compared[1].model_copy(update={"rows": (*compared[1].rows, zeros)})
    sweeps = [
        sweep.model_copy(update={"comparison": one}) for sweep, one in zip(sweeps, compared, strict=True)
    ]
    assert sweep_report(sweeps[0], form) == sweep_report(sweeps[1], form)
    assert [len(series.levels) for series in series_of(sweeps[1])] == [1, 1]
    assert '"output_tps": null' in sweep_report(sweeps[1], "json")


def test_the_command_joins_results_and_repeats_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`report A B --format post` repeats both; a line beside it says what to attach."""
    monkeypatch.chdir(tmp_path)
    save(tmp_path / "before.json", made_sweep(("proxy", [made_level(2)])))
    save(tmp_path / "after.json", made_sweep(("tp2", [made_level(2, step=0.1)])))
    assert main(["report", "before.json", "after.json", "--format", "post"]) == 0
    said = capsys.readouterr()
    assert "\nsparktop sweep proxy=http://HOST:PORT -c " in said.out
    assert "\nsparktop sweep tp2=http://HOST:PORT -c " in said.out
    assert "sparktop report before.json after.json --format json -o post.json" in said.err
    assert main(["report", "before.json", "after.json", "--format", "json", "-o", "post.json"]) == 0
    assert main(["report", "post.json", "--format", "post"]) == 0
    assert "127.0.0.1" not in (tmp_path / "post.json").read_text(encoding="utf-8")
