"""Long prompts beside short requests: engines that decode more slowly meanwhile, and one that does not."""

from __future__ import annotations

import csv
import io

import pytest
from msgspec.structs import replace

from sparktop.demo.scenario import Scenario
from sparktop.errors import UsageError
from sparktop.model.load import LoadMode
from sparktop.model.targets import SweepSpec
from sparktop.panels.sweep.table import columns_for
from sparktop.simulation.calibration import SOLO
from sparktop.sweep.formats.exports import to_csv
from sparktop.sweep.formats.report import sweep_markdown
from sparktop.sweep.formats.written import repeat_command
from sparktop.sweep.plan.plan import SweepTarget
from sparktop.sweep.plan.presets import find_preset, make_plan
from sparktop.sweep.result.results import BesideResult, LevelResult, Requests, SweepResult, Validity
from sparktop.sweep.run.validity import LevelFacts, judge
from sparktop.sweep.view.result import stored_source
from sparktop.sweep.view.words import beside_words, headline
from stage.sweep import RehearsedSweep
from tests.known import known
from tests.sweep.made_results import made_level, made_sweep
from tests.sweep.watched_servers import QUICK, watched


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_prefill_slows_decode() -> None:
    """An engine whose steps hold parts of long prompts has longer gaps; every form has both figures."""
    profile = replace(SOLO, max_model_len=65536, max_num_batched_tokens=2048)
    sweep = RehearsedSweep(scenario=Scenario("beside", "round-robin", profile=profile), backends=1)
    preset = find_preset("interference") | SweepSpec(concurrency=(2,))
    live = await sweep.play(make_plan(preset, [sweep.targets["spark-a"]]))
    (target,) = known(live.result).targets
    command = "vllm serve openai/gpt-oss-120b --port 8000 --gpu-memory-utilization 0.7"
    command += " --max-model-len 65536 --max-num-seqs 48"
    assert target.commands == {"spark-a": command}
    (level,) = target.levels
    found = known(level.beside)
    assert level.runs == len(found.itl_runs_ms) == len(found.alone_itl_runs_ms) == 3
    assert found.arrived >= 3
    assert (found.requests.failed, found.failed, found.error) == (0, 0, None)
    assert known(known(found.itl_ms).count) <= 63 * (found.requests.ok + found.requests.cancelled)
    result = known(live.result)
    assert SweepResult.model_validate(result.to_json()).targets[0].levels[0].beside == found
    assert found.significant
    assert min(found.itl_runs_ms) > 3 * max(found.alone_itl_runs_ms)
    assert known(known(level.itl_ms).max) < min(found.itl_runs_ms)
    words = headline(result, None) or ""
    assert words.startswith("at c = 2 mean ITL of short requests ")
    assert " ms while 32k prompts arrive (" in words
    page = sweep_markdown(result)
    assert words[1:] in page
    assert f"{found.arrived} long prompts answered, 0 failed" in page
    (row,) = csv.DictReader(io.StringIO(to_csv(result)))
    assert (row["beside_prompt_tokens"], row["beside_significant"]) == ("32768", "True")
    assert "--preset interference" in repeat_command(result)


@pytest.mark.process
@pytest.mark.long
@pytest.mark.timeout(600)
async def test_a_real_generator_sends_both() -> None:
    """Long prompts, cut to the server's context, follow one another; no figure of the short ones has them."""
    async with watched() as servers:
        plan = servers.plan(
            concurrency=(2,), tg=32, runs=2, mode=LoadMode.STEADY, duration_s=1.0, beside=32768
        )
        result = await servers.runner(plan).run()
    (level,) = result.targets[0].levels
    found = known(level.beside)
    assert found.prompt_tokens == QUICK.max_model_len - 64
    assert found.arrived >= 2
    assert (found.requests.failed, found.failed) == (0, 0)
    assert known(found.ttft_ms).count == found.requests.ok
    assert not {one.code for one in level.validity} & {"count_mismatch", "foreign_traffic"}


