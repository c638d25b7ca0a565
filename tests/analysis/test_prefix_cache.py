"""The finding on prefix caches: from metrics pages to its line, and what it says of the reason."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from msgspec.structs import replace

from sparktop.analysis.prefix_cache import HARDLY_PERCENT, PrefixCacheRule, turns
from sparktop.engines import sglang, vllm
from sparktop.model.engine import EngineIdentity, LaneSample, PrefixCache
from sparktop.model.event import Finding, Severity, Sure
from sparktop.model.snapshot import BackendView, EachServer, PrefixUse, Situation
from sparktop.store.sources import SourceKey
from tests.store.conftest import EPOCH, START, World, page

HYBRID = PrefixCache(on=True, block_tokens=2096, states="align")
VIEW = BackendView("b", "http://b", "g", engine="vllm", generation_tokens=5000.0)


def config(**labels: object) -> PrefixCache | None:
    """Return what is read of a page with these labels of the cache metric."""
    text = ",".join(f'{name}="{value}"' for name, value in labels.items())
    body = f"vllm:cache_config_info{{{text}}} 1.0\n".encode()
    return vllm.sample_of(vllm.READER.read(body), 0.0).prefix_cache


def found(
    prompts: list[float],
    view: BackendView = VIEW,
    cache: PrefixCache = HYBRID,
    *,
    share: float = 0.0,
    lmcache: bool = False,
) -> list[Finding]:
    """Return the findings after prompts of these lengths; a share of their tokens was cached."""
    rule, last = EachServer(PrefixCacheRule), []
    for index in range(len(prompts) + 1):
        tokens = sum(prompts[:index])
        looked = (tokens, 0.0) if lmcache else None
        use = PrefixUse(cache, float(index), tokens, tokens, share * tokens, lmcache_tokens=looked)
        last = list(rule.look(Situation(10.0 * index, EPOCH, {"b": replace(view, prefix=use)})))
    return last


def growing(start: float, by: float, count: int = 30) -> list[float]:
    return [start + by * index for index in range(count)]


def test_labels_say_how_the_cache_is_configured() -> None:
    """On or off, block and mode; of a hybrid model the larger block; unknown where nothing says so."""
    plain = {"enable_prefix_caching": True, "block_size": 16, "mamba_block_size": None}
    assert config(**plain) == PrefixCache(on=True, block_tokens=16)
    aligned = plain | {"block_size": 8, "mamba_block_size": 1600, "mamba_cache_mode": "align"}
    assert config(**aligned) == PrefixCache(on=True, block_tokens=1600, states="align")
    assert config(**aligned, prefix_match_unit=64) == PrefixCache(on=True, block_tokens=64, states="align")
    off = config(enable_prefix_caching=False, block_size="1e99")
    assert off == PrefixCache(on=False)
    assert config(block_size=16) == PrefixCache(block_tokens=16)


def test_sglang_says_it_among_its_facts() -> None:
    """Its radix cache is on unless it is disabled."""
    identity = sglang.identify({"/server_info": {"disable_radix_cache": True, "page_size": 1}})
    assert identity.prefix_cache == PrefixCache(on=False, block_tokens=1)
    on = sglang.identify({"/server_info": {"disable_radix_cache": False}})
    assert on.prefix_cache == PrefixCache(on=True)
    assert sglang.identify({}).prefix_cache is None


def test_a_store_finds_it_from_pages() -> None:
    """Through store and alert: prompts of an agent, of which SGLang has counted nothing as found."""
    world, tokens = World(), 0.0
    radix = EngineIdentity(prefix_cache=PrefixCache(on=True, block_tokens=1))
    world.store.identify(SourceKey.backend("b"), radix)
    for index, length in enumerate(growing(4000, 300)):
        tokens += length
        lane = LaneSample("0", prompt_tokens=tokens, generation_tokens=tokens / 9, per_finished_request=True)
        lane = replace(lane, finished={"stop": index + 1.0}, prefix_cache_hit_percent=0.0)
        world.feed(replace(page(0.0, lane), engine="sglang"), START + 20 * index)
        world.store.judge()
    (finding,) = world.view().findings
    assert finding.line == f"prefix cache never hits: 0 of {tokens:,.0f} prompt tokens"
    assert [alert.id for alert in world.snapshot().alerts] == ["backend:b:prefix-unused"]
    said = "28 of 28 prompts continue an earlier one (by their lengths, not texts)"
    assert ("turns", said) in finding.evidence


class Case(NamedTuple):
    """Prompts of a server, and what is said of them."""

    prompts: list[float]
    line: str
    fix: str
    sure: Sure = Sure.LIKELY
    severity: Severity | None = Severity.WARNING
    view: BackendView = VIEW
    cache: PrefixCache = HYBRID


DRAFTING, SHORT = replace(VIEW, spec_accepted_per_draft=1.2), replace(VIEW, max_model_len=2000)
TURNS, ALIKE = growing(3000, 200), [3000.0] * 20
CASES = (
    Case(TURNS, "never hits: 0 of 177,000", "send one"),
    Case(growing(900, 30), "a block has 2,096", "only 2,096 tokens", Sure.KNOWN),
    Case(growing(2200, 50), "a block has 2,096", "only 4,192 tokens", view=DRAFTING),
    Case(ALIKE, "a block has 2,096", "--max-model-len above 2,096", Sure.KNOWN, None, SHORT),
    Case(TURNS, "evicted", "more memory", view=replace(VIEW, kv_fullest_percent=97.0)),
    Case(ALIKE, "whether they repeat is unknown", "if turns", Sure.UNKNOWN, None),
    Case(
        TURNS,
        "cache is off: 177,000 prompt tokens computed",
        "--enable-prefix-caching, then compare answers",
        Sure.KNOWN,
        Severity.INFO,
        cache=PrefixCache(on=False, states="none"),
    ),
    Case(
        ALIKE,
        "cache is off",
        "without --disable-radix-cache",
        Sure.KNOWN,
        None,
        replace(VIEW, engine="sglang"),
        PrefixCache(on=False),
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.line)
def test_the_reason_is_as_sure_as_its_evidence(case: Case) -> None:
    """Blocks and settings are known, the rest is likely at most; an alert only where prompts grow."""
    (finding,) = found(case.prompts, case.view, case.cache)
    assert case.line in finding.line
    assert (finding.sure, finding.severity) == (case.sure, case.severity)
    assert case.fix in (finding.fix or "")
    assert len(finding.line) <= 90


def test_little_is_said_where_little_is_known() -> None:
    """Not of few prompts, or where the cache is not known to be on."""
    assert found([3000.0] * 11) == []
    world = World()
    lane = LaneSample("0", prompt_tokens=1e6, generation_tokens=1e4, prefix_cache_hits=0.0)
    assert world.feed(page(0.0, lane), START).prefix is None


def test_a_restart_begins_anew() -> None:
    """Counters that fall leave nothing of the process before."""
    rule = EachServer(PrefixCacheRule)

    def look(at: float, prompts: float) -> list[Finding]:
        use = PrefixUse(HYBRID, prompts, 3000 * prompts, 3000 * prompts, 0.0)
        return list(rule.look(Situation(at, EPOCH, {"b": replace(VIEW, prefix=use)})))

    assert look(0, 30)
    assert look(1, 31)
    assert look(2, 3) == []


def test_figures_are_those_of_the_same_prompts() -> None:
    """Tokens are looked up a poll before their prompt is counted, and what comes in a sweep is left out."""
    rule = EachServer(PrefixCacheRule)

    def look(at: float, prompts: float, asked: float, *, in_sweep: bool = False) -> list[Finding]:
        use = PrefixUse(HYBRID, prompts, 3000 * prompts, 3000 * asked, 0.3 * 3000 * min(5.0, prompts))
        view = replace(VIEW, prefix=use, in_sweep=in_sweep)
        return list(rule.look(Situation(10 * at, EPOCH, {"b": view})))

    look(0, 5, 5)
    for prompt in range(5, 25):
        look(2 * prompt, prompt, prompt + 1)
        look(2 * prompt + 1, prompt + 1, prompt + 1)
    (finding,) = look(60, 25, 25)
    assert dict(finding.evidence)["looked up"] == "60,000 tokens of 20 prompts in the last 600 s"
    assert finding.values["window_s"] == 600
    look(61, 525, 525, in_sweep=True)
    look(62, 525, 525)
    (finding,) = look(63, 526, 526)
    assert dict(finding.evidence)["looked up"] == (
        "63,000 tokens of 21 prompts in the last 630 s, sweeps left out"
    )


def test_what_lmcache_adds() -> None:
    """It is named beside the server's own cache, as sure as turns are seen."""
    last = found(TURNS, lmcache=True)
    assert [(one.key, one.sure) for one in last] == [("", Sure.LIKELY), ("lmcache", Sure.LIKELY)]
    assert last[1].line == "LMCache never hits: 0 of 177,000 prompt tokens"


@pytest.mark.parametrize("share", [0.02, HARDLY_PERCENT / 100 + 0.01])
def test_turns_whose_tokens_are_hardly_found(share: float) -> None:
    """Of prompts that grow, three quarters could be found: 2 % is too little, 11 % is not named."""
    lines = [one.line[:24] for one in found(TURNS, share=share)]
    assert lines == (["prefix cache hardly hits"] if share < 0.1 else [])


def test_turns_of_conversations_that_alternate() -> None:
    """Two conversations in turn are seen at a lag of two; a falling or constant order is none."""
    mixed = [one for pair in zip(growing(3000, 150), growing(20_000, 300), strict=True) for one in pair]
    assert turns(mixed) == (58, 58)
    assert turns(growing(9000, -100)) is None
    assert turns([3000.0] * 60) is None