def beside(alone: tuple[float, ...], runs: tuple[float, ...], **more: object) -> BesideResult:
    found = BesideResult(prompt_tokens=32768, arrived=1, alone_itl_runs_ms=alone, itl_runs_ms=runs)
    return found.model_copy(update=more)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (
            beside((30.0, 32.0), (83.0, 85.0), significant=True, change_percent=(140.0, 201.6)),
            (
                "mean ITL of short requests goes from 31.0 to 84.0 ms while 32k prompts arrive "
                "(+140 % to +202 %)"
            ),
        ),
        (
            beside((30.0, 32.0), (31.0, 33.0), significant=False),
            "no clear difference in mean ITL of short requests while 32k prompts arrive (31.0 and 32.0 ms)",
        ),
        (
            beside((31.0,), ()),
            "mean ITL of short requests while 32k prompts arrive is unknown: too few tokens came",
        ),
        (
            BesideResult(prompt_tokens=32768, failed=2, error="HTTP 400: too long"),
            "no prompt of 32,768 tokens was answered: HTTP 400: too long",
        ),
    ],
)
def test_words_say_how_certain_it_is(found: BesideResult, words: str) -> None:
    """A difference has its interval, single runs have none, and what was not measured is unknown."""
    assert beside_words(LevelResult(concurrency=1, beside=found)) == words
    assert beside_words(LevelResult(concurrency=1)) == ""


def test_words_of_a_file_are_no_markup() -> None:
    """The server's error on a long prompt is quoted, the code of an unknown warning is its words alone."""
    refused = BesideResult(prompt_tokens=32768, failed=1, error="**too** <long>")
    doubt = Validity(code="odd_<b>*code*", message="seen")
    level = made_level().model_copy(update={"beside": refused, "validity": (doubt,)})
    text = sweep_markdown(made_sweep(("a", [level])))
    assert "was answered: `**too** <long>`" in text
    assert text.count("**too**") == text.count("`**too** <long>`")
    assert "odd b code: seen" in text


def test_short_requests_that_fail_beside_long_prompts_are_a_warning() -> None:
    """The level's own requests are not meant: these were sent before."""
    requests = Requests(ok=3, failed=2, errors={"timeout": 2})
    level = LevelResult(concurrency=1, beside=BesideResult(prompt_tokens=32768, requests=requests))
    plan = make_plan(find_preset("interference"), (SweepTarget("a", "http://a"),))
    said = [mark.message for mark in judge(plan, level, LevelFacts()) if "failed" in mark.message]
    assert said == ["2 of 5 requests failed while long prompts arrived (timeout 2)"]


def test_the_table_has_the_gap_while_long_prompts_arrive() -> None:
    """A column of its own in reports and on the screen; without long prompts there is none."""
    beside = BesideResult(prompt_tokens=32768, itl_runs_ms=(83.0, 85.0))
    for found, is_shown in ((beside, True), (None, False)):
        result = made_sweep(("a", (made_level(beside=found),)))
        assert ("| ITL beside |" in sweep_markdown(result)) is is_shown
        view = stored_source(result).view()
        table = {column.heading: column for column in columns_for(view, 110)}
        assert ("ITL beside" in table) is is_shown
        assert not is_shown or table["ITL beside"].text(view.rows[0]).strip() == "84.0 ms"


def test_the_preset_keeps_requests_in_flight() -> None:
    """Bursts, searches and other loads contradict it; a length of one's own is a key of a preset."""
    target = SweepTarget("a", "http://a")
    preset = find_preset("interference")
    plan = make_plan(preset, (target,))
    assert (plan.mode, plan.beside, plan.runs) == (LoadMode.STEADY, 32768, 3)
    assert make_plan(preset | SweepSpec(beside=8192, concurrency=(2,)), (target,)).beside == 8192
    for other in (SweepSpec(mode="burst"), SweepSpec(rate="1"), SweepSpec(slo="ttft_p90_ms=2000")):
        with pytest.raises(UsageError, match="preset interference"):
            make_plan(preset | other, (target,))
